"""Images for training and testing, clean and corrupted, as the networks take them.

Every kind of corruption is applied to five groups of test images, one for each severity. Images are corrupted
at full resolution; averaging pixels, where a network takes fewer, comes after.
"""

from typing import Any, NamedTuple

import numpy as np

from posteriax.data import DataSet, corrupt
from posteriax.studies.rank_1.settings import Images
from posteriax.studies.workbench import Workbench

_corrupted: dict[Any, tuple[np.ndarray, np.ndarray]] = {}  # the same for all cells


class Parts(NamedTuple):
    """Training and test examples; the corrupted ones by kind and severity, (kinds x severities x images, ...)."""

    train: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]
    corrupted: tuple[np.ndarray, np.ndarray]
    classes: int


def load_images(plan: Images, bench: Workbench) -> Parts:
    """The data of a table. Pixels are centred and scaled by the mean and standard deviation of the training images."""
    data = bench.load(plan.data)
    (x, y), (x_test, y_test) = data.train, data.test
    x, y = x[: plan.examples or None], y[: plan.examples or None]
    centre, scale = float(x.mean()), float(x.std())

    def prepare(images: np.ndarray) -> np.ndarray:
        return (average_pixels(images, plan.pool) - centre) / scale

    worse, labels = corrupted_images(data, plan)
    tests = plan.tests or None
    return Parts(
        (prepare(x), y), (prepare(x_test[:tests]), y_test[:tests]), (prepare(worse), labels), len(data.classes)
    )


def corrupted_images(data: DataSet, plan: Images) -> tuple[np.ndarray, np.ndarray]:
    """The first test images, so many for every severity, in all kinds of corruption."""
    count, kinds, severities = plan.corrupted, plan.kinds, plan.severities
    key = (data.name, count, kinds, severities)
    if key not in _corrupted:
        images, labels = data.test
        groups = [slice(i * count, (i + 1) * count) for i in range(len(severities))]
        made = [
            corrupt(images[group], kind, severity, 0)
            for kind in kinds
            for severity, group in zip(severities, groups, strict=True)
        ]
        repeated = np.concatenate([labels[group] for _ in kinds for group in groups])
        _corrupted[key] = np.concatenate(made), repeated
    return _corrupted[key]


def average_pixels(images: np.ndarray, pool: int) -> np.ndarray:
    """Images, (N, height, width) or with channels last, averaged over squares of `pool` pixels.

    >>> average_pixels(np.arange(16.0).reshape(1, 4, 4), 2)[0].tolist()
    [[2.5, 4.5], [10.5, 12.5]]
    """
    count, height, width = images.shape[:3]
    squares = images.reshape(count, height // pool, pool, width // pool, pool, *images.shape[3:])
    return squares.mean(axis=(2, 4), dtype=images.dtype)
