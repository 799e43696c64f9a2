"""A leaf whose entries are independent Gaussians, as an array type."""

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import quax

from posteriax.arrays.noise import standard_normal


class GaussianArray(quax.ArrayValue):
    """Behaves as one draw of mean + scale * noise.

    Args:
        mean, scale: arrays of one shape; an axis along which the array was broadcast has length 1 here.
        key: what the draw is made from.
        estimator: "local" or "flipout"; see :mod:`posteriax.arrays.estimators`.
        example_axis: the axis of examples in the array that this one will meet.
        broadcast_shape: the shape that the rest of the program sees.
    """

    mean: jax.Array
    scale: jax.Array
    key: jax.Array
    estimator: str = eqx.field(static=True)
    example_axis: int | None = eqx.field(static=True)
    broadcast_shape: tuple[int, ...] = eqx.field(static=True)

    def aval(self) -> jax.core.ShapedArray:
        return jax.core.ShapedArray(self.broadcast_shape, self.mean.dtype)

    def noise(self) -> jax.Array:
        """One draw less its mean, before broadcasting."""
        return self.scale * standard_normal(self.key, self.mean.shape, self.mean.dtype, unless_nan=self.mean)

    def materialise(self) -> jax.Array:
        return jnp.broadcast_to(self.mean + self.noise(), self.broadcast_shape)

    @property
    def is_broadcast(self) -> bool:
        return self.mean.shape != self.broadcast_shape


def gaussian_array(
    mean: jax.Array, scale: jax.Array, key: jax.Array, estimator: str, example_axis: int | None
) -> GaussianArray:
    return GaussianArray(mean, scale, key, estimator, example_axis, mean.shape)
