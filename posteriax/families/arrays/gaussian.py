"""A leaf whose entries are independent Gaussians, as an array type."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Primitive
from jax.typing import ArrayLike, DTypeLike

from posteriax.families.arrays.noise import normal_and_signs, signs, standard_normal
from posteriax.families.arrays.random_array import Contraction, RandomArray

TINY = 1e-30  # added to variances: far below them in any unit, but keeps the slope of the square root finite


class VarianceFactors(eqx.Module):
    """Low-rank variances: left right', as a matrix of the first `split` axes by the others."""

    left: jax.Array
    right: jax.Array
    split: int = eqx.field(static=True)

    def around(self, outputs: list[int], shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array] | None:
        """(inner, outer): inner has the rank in place of the output axis; None if the axes cannot be separated."""
        rank = self.left.shape[1]
        if outputs == [len(shape) - 1] and self.split == len(shape) - 1:
            return self.left.reshape(*shape[:-1], rank), self.right
        if outputs == [0] and self.split == 1:
            return self.right.T.reshape(rank, *shape[1:]), self.left
        return None


class GaussianArray(RandomArray):
    """Behaves as one draw of mean + scale * noise.

    Args:
        mean, scale: arrays of the same shape, with length 1 along broadcast axes.
        keys: for the noise, and for flipout's two sets of signs.
        estimator: "local" or "flipout"; see :mod:`posteriax.families.arrays.estimators`.
        example_axis: the axis of examples in the array it will be multiplied with.
        broadcast_shape: the shape that the rest of the program sees.
        factors: a factorisation of the variances, if products with that are cheaper.
        compute: the dtype that the rest of the program sees, if it is not that of the mean. Draws are made in the
            mean's own precision: in bfloat16, noise below 1/256 of a weight would be rounded away.
    """

    mean: jax.Array
    scale: jax.Array
    keys: jax.Array
    estimator: str = eqx.field(static=True)
    example_axis: int | None = eqx.field(static=True)
    broadcast_shape: tuple[int, ...] = eqx.field(static=True)
    factors: VarianceFactors | None = None
    compute: DTypeLike | None = eqx.field(static=True, default=None)

    def aval(self) -> jax.core.ShapedArray:
        return jax.core.ShapedArray(self.broadcast_shape, self.compute or self.mean.dtype)

    def _seen(self, array: jax.Array) -> jax.Array:
        """An array of the mean's precision as the rest of the program sees it."""
        return array.astype(self.compute or array.dtype)

    def noise(self) -> jax.Array:
        """One draw minus the mean, before broadcasting."""
        return self.scale * standard_normal(self.keys[0], self.mean.shape, self.mean.dtype, unless_nan=self.mean)

    def materialise(self) -> jax.Array:
        return jnp.broadcast_to(self._seen(self.mean + self.noise()), self.broadcast_shape)

    @property
    def is_broadcast(self) -> bool:
        return self.mean.shape != self.broadcast_shape

    def contract(self, contraction: Contraction) -> jax.Array:
        apply, x = contraction.apply, contraction.x
        if self.is_broadcast:
            return super().contract(contraction)
        mean = apply(x, self._seen(self.mean))
        if self.estimator == "local":
            variance = self._contract_variance(contraction)
            scale = jnp.sqrt(variance + TINY)  # finite slope even if an example is all zeros
            return mean + scale * standard_normal(self.keys[0], mean.shape, mean.dtype, unless_nan=mean)
        if contraction.examples is None:
            return super().contract(contraction)
        example_in, example_out = contraction.examples
        kept_in, kept_out = {example_in, *contraction.inputs.values()}, {example_out, *contraction.outputs.values()}
        in_shape = [n if axis in kept_in else 1 for axis, n in enumerate(jnp.shape(x))]
        out_shape = [n if axis in kept_out else 1 for axis, n in enumerate(mean.shape)]
        perturbation = apply(x * signs(self.keys[1], in_shape, mean.dtype), self._seen(self.noise()))
        return mean + perturbation * signs(self.keys[2], out_shape, mean.dtype)

    def _contract_variance(self, contraction: Contraction) -> jax.Array:
        squares, shape = jnp.square(contraction.x), self.mean.shape
        parts = None
        if self.factors is not None and contraction.groups == 1:
            parts = self.factors.around(list(contraction.outputs), shape)
        if parts is None:
            return contraction.apply(squares, self._seen(jnp.square(self.scale)))
        inner, outer = map(self._seen, parts)
        (axis,) = contraction.outputs.values()
        return jnp.moveaxis(jnp.tensordot(contraction.apply(squares, inner), outer, (axis, 1)), -1, axis)

    def move(self, primitive: Primitive, params: dict[str, Any]) -> jax.Array | RandomArray:
        if primitive is lax.convert_element_type_p:
            return dataclasses.replace(self, compute=jnp.dtype(params["new_dtype"]))
        # entries are independent, so any rearrangement is a Gaussian array too
        if self.is_broadcast:
            return super().move(primitive, params)
        mean, scale = primitive.bind(self.mean, **params), primitive.bind(self.scale, **params)
        factors = None
        if self.factors is not None and primitive is lax.transpose_p and mean.ndim == 2:
            factors = VarianceFactors(self.factors.right, self.factors.left, split=1)
        return dataclasses.replace(self, mean=mean, scale=scale, broadcast_shape=mean.shape, factors=factors)

    def broadcast(self, primitive: Primitive, params: dict[str, Any]) -> jax.Array | RandomArray:
        if self.is_broadcast:
            return super().broadcast(primitive, params)
        compact = [1] * len(params["shape"])
        for axis, target in enumerate(params["broadcast_dimensions"]):
            compact[target] = self.shape[axis]
        return dataclasses.replace(
            self,
            mean=self.mean.reshape(compact),
            scale=self.scale.reshape(compact),
            broadcast_shape=tuple(params["shape"]),
            factors=None,
        )

    def look_up(self, primitive: Primitive, indices: ArrayLike, params: dict[str, Any]) -> jax.Array:
        if self.is_broadcast:
            return super().look_up(primitive, indices, params)
        mean = primitive.bind(self._seen(self.mean), indices, **params)
        row_axes = params["dimension_numbers"].offset_dims  # where a looked-up row ends up in the output
        kept = [a for a in range(mean.ndim) if a not in row_axes]  # the output's axes that come from the indices'
        axis = kept[self.example_axis]  # type: ignore[index]
        if self.estimator == "flipout":
            noise = primitive.bind(self._seen(self.noise()), indices, **params)
            shape = [n if a in (axis, row_axes[-1]) else 1 for a, n in enumerate(mean.shape)]
            return mean + noise * signs(self.keys[1], shape, mean.dtype)
        # noise is keyed by (example, row): a token that occurs twice in an example gets the same draw, and rows that
        # are not looked up are never drawn
        scale = primitive.bind(self._seen(self.scale), indices, **params)
        rows = jnp.clip(jnp.asarray(indices)[..., 0], 0, self.shape[0] - 1)
        examples = lax.broadcasted_iota(jnp.int32, rows.shape, self.example_axis or 0)

        def draw(example: jax.Array, row: jax.Array) -> jax.Array:
            key = jax.random.fold_in(jax.random.fold_in(self.keys[0], example), row)
            wide = jnp.promote_types(mean.dtype, jnp.float32)
            return jax.random.normal(key, (self.shape[1],), wide).astype(mean.dtype)

        noise = jax.vmap(draw)(examples.reshape(-1), rows.reshape(-1))
        noise = noise.reshape(*rows.shape, *[1] * (len(row_axes) - 1), self.shape[1])
        return mean + scale * jnp.moveaxis(noise, range(-len(row_axes), 0), row_axes)

    def add_to(self, x: ArrayLike) -> jax.Array:
        axis = self.example_axis
        if axis is None or self.mean.ndim == 0 or self.mean.shape[axis] != 1:
            return super().add_to(x)
        shape = list(self.mean.shape)
        shape[axis] = jnp.shape(x)[axis]  # draws differ between examples only
        if self.estimator == "local":
            noise = self.scale * standard_normal(self.keys[0], shape, self.mean.dtype, unless_nan=self.mean)
        else:
            normal, flips = normal_and_signs(
                self.keys[0], self.mean.shape, shape, self.mean.dtype, unless_nan=self.mean
            )
            noise = self.scale * normal * flips
        return jnp.add(x, self._seen(self.mean + noise))
