"""Data sets that need no files: simulated, shipped with the package, or from scikit-learn."""

from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np

from posteriax.data.sets.data_set import DataSet, Scaling, register

Split = tuple[np.ndarray, np.ndarray]  # (x, y)


def two_moons(train: int = 500, test: int = 500, noise: float = 0.2, seed: int = 0) -> tuple[Split, Split]:
    """Points (N, 2) of two interleaved half circles with Gaussian noise, and their labels 0 and 1: the simplest data on
    which predictive uncertainty is easy to see.

    Args:
        train, test: number of points.
        noise: standard deviation of the noise; the circles have radius 1.
        seed: for NumPy's generator.

    Returns:
        ``(x, y), (x_test, y_test)``.

    >>> (x, y), (x_test, y_test) = two_moons(train=100, test=50)
    >>> x.shape, y.shape, x_test.shape
    ((100, 2), (100,), (50, 2))
    """
    rng = np.random.default_rng(seed)
    n = train + test
    y = rng.permutation(np.arange(n) % 2).astype(np.int32)
    angle = rng.uniform(0.0, np.pi, n)
    upper = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    lower = np.stack([1.0 - np.cos(angle), 0.5 - np.sin(angle)], axis=1)
    x = np.where(y[:, None] == 0, upper, lower) - np.array([0.5, 0.25])
    x = (x + rng.normal(0.0, noise, x.shape)).astype(np.float32)
    return (x[:train], y[:train]), (x[train:], y[train:])


def curve_with_gap(train: int = 80, test: int = 1000, noise: float = 0.15, seed: int = 0) -> tuple[Split, Split]:
    """Points of the curve sin(2.5 x) + 0.3 x with Gaussian noise; training points leave a gap in which to be unsure.

    Training inputs are in [-2, -0.5] and [0.7, 2], half of them in each; test inputs are everywhere in [-2, 2].

    Args:
        train, test: number of points.
        noise: standard deviation of the noise.
        seed: for NumPy's generator.

    Returns:
        ``(x, y), (x_test, y_test)``, with x of shape (N, 1) and y of shape (N,).

    >>> (x, y), (x_test, y_test) = curve_with_gap()
    >>> x.shape, y.shape, bool(((x > -0.5) & (x < 0.7)).any()), x_test.shape
    ((80, 1), (80,), False, (1000, 1))
    """
    rng = np.random.default_rng(seed)
    left = train // 2

    def split(x: np.ndarray) -> Split:
        y = np.sin(2.5 * x) + 0.3 * x + rng.normal(0.0, noise, len(x))
        return x[:, None].astype(np.float32), y.astype(np.float32)

    sides = rng.uniform(-2.0, -0.5, left), rng.uniform(0.7, 2.0, train - left)
    return split(np.concatenate(sides)), split(rng.uniform(-2.0, 2.0, test))


def fashion_small() -> tuple[Split, Split]:
    """3,000 training and 1,000 test images, the first of each class, (N, 28, 28) in [0, 1], and labels 0 to 9.

    T-shirt, trousers, pullover, dress, coat, sandal, shirt, trainer, bag, ankle boot. A part of Fashion-MNIST
    (Xiao et al. 2017; MIT licence, fashion_small.LICENSE).

    Returns:
        ``(x, y), (x_test, y_test)``.

    >>> (x, y), (x_test, y_test) = fashion_small()
    >>> x.shape, y.shape, x_test.shape
    ((3000, 28, 28), (3000,), (1000, 28, 28))
    """
    with (
        as_file(files("posteriax.data") / "fashion_small.npz") as path,
        np.load(path, allow_pickle=False) as stored,
    ):
        x, y, x_test, y_test = (stored[name] for name in ("x_train", "y_train", "x_test", "y_test"))
    scale = np.float32(1 / 255)
    return (x * scale, y.astype(np.int32)), (x_test * scale, y_test.astype(np.int32))


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
        members = rng.permutation(np.flatnonzero(y == label))
        test[members[: round(len(members) / 5)]] = True
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


@register("curve_with_gap")
def load_curve_with_gap(
    name: str,
    folder: str | Path | None = None,
    *,
    train: int = 80,
    test: int = 1000,
    noise: float = 0.15,
    seed: int = 0,
) -> DataSet:
    """Options are those of :func:`posteriax.data.curve_with_gap`."""
    return DataSet(name, *curve_with_gap(train, test, noise, seed), (), ("x",))
