"""Local product matrices: the linear map that a network computes around one input, for every draw of its weights.

    P(x, w) = dy / dx        piecewise-linear networks:  W_L D_(L-1) W_(L-1) ... D_1 W_1,   y = P x + offset

D holds the slopes of the activations. P is the Jacobian, so this works for any network; the offset is 0 for
piecewise-linear networks without biases. (Farquhar et al. 2020, section 4)
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteriax._internal.checks import as_key, check_count, check_inputs
from posteriax._internal.memory import PRODUCT_MATRIX_BYTES
from posteriax._internal.running_moments import mean_and_covariance
from posteriax.analysis.activation_patterns import activation_pattern
from posteriax.analysis.chosen_leaves import as_bytes, check_size
from posteriax.analysis.draw_chunks import chunks_of_draws
from posteriax.analysis.product_matrix import SMALLER, ProductMatrix
from posteriax.posterior import Posterior
from posteriax.problem import Problem


@dataclass(frozen=True, eq=False)
class LocalProductMatrix:
    """One matrix for every draw.

    Args:
        matrices: (draws, outputs, inputs), with inputs and outputs raveled.
        offsets: y - P x, (draws, outputs): the contribution of biases and curved activations.
        patterns: which activations were on, (draws, activations); empty if the network has no kinks.
    """

    matrices: np.ndarray
    offsets: np.ndarray
    patterns: np.ndarray

    @property
    def moments(self) -> ProductMatrix:
        """Mean and covariance over the draws.

        Raises:
            ValueError: if the covariance is too large.
        """
        draws, outputs, inputs = self.matrices.shape
        check_size(f"the covariance of {outputs} x {inputs} entries", outputs * inputs, SMALLER)
        mean, covariance = mean_and_covariance([self.matrices])
        return ProductMatrix(mean, covariance.reshape((outputs, inputs) * 2), draws)

    @property
    def distinct_patterns(self) -> int:
        """The number of different linear pieces that this input falls on, over draws."""
        return len(np.unique(np.packbits(self.patterns, axis=1), axis=0)) if self.patterns.size else 1

    @property
    def active_share(self) -> np.ndarray:
        """The share of draws in which each activation was on."""
        return self.patterns.mean(axis=0)

    def plot(self, axis: Any = None, *, limit: float = 1.0) -> Any:
        """A heat map of the correlations between entries; returns its figure."""
        return self.moments.plot(axis, limit=limit)


def local_product_matrix(posterior: Posterior, x: Any, draws: int = 1000, *, key: Any = 0) -> LocalProductMatrix:
    """The local product matrix at one input, for draws of a posterior.

    Args:
        posterior: from any method; the network runs as in prediction, without its own dropout.
        x: one example, without an axis of examples.
        draws: number of draws; at most those stored.
        key: for the draws.

    >>> import equinox as eqx, jax, posteriax as px
    >>> from posteriax import families as q
    >>> (x, y), _ = px.data.two_moons()
    >>> net = eqx.nn.MLP(2, 2, 8, 2, use_bias=False, use_final_bias=False, key=jax.random.key(0))
    >>> posterior = px.fit(px.Problem(net, px.Categorical()), (x, y), px.VI(q.Normal()), steps=10, key=0)
    >>> local = px.analysis.local_product_matrix(posterior, x[0], draws=50)
    >>> local.matrices.shape, local.patterns.shape, bool(abs(local.offsets).max() < 1e-5)
    ((50, 2, 2), (50, 16), True)
    """
    x = jax.tree.map(lambda a: jnp.asarray(a[0]), check_inputs(jax.tree.map(lambda a: np.asarray(a)[None], x)))
    if not (isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jnp.floating)):
        raise TypeError("x must be one array of real numbers to have a Jacobian")
    key, total = as_key(key), min(check_count("draws", draws), posterior.support or draws)
    outputs = math.prod(posterior.problem.output_spec(x[None]).shape)
    needed = 4 * total * outputs * x.size
    if needed > PRODUCT_MATRIX_BYTES:
        raise ValueError(
            f"{total:,} matrices of {outputs:,} x {x.size:,} would take {as_bytes(needed)} (limit "
            f"{as_bytes(PRODUCT_MATRIX_BYTES)}): use fewer draws"
        )
    parts = [_local(posterior.problem, x, some.network) for some in chunks_of_draws(posterior, key, total)]
    return LocalProductMatrix(*(np.concatenate([np.asarray(part[i]) for part in parts]) for i in range(3)))


@partial(jax.jit, static_argnums=0)
def _local(problem: Problem, x: jax.Array, params: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    def one(own: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
        def function(flat: jax.Array) -> jax.Array:
            return problem.outputs(own, flat.reshape(1, *x.shape)).reshape(-1)

        flat = x.reshape(-1)
        jacobian = jax.jacrev(function)(flat)
        offset = function(flat) - jnp.matmul(jacobian, flat, precision="highest")
        return jacobian, offset, activation_pattern(function, flat)

    return jax.vmap(one)(params)
