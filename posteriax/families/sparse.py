"""A few random weights; all others fixed or zero.

    w_i ~ N(mu_i, sigma_i^2) for the listed entries,   w_i = rest_i or 0 for all others

Not trained: :func:`px.analysis.sparse_ensemble` builds it from a trained posterior.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from posteriax.families.family import Family, Variational
from posteriax.networks.leaf import Leaf


@dataclass(frozen=True)
class SparseNormal(Family):
    """Independent Gaussians at some entries of a leaf.

    Its parameters are "index", positions in the raveled leaf (those beyond its end are unused), "mean" and "log_scale"
    of each, and "rest", the values of the other entries, unless they are zero.

    Args:
        shape: of the leaf.

    >>> from posteriax import families as q
    >>> entry = {"index": jnp.array([3]), "mean": jnp.array([5.0]), "log_scale": jnp.array([0.0])}
    >>> q.SparseNormal((2, 2)).mean(entry).tolist()
    [[0.0, 0.0], [0.0, 5.0]]
    """

    shape: tuple[int, ...]
    independent = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))

    def _fill(self, variational: Variational, values: jax.Array, rest: jax.Array | None) -> jax.Array:
        flat = jnp.zeros(self.shape, values.dtype).reshape(-1) if rest is None else rest.reshape(-1)
        return flat.at[variational["index"]].set(values, mode="drop").reshape(self.shape)

    def sample(self, variational: Variational, key: jax.Array) -> jax.Array:
        mean = variational["mean"]
        drawn = mean + jnp.exp(variational["log_scale"]) * jax.random.normal(key, mean.shape, mean.dtype)
        return self._fill(variational, drawn, variational.get("rest"))

    def mean(self, variational: Variational) -> jax.Array:
        return self._fill(variational, variational["mean"], variational.get("rest"))

    def variance(self, variational: Variational) -> jax.Array:
        return self._fill(variational, jnp.exp(2 * variational["log_scale"]), None)

    def init(self, key: jax.Array, value: jax.Array, leaf: Leaf) -> Variational:
        raise TypeError("q.SparseNormal is not trained: px.analysis.sparse_ensemble builds it from a trained posterior")

    def kl(self, variational: Variational, prior: dist.Distribution, key: jax.Array) -> jax.Array:
        raise TypeError("q.SparseNormal has fixed weights, so it has no KL to a prior with a density")

    def entropy(self, variational: Variational) -> jax.Array:
        raise TypeError("q.SparseNormal has fixed weights, so it has no entropy")
