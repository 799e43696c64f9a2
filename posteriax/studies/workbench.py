"""What a cell works with: data by name or made-up data of the same shape, fits that survive a kill, and their times."""

import time
from collections.abc import Callable, Hashable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import posteriax.data as data_sets
from posteriax.data import DataSet, Scaling
from posteriax.methods import Ensemble, Method
from posteriax.posterior import DrawsPosterior, Posterior, VariationalPosterior
from posteriax.problem import Problem
from posteriax.run import Watch, fit

Examples = tuple[np.ndarray, np.ndarray]  # x and y
TRAIN, TEST = 64, 32  # made-up examples
RECORD = (48, 37)  # hours and variables of a made-up clinical record
COLUMNS = 8  # of a made-up regression
UNKNOWN = 2  # the index of rare words


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
        loaded: dict[Hashable, DataSet] | None = None,
    ):
        self.folder, self.trial, self.progress = folder, trial, progress
        self.times: dict[str, float] = {}
        self._loaded: dict[Hashable, DataSet] = {} if loaded is None else loaded
        self._fits = 0

    def load(self, name: str, **options: Any) -> DataSet:
        """``px.data.load(name, **options)``, read once for all cells; "made-up/NAME" is a few random examples of the
        same shape, and "fashion_small" the part of Fashion-MNIST that ships with the package."""
        key = (name, *sorted(options.items()))
        if key not in self._loaded:
            self._loaded[key] = load_data(name, self.trial, **options)
        return self._loaded[key]

    def fit(self, problem: Problem, data: Any, method: Method | Ensemble, **settings: Any) -> Posterior:
        """``px.fit`` with a checkpoint in the cell's folder: a killed study resumes within the run."""
        checkpoint = None if self.folder is None else self.folder / f"fit-{self._fits}"
        self._fits += 1
        return fit(problem, data, method, checkpoint=checkpoint, progress=self.progress, **settings)

    def fit_variational(
        self, problem: Problem, data: Any, method: Method | Ensemble, **settings: Any
    ) -> VariationalPosterior:
        """The same with a method whose posterior is a variational one."""
        posterior = self.fit(problem, data, method, **settings)
        assert isinstance(posterior, VariationalPosterior)
        return posterior

    def fit_timed(
        self, problem: Problem, data: Any, method: Method | Ensemble, *, every: int, **settings: Any
    ) -> Posterior:
        """The same; wall time and processor time of a step, without compilation, go into the cell's times.

        They are medians over intervals of `every` steps, without those in which the run was killed.
        """
        posterior = self.fit(problem, data, method, watch=Watch(_clocks, every=every), **settings)
        steps = np.diff(posterior.trace["watched_step"])
        for name in _clocks(posterior):
            seconds = np.diff(posterior.trace[name])
            if (running := seconds > 0).any():
                self.times[f"{name}_per_step"] = float(np.median(seconds[running] / steps[running]))
        return posterior


def _clocks(posterior: Posterior) -> dict[str, float]:
    return {"seconds": time.monotonic(), "processor_seconds": time.process_time()}


def linear_annealing(part: float, steps: int) -> Callable[[jax.Array | int], jax.Array | float] | None:
    """The weight of the KL, which grows from 0 to 1 over a part of the run; None if the part is 0."""
    ramp = max(1.0, part * steps)
    return (lambda step: jnp.minimum(1.0, (step + 1) / ramp)) if part else None


def split_members(posterior: Posterior) -> list[Posterior]:
    """Every chain, or member of an ensemble, as a posterior of its own."""
    assert isinstance(posterior, DrawsPosterior | VariationalPosterior)
    field = "draws" if isinstance(posterior, DrawsPosterior) else "variational"
    stacked = getattr(posterior, field)
    count = jax.tree.leaves(stacked)[0].shape[0]
    parts = (jax.tree.map(lambda leaf, i=i: leaf[i : i + 1], stacked) for i in range(count))
    return [replace(posterior, **{field: part}) for part in parts]


def join_members(members: list[VariationalPosterior]) -> VariationalPosterior:
    """One posterior of several networks with the same structure."""
    stacked = jax.tree.map(lambda *leaves: np.concatenate(leaves), *[member.variational for member in members])
    return replace(members[0], variational=stacked)


def load_data(name: str, trial: bool = False, **options: Any) -> DataSet:
    """A data set for a study, or its stand-in."""
    real = name.removeprefix("made-up/")
    if trial or real != name:
        return stand_in(real)
    if name == "fashion_small":
        train, test = data_sets.fashion_small()
        return DataSet(name, train, test, tuple(map(str, range(10))))
    return data_sets.load(name, **options)


def average_pixels(images: np.ndarray, pool: int) -> np.ndarray:
    """Images, (N, height, width) or with channels last, averaged over squares of `pool` pixels.

    >>> average_pixels(np.arange(16.0).reshape(1, 4, 4), 2)[0].tolist()
    [[2.5, 4.5], [10.5, 12.5]]
    """
    count, height, width = images.shape[:3]
    squares = images.reshape(count, height // pool, pool, width // pool, pool, *images.shape[3:])
    return squares.mean(axis=(2, 4), dtype=images.dtype)


def last_words(reviews: np.ndarray, length: int, words: int) -> np.ndarray:
    """The last words of reviews, (N, length); those beyond the vocabulary are unknown.

    >>> last_words(np.array([[1, 60, 3, 49, 50]], np.int32), length=3, words=50).tolist()
    [[3, 49, 2]]
    """
    last = reviews[:, -length:]
    return np.where(last < words, last, UNKNOWN).astype(np.int32)


class InputShape(NamedTuple):
    """Shape of one input, number of classes, and the number of words if inputs are words."""

    inputs: tuple[int, ...]
    classes: int
    words: int = 0


SHAPES = {
    "mnist": InputShape((28, 28), 10),
    "fashion_mnist": InputShape((28, 28), 10),
    "fashion_small": InputShape((28, 28), 10),
    "cifar10": InputShape((32, 32, 3), 10),
    "cifar100": InputShape((32, 32, 3), 100),
    "imdb": InputShape((100,), 2, words=20_000),
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
        return data_sets.load(name)  # one of the small sets that need no files
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
    train, test = (({name: a[rows] for name, a in x.items()}, y[rows]) for rows in (slice(TRAIN), slice(TRAIN, None)))
    return DataSet("made-up/physionet2012", train, test, ("survived", "died"))


def _regression(name: str) -> DataSet:
    """A smooth function of some columns, with noise, standardised."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(TRAIN + TEST, COLUMNS))
    y = 10 * np.sin(x[:, 0]) + 5 * x[:, 1] + rng.normal(size=len(x))
    scaling, target_scaling = Scaling.of(x[:TRAIN]), Scaling.of(y[:TRAIN])
    x, y = scaling.apply(x), target_scaling.apply(y)
    train, test = (x[:TRAIN], y[:TRAIN]), (x[TRAIN:], y[TRAIN:])
    return DataSet(f"made-up/{name}", train, test, scaling=scaling, target_scaling=target_scaling)
