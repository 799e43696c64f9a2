"""Made-up examples of a data set's shape, for tests and trials that must not need the data.

What a cell works with: data by name, fits that survive a kill, and a place for times.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import posteriax.data as data_sets
from posteriax.data.sets.data_set import DataSet, Scaling, load
from posteriax.posterior.posterior import Posterior
from posteriax.run.fitting import fit

TRAIN, TEST = 64, 32  # examples
RECORD = (48, 37)  # hours and variables of a clinical record
COLUMNS = 8  # of a regression


class Shape(NamedTuple):
    """Shape of one input, number of classes, and the number of words if inputs are words."""

    inputs: tuple[int, ...]
    classes: int
    words: int = 0


SHAPES = {
    "mnist": Shape((28, 28), 10),
    "fashion_mnist": Shape((28, 28), 10),
    "fashion_small": Shape((28, 28), 10),
    "cifar10": Shape((32, 32, 3), 10),
    "cifar100": Shape((32, 32, 3), 100),
    "imdb": Shape((100,), 2, words=20_000),
}


def stand_in(name: str) -> DataSet:
    """A few random examples that can be learned: each class has a pattern of its own, with noise on top.

    >>> stand_in("cifar10")
    made-up/cifar10: 64 training and 32 test examples, x (32, 32, 3) float32, 10 classes: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
    """
    if name == "physionet2012":
        return _records()
    if name.startswith("uci/"):
        return _regression(name)
    if name not in SHAPES:
        return load(name)  # one of the small sets that need no files
    shape, rng = SHAPES[name], np.random.default_rng(0)
    y = rng.integers(0, shape.classes, TRAIN + TEST)
    if shape.words:
        x = np.where(
            rng.random((len(y), *shape.inputs)) < 0.2,
            10 + y[:, None],
            rng.integers(3, shape.words, (len(y), *shape.inputs)),
        ).astype(np.int32)
    else:
        patterns = rng.random((shape.classes, *shape.inputs))
        x = np.clip(0.7 * patterns[y] + 0.3 * rng.random((len(y), *shape.inputs)), 0, 1).astype(np.float32)
    y = y.astype(np.int32)
    classes = tuple(map(str, range(shape.classes)))
    return DataSet(f"made-up/{name}", (x[:TRAIN], y[:TRAIN]), (x[TRAIN:], y[TRAIN:]), classes)


def _records() -> DataSet:
    """Clinical records, most of whose measurements are missing; those of patients who died are higher."""
    rng = np.random.default_rng(1)
    y = (np.arange(TRAIN + TEST) % 4 == 0).astype(np.int32)
    observed = (rng.random((len(y), *RECORD)) < 0.2).astype(np.float32)
    values = observed * (rng.normal(size=observed.shape) + y[:, None, None]).astype(np.float32)
    x = {"values": values, "observed": observed, "static": rng.normal(size=(len(y), 4)).astype(np.float32)}
    parts: list[Any] = [({name: a[own] for name, a in x.items()}, y[own]) for own in (slice(TRAIN), slice(TRAIN, None))]
    return DataSet("made-up/physionet2012", parts[0], parts[1], ("survived", "died"))


def _regression(name: str) -> DataSet:
    """A smooth function of some columns, with noise, standardised."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(TRAIN + TEST, COLUMNS))
    y = 10 * np.sin(x[:, 0]) + 5 * x[:, 1] + rng.normal(size=len(x))
    scaling, target_scaling = Scaling.of(x[:TRAIN]), Scaling.of(y[:TRAIN])
    x, y = scaling.apply(x), target_scaling.apply(y)
    train, test = (x[:TRAIN], y[:TRAIN]), (x[TRAIN:], y[TRAIN:])
    return DataSet(f"made-up/{name}", train, test, scaling=scaling, target_scaling=target_scaling)


class Workbench:
    """Data sets, fits and times of one cell.

    Args:
        folder: where the cell's runs keep their checkpoints; None keeps none.
        trial: whether every data set is replaced by a few made-up examples of its shape.
        progress: as for ``px.fit``.
        loaded: data sets by name that other cells have loaded; shared among the cells of a study.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        trial: bool = False,
        progress: bool | None = None,
        loaded: dict[Any, DataSet] | None = None,
    ):
        self.folder, self.trial, self.progress = folder, trial, progress
        self.times: dict[str, float] = {}
        self._loaded: dict[Any, DataSet] = {} if loaded is None else loaded
        self._fits = 0

    def load(self, name: str, **options: Any) -> DataSet:
        """``px.data.load(name, **options)``, read once for all cells; "made-up/NAME" is a few random examples of the
        same shape, and "fashion_small" the part of Fashion-MNIST that ships with the package."""
        key = (name, *sorted(options.items()))
        if key not in self._loaded:
            self._loaded[key] = load_data(name, self.trial, **options)
        return self._loaded[key]

    def fit(self, problem: Any, data: Any, method: Any, **settings: Any) -> Posterior:
        """``px.fit`` with a checkpoint in the cell's folder: a killed study resumes within the run."""
        checkpoint = None if self.folder is None else self.folder / f"fit-{self._fits}"
        self._fits += 1
        return fit(problem, data, method, checkpoint=checkpoint, progress=self.progress, **settings)


def load_data(name: str, trial: bool = False, **options: Any) -> DataSet:
    """A data set for a study, or its stand-in."""
    real = name.removeprefix("made-up/")
    if trial or real != name:
        return stand_in(real)
    if name == "fashion_small":
        train, test = data_sets.fashion_small()
        return DataSet(name, train, test, tuple(map(str, range(10))))
    return data_sets.load(name, **options)
