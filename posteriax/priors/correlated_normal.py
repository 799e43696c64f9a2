"""A Gaussian for one leaf with correlated inputs, the same for each output unit.

    w_unit ~ N(0, C),   C = directions diag(variances) directions'

The symmetric roots of C and its inverse come from an eigendecomposition in double precision, so that nothing is
inverted in single precision:   whiten(w) = C^-1/2 w,   unwhiten(z) = C^1/2 z,   -log p(w) = |whiten(w)|^2 / 2 + const
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist


class CorrelatedNormal(dist.Distribution):
    """Independent N(0, C) for the incoming weights of each output unit; an event is the whole leaf.

    Args:
        variances: the d eigenvalues of C, all positive.
        directions: its eigenvectors, the columns of a (d, d) matrix.
        shape: of the leaf.
        order: the axes of the leaf: outputs first, then inputs in the order of C.

    >>> prior = CorrelatedNormal(np.array([4.0, 1.0]), np.eye(2), shape=(3, 2), order=(0, 1))
    >>> prior.variance[0].tolist()
    [4.0, 1.0]
    >>> prior.whiten(jnp.ones((3, 2)))[0].tolist()
    [0.5, 1.0]
    """

    pytree_data_fields = ("root", "inverse_root", "marginals")
    pytree_aux_fields = ("order", "half_log_determinant")
    reparametrized_params = ()

    def __init__(self, variances: np.ndarray, directions: np.ndarray, shape: tuple[int, ...], order: tuple[int, ...]):
        scales = np.sqrt(np.asarray(variances, np.float64))
        self.root = (directions * scales) @ directions.T
        self.inverse_root = (directions / scales) @ directions.T
        self.marginals = np.square(directions) @ np.square(scales)
        self.order = order
        self.half_log_determinant = float(np.log(scales).sum())
        super().__init__(event_shape=shape)

    @property
    def support(self) -> Any:
        return dist.constraints.independent(dist.constraints.real, len(self.event_shape))

    def log_prob(self, value: jax.Array) -> jax.Array:
        size = math.prod(self.event_shape)
        constant = size // self.marginals.size * self.half_log_determinant + 0.5 * size * math.log(2 * math.pi)
        axes = tuple(range(-len(self.event_shape), 0))
        return -0.5 * jnp.square(self.whiten(value)).sum(axis=axes) - constant

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        return self.unwhiten(jax.random.normal(key, (*sample_shape, *self.event_shape)))

    @property
    def mean(self) -> jax.Array:
        return jnp.zeros(self.event_shape)

    @property
    def variance(self) -> jax.Array:
        units = math.prod(self.event_shape) // self.marginals.size
        rows = jnp.broadcast_to(self.marginals, (units, self.marginals.size))
        return self._leaf(jnp.asarray(rows, jnp.zeros(()).dtype), ())

    def whiten(self, w: jax.Array) -> jax.Array:
        """C^-1/2 w for each unit: independent standard normals if w is a draw. Leading axes are allowed.

        The root is symmetric, so whiten(noise) is also a momentum with mass C^-1.
        """
        return self._apply(self.inverse_root, w)

    def unwhiten(self, z: jax.Array) -> jax.Array:
        """C^1/2 z for each unit, the inverse of `whiten`."""
        return self._apply(self.root, z)

    def _apply(self, matrix: Any, leaf: jax.Array) -> jax.Array:
        leading = leaf.shape[: leaf.ndim - len(self.event_shape)]
        axes = (*range(len(leading)), *(len(leading) + axis for axis in self.order))
        dtype = jnp.promote_types(leaf.dtype, jnp.float32)
        rows = leaf.astype(dtype).transpose(axes).reshape(*leading, -1, matrix.shape[0])
        # C spans many orders of magnitude: reduced-precision products on accelerators would lose the small ones
        product = jnp.matmul(rows, jnp.asarray(matrix, dtype), precision=jax.lax.Precision.HIGHEST)
        return self._leaf(product, leading)

    def _leaf(self, rows: jax.Array, leading: tuple[int, ...]) -> jax.Array:
        """The leaf whose units are these rows."""
        ordered = rows.reshape(*leading, *(self.event_shape[axis] for axis in self.order))
        back = np.argsort(self.order) + len(leading)
        return ordered.transpose(*range(len(leading)), *(int(axis) for axis in back))
