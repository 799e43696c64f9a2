"""Robustness to corrupted inputs, relative to a baseline. (Hendrycks and Dietterich 2019)"""

import numpy as np
from numpy.typing import ArrayLike

from posteriax.metrics.arrays import Values, as_numbers, is_concrete, keeps_precision

# AlexNet's error rates on ImageNet-C, means over the five severities: the baseline that papers use there
ALEXNET_IMAGENET_C = {
    "gaussian_noise": 0.886428,
    "shot_noise": 0.894468,
    "impulse_noise": 0.922640,
    "defocus_blur": 0.819880,
    "glass_blur": 0.826268,
    "motion_blur": 0.785948,
    "zoom_blur": 0.798360,
    "snow": 0.866816,
    "frost": 0.826572,
    "fog": 0.819324,
    "brightness": 0.564592,
    "contrast": 0.853204,
    "elastic_transform": 0.646056,
    "pixelate": 0.717840,
    "jpeg_compression": 0.606500,
}


@keeps_precision
def mean_corruption_error(errors: ArrayLike, baseline: ArrayLike) -> Values:
    """Mean corruption error (mCE): the error summed over severities, divided by the baseline's, averaged over kinds.

        mCE = 1/K sum_k  (sum_s E_ks) / (sum_s B_ks)

    Best is 0; the baseline itself has 1. Papers print 100 times this.

    Args:
        errors: error rates, (kinds of corruption, severities).
        baseline: those of the baseline, of the same shape; or only their means over severities, (kinds,). For
            ImageNet-C papers take AlexNet's: ``list(ALEXNET_IMAGENET_C.values())``, in that order of kinds.

    >>> mean_corruption_error([[0.1, 0.3], [0.2, 0.2]], [[0.2, 0.6], [0.4, 0.4]]).round(3).item()
    0.5
    """
    errors, base = as_numbers("errors", errors), as_numbers("baseline", baseline)
    if errors.ndim != 2 or base.shape not in (errors.shape, errors.shape[:1]):
        raise ValueError(
            f"errors must have the shape (kinds, severities) and baseline the same or (kinds,), got {errors.shape} and "
            f"{base.shape}"
        )
    if is_concrete(baseline) and not (np.asarray(baseline).reshape(len(base), -1).sum(axis=1) > 0).all():
        raise ValueError("baseline must have errors of every kind: a sum over severities is 0")
    return (errors.mean(axis=1) / base.reshape(len(base), -1).mean(axis=1)).mean()
