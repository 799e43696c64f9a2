"""Preparing image arrays: pixels from 0 to 1, and the mean and scale that the network standardises them with."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from posteriax.tabular.array_files import Arrays, joined
from posteriax.tabular.messages import TableError
from posteriax.tabular.prepared import Prepared
from posteriax.tabular.settings import DataSettings
from posteriax.tabular.splitting import about_splits, make_splits
from posteriax.tabular.targets import (
    Target,
    Task,
    about_task,
    check_classes,
    infer_task,
    make_target,
    target_from_plain,
)


@dataclass(frozen=True)
class ImagePreparation:
    """All that is needed to prepare new images as the training images were.

    Args:
        shape: of an image, (h, w) or (h, w, c).
        divide: what pixels are divided by: 255 for integers, 1 for fractions.
        mean, scale: of the training images' pixels after the division.
        target: what is predicted.

    >>> from posteriax.tabular.targets import Classes
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
            raise TableError(f"{name}: x has examples of shape {x.shape[1:]}, but the network expects {self.shape}")
        return (x / np.float32(self.divide)).astype(np.float32)


def prepare_images(arrays: Arrays, settings: DataSettings = DataSettings()) -> Prepared:
    """The first of the folds that :func:`prepare_image_folds` gives."""
    return prepare_image_folds(arrays, settings)[0]


def prepare_image_folds(arrays: Arrays, settings: DataSettings = DataSettings()) -> list[Prepared]:
    """Split images, unless they come with a test set, and find the training images' mean and scale.

    >>> arrays = Arrays("images.npz", np.zeros((80, 8, 8), np.uint8), np.arange(80) % 2)
    >>> [fold.train[0].shape for fold in prepare_image_folds(arrays)]
    [(64, 8, 8)]
    """
    x, values, split = joined(arrays)
    task = infer_task("y", values, settings.task)
    classes = check_classes("y", values) if task == "classification" else None
    splits = [split] if split is not None else make_splits(len(values), settings, classes=classes)
    notes = [*about_splits(splits, settings), *about_task("y", values, task, settings.task)]
    return [_prepare(arrays.name, x, values, task, train, test, notes) for train, test in splits]


def prepare_whole_images(arrays: Arrays, settings: DataSettings = DataSettings()) -> Prepared:
    """All images for training and none for testing."""
    x, values, _ = joined(arrays)
    task = infer_task("y", values, settings.task)
    return _prepare(arrays.name, x, values, task, np.arange(len(x)), np.zeros(0, int), [])


def _prepare(
    name: str, x: np.ndarray, values: Any, task: Task, train: np.ndarray, test: np.ndarray, notes: list[str]
) -> Prepared:
    target = make_target("y", values, task, train)
    divide = 255.0 if x.dtype.kind in "iu" else 1.0
    some = x[train[:: max(1, len(train) // 5000)]] / divide
    scale = float(some.std())
    preparation = ImagePreparation(x.shape[1:], divide, float(some.mean()), scale if scale > 1e-6 else 1.0, target)
    y = target.encode(values)
    trained, tested = (preparation.inputs(name, x[rows]) for rows in (train, test))
    return Prepared(preparation, (trained, y[train]), (tested, y[test]), tuple(notes), train, test)


def images_from_plain(plain: dict[str, Any]) -> ImagePreparation:
    """The preparation that `asdict` gave."""
    divide, mean, scale = (float(plain[name]) for name in ("divide", "mean", "scale"))
    return ImagePreparation(tuple(map(int, plain["shape"])), divide, mean, scale, target_from_plain(plain["target"]))
