"""Data sets that need no files: from scikit-learn, or simulated."""

from pathlib import Path
from typing import Any

import numpy as np

from posteriax.data.moons import two_moons
from posteriax.data.sets.data_set import DataSet, Scaling
from posteriax.data.sets.registry import register


@register("iris", "digits")
def load_from_scikit_learn(name: str, folder: str | Path | None = None, *, seed: int = 0) -> DataSet:
    """Iris (Fisher 1936) or the 8 x 8 digits of UCI: a fifth of each class for testing, standardised.

    Neither has an official split; `seed` decides which examples are held out.
    """
    try:
        from sklearn import datasets
    except ImportError as error:
        raise ImportError(f"{name} comes with scikit-learn: pip install 'posteriax[cli]'") from error
    bunch: Any = datasets.load_iris() if name == "iris" else datasets.load_digits()
    x, y = bunch.data.astype(np.float32), bunch.target.astype(np.int32)
    rng = np.random.default_rng(seed)
    test = np.zeros(len(y), bool)
    for label in np.unique(y):
        own = rng.permutation(np.flatnonzero(y == label))
        test[own[: round(len(own) / 5)]] = True
    # digits share one scale: their pixels have the same unit
    scaling = Scaling.of(x[~test], axes=(0,) if name == "iris" else (0, 1))
    x = scaling.apply(x)
    classes, features = tuple(map(str, bunch.target_names)), tuple(map(str, bunch.feature_names))
    return DataSet(name, (x[~test], y[~test]), (x[test], y[test]), classes, features, scaling)


@register("two_moons")
def load_two_moons(
    name: str,
    folder: str | Path | None = None,
    *,
    train: int = 500,
    test: int = 500,
    noise: float = 0.2,
    seed: int = 0,
) -> DataSet:
    """Options are those of :func:`posteriax.data.two_moons`."""
    return DataSet(name, *two_moons(train, test, noise, seed), ("upper", "lower"), ("x1", "x2"))
