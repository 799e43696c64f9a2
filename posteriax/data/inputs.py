"""Preprocessing by the network itself, in training and in prediction: ``px.network(net, inputs=...)``."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

BLOCK = 2**24  # values measured at a time


@dataclass(frozen=True)
class Normalise:
    """(x - mean) / std for each channel, in floating point; images may stay in memory as bytes, a quarter of the size.

    Args:
        mean: of each channel, in the units of x (0 to 255 for bytes), or one number.
        std: likewise.

    >>> import equinox as eqx, posteriax as px
    >>> x = np.array([[0, 100], [200, 100]], np.uint8)
    >>> Normalise(mean=100.0, std=50.0)(x).tolist()
    [[-2.0, 0.0], [2.0, 0.0]]
    >>> net = px.network(eqx.nn.Linear(2, 3, key=jax.random.key(0)), inputs=Normalise(100.0, 50.0))
    >>> net.apply(net.params, x).shape
    (2, 3)
    """

    mean: float | tuple[float, ...]
    std: float | tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            given = np.asarray(getattr(self, name), float)
            if given.ndim > 1 or not np.isfinite(given).all() or (name == "std" and (given <= 0).any()):
                kind = "positive numbers" if name == "std" else "numbers"
                raise ValueError(f"{name} must be {kind}, one or one for each channel, got {getattr(self, name)!r}")
            object.__setattr__(self, name, tuple(given.tolist()) if given.ndim else float(given))

    @classmethod
    def of(cls, x: np.ndarray) -> "Normalise":
        """The mean and standard deviation of training images: of each channel of (N, height, width, channels), or of
        all values of (N, height, width).

        >>> Normalise.of(np.array([[[0, 2], [4, 6]]], np.uint8)).mean
        3.0
        """
        x = np.asarray(x)
        if x.ndim not in (3, 4):
            raise ValueError(f"x must be images (N, height, width, channels) or (N, height, width), got {x.shape}")
        axes = (0, 1, 2)
        size = x[0, ..., :1].size if x.ndim == 4 else x[0].size
        rows = max(1, BLOCK // x[0].size)
        blocks = [x[i : i + rows] for i in range(0, len(x), rows)]
        count = len(x) * size
        mean = sum(block.sum(axis=axes, dtype=np.float64) for block in blocks) / count
        squares = sum(np.square(block - mean).sum(axis=axes) for block in blocks)
        std = np.sqrt(squares / count)
        std = np.where(std > 0, std, 1.0)
        return cls(tuple(mean), tuple(std)) if x.ndim == 4 else cls(float(mean), float(std))

    def __call__(self, x: ArrayLike) -> jax.Array:
        x = jnp.asarray(x)
        dtype = x.dtype if jnp.issubdtype(x.dtype, jnp.floating) else jnp.float32
        mean, std = (np.asarray(a, dtype) for a in (self.mean, self.std))
        if mean.size > 1 and x.shape[-1] != mean.size:
            raise ValueError(f"Normalise has {mean.size} channels, but x has {x.shape[-1]} in its last axis, {x.shape}")
        return (x.astype(dtype) - mean) / std


def channels_first(x: ArrayLike) -> jax.Array:
    """Images (N, height, width, channels) or (N, height, width) as (N, channels, height, width).

    For networks that take their channels first, such as those of ``eqx.nn.Conv2d``; the data stay as they are.

    >>> import equinox as eqx, posteriax as px
    >>> net = px.network(eqx.nn.Conv2d(3, 8, 3, key=jax.random.key(0)), inputs=channels_first)
    >>> net.apply(net.params, jnp.ones((5, 32, 32, 3))).shape
    (5, 8, 30, 30)
    """
    x = jnp.asarray(x)
    if x.ndim not in (3, 4):
        raise ValueError(
            f"channels_first takes images (N, height, width, channels) or (N, height, width), got {x.shape}"
        )
    return x[:, None] if x.ndim == 3 else jnp.moveaxis(x, -1, 1)
