"""A data set, and loading one by its name.

A loader is a function decorated with `register`; `load` finds it by name and returns its :class:`DataSet`.
"""

import difflib
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from posteriax.data.batches import Inputs

Part = tuple[Inputs, np.ndarray]  # (x, y)


@dataclass(frozen=True)
class Scaling:
    """How inputs were standardised: (x - mean) / scale, with mean and scale of the training set.

    >>> Scaling.of(np.array([[1.0], [3.0]])).apply(np.array([[2.0], [4.0]])).tolist()
    [[0.0], [2.0]]
    """

    mean: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, x: np.ndarray, axes: tuple[int, ...] = (0,)) -> "Scaling":
        """Fit to an array, over these axes; constant or missing entries keep their scale."""
        with np.errstate(invalid="ignore", divide="ignore"):
            count = np.isfinite(x).sum(axis=axes)
            mean = np.where(count > 0, np.nansum(x, axis=axes, dtype=np.float64) / np.maximum(count, 1), 0.0)
            centred = x - np.expand_dims(mean, axes)
            scale = np.sqrt(np.nansum(np.square(centred), axis=axes, dtype=np.float64) / np.maximum(count, 1))
            largest = np.nanmax(np.abs(np.where(np.isfinite(x), x, 0.0)), axis=axes)
        return cls(mean, np.where(scale > 1e-12 * largest, scale, 1.0))

    def apply(self, x: np.ndarray) -> np.ndarray:
        return ((x - self.mean) / self.scale).astype(np.float32)

    def undo(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(x, np.float64) * self.scale + self.mean


@dataclass(frozen=True, repr=False)
class DataSet:
    """A data set in its official split.

    Args:
        name: the name it was loaded by.
        train, test: ``(x, y)`` each, ready for ``px.fit`` and ``px.evaluate``.
        classes: the names of labels 0, 1, ...; none for regression.
        features: the names of the columns, if they have any.
        scaling: how x was standardised, if it was; fitted to the training set.
        target_scaling: how y was standardised, for regression.

    >>> import posteriax as px
    >>> iris = px.data.load("iris")
    >>> iris
    iris: 120 training and 30 test examples, x (4,) float32, 3 classes: setosa, versicolor, virginica
    >>> iris.train[0].shape
    (120, 4)
    """

    name: str
    train: Part
    test: Part
    classes: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    scaling: Scaling | None = None
    target_scaling: Scaling | None = None

    def __repr__(self) -> str:
        few = ", ".join(self.classes[:10]) + (", ..." if len(self.classes) > 10 else "")
        what = f"{len(self.classes)} classes: {few}" if self.classes else "regression"
        sizes = f"{len(self.train[1]):,} training and {len(self.test[1]):,} test examples"
        return f"{self.name}: {sizes}, x {_shape(self.train[0])}, {what}"

    def held_out(self, count: int) -> tuple["DataSet", Part]:
        """The data set without its last `count` training examples, and those examples, for validation."""
        x, y = self.train
        if not 0 < count < len(y):
            raise ValueError(f"count must be at least 1 and less than the {len(y)} training examples, got {count}")
        kept, taken = slice(len(y) - count), slice(len(y) - count, None)
        return replace(self, train=(_rows(x, kept), y[kept])), (_rows(x, taken), y[taken])

    def first(self, train: int, test: int | None = None) -> "DataSet":
        """The first examples of the training set and, if `test` is given, of the test set."""
        (x, y), (x_test, y_test) = self.train, self.test
        return replace(
            self, train=(_rows(x, slice(train)), y[:train]), test=(_rows(x_test, slice(test)), y_test[:test])
        )


def _shape(x: Inputs) -> str:
    if isinstance(x, dict):
        return ", ".join(f"{name} {_shape(a)}" for name, a in x.items())
    return f"{x.shape[1:]} {x.dtype}"


def _rows(x: Inputs, rows: slice) -> Inputs:
    return {name: a[rows] for name, a in x.items()} if isinstance(x, dict) else x[rows]


LoadFunction = Callable[..., DataSet]
_LOADERS: dict[str, LoadFunction] = {}


def register(*names: str) -> Callable[[LoadFunction], LoadFunction]:
    """A decorator for a function that loads data sets by these names, given the name, a folder and its own options."""

    def add(loader: LoadFunction) -> LoadFunction:
        _LOADERS.update(dict.fromkeys(names, loader))
        return loader

    return add


def names() -> list[str]:
    """The names that `load` takes.

    >>> "fashion_mnist" in names(), "uci/concrete" in names()
    (True, True)
    """
    return sorted(_LOADERS)


def load(name: str, *, folder: str | Path | None = None, **options: Any) -> DataSet:
    """A data set by its name, in its official split.

    Looks in `folder` for the public files or for arrays, `NAME.npz`; missing files are downloaded and their checksums
    verified. docs/data.md lists the files and the options of each set.

    Args:
        name: "mnist", "fashion_mnist", "cifar10", "cifar100", "imdb", "uci/concrete" and the other UCI sets,
            "physionet2012", "iris", "digits", "two_moons".
        folder: where the files are or should go; by default ``$POSTERIAX_DATA``, or the user's cache folder.
        **options: options of the data set, such as ``split=3`` for one of UCI's twenty splits.

    Raises:
        DataError: if a file is missing and cannot be downloaded, is damaged, or is not the expected one.

    >>> load("two_moons", train=100).train[0].shape
    (100, 2)
    """
    if name not in _LOADERS:
        close = difflib.get_close_matches(str(name).lower(), names(), 3, cutoff=0.4)
        hint = f"Did you mean {' or '.join(close)}?" if close else f"There are {', '.join(names())}."
        raise ValueError(f"there is no data set {name!r}. {hint}")
    loader = _LOADERS[name]
    accepted = [p.name for p in inspect.signature(loader).parameters.values() if p.kind is p.KEYWORD_ONLY]
    unknown = [option for option in options if option not in accepted]
    if unknown:
        raise TypeError(f"{name} has no option {unknown[0]!r}; it has {', '.join(accepted) or 'none'}")
    return loader(name, folder, **options)
