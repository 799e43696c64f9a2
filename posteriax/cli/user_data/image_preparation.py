"""Preparing image arrays: pixels from 0 to 1, and the mean and scale that the network standardises them with."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from posteriax.cli.user_data.array_files import Arrays, joined
from posteriax.cli.user_data.messages import DataError
from posteriax.cli.user_data.settings import DataSettings, Prepared, split_by_target
from posteriax.cli.user_data.targets import Target, target_from_plain


@dataclass(frozen=True)
class ImagePreparation:
    """All that is needed to prepare new images as the training images were.

    Args:
        shape: of an image, (h, w) or (h, w, c).
        divide: what pixels are divided by: 255 for integers, 1 for fractions.
        mean, scale: of the training images' pixels after the division.
        target: what is predicted.

    >>> from posteriax.cli.user_data.targets import Classes
    >>> preparation = ImagePreparation((2, 2), 255.0, 0.5, 0.2, Classes("y", ("0", "1")))
    >>> preparation.inputs("new.npz", np.full((1, 2, 2), 255, np.uint8)).tolist()
    [[[1.0, 1.0], [1.0, 1.0]]]
    """

    shape: tuple[int, ...]
    divide: float
    mean: float
    scale: float
    target: Target

    def inputs(self, name: str, x: np.ndarray) -> np.ndarray:
        """The network's inputs."""
        if x.shape[1:] != self.shape:
            raise DataError(f"{name}: x has examples of shape {x.shape[1:]}, but the network expects {self.shape}")
        return (x / np.float32(self.divide)).astype(np.float32)


def prepare_images(arrays: Arrays, settings: DataSettings = DataSettings()) -> Prepared:
    """Split images, unless they come with a test set, and find the training images' mean and scale.

    >>> arrays = Arrays("images.npz", np.zeros((20, 8, 8), np.uint8), np.arange(20) % 2)
    >>> prepare_images(arrays).train[0].shape
    (16, 8, 8)
    """
    x_all, values, split = joined(arrays)
    target, train, test = split_by_target("y", values, settings, split)
    divide = 255.0 if x_all.dtype.kind in "iu" else 1.0
    some = x_all[train[:: max(1, len(train) // 5000)]] / divide
    scale = float(some.std())
    preparation = ImagePreparation(x_all.shape[1:], divide, float(some.mean()), scale if scale > 1e-6 else 1.0, target)
    x, y = preparation.inputs(arrays.name, x_all), target.encode(values)
    return Prepared(preparation, (x[train], y[train]), (x[test], y[test]))


def images_from_plain(plain: dict[str, Any]) -> ImagePreparation:
    """The preparation that `asdict` gave."""
    divide, mean, scale = (float(plain[name]) for name in ("divide", "mean", "scale"))
    return ImagePreparation(tuple(map(int, plain["shape"])), divide, mean, scale, target_from_plain(plain["target"]))
