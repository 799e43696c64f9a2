"""A point estimate: the most probable value of a leaf instead of a posterior.

q(w) = delta(w - mu),   "KL" = -log p(mu)   (without the infinite constant of the delta)
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from posteriax.families.family import Family, Variational
from posteriax.networks.leaf import Leaf


@dataclass(frozen=True)
class Point(Family):
    """A point estimate of the leaf under its prior: for biases, embeddings, normalisation scales.

    >>> from posteriax import families as q
    >>> {"**": q.Normal(), "**/bias": q.Point()}
    {'**': Normal(scale=0.01), '**/bias': Point()}
    """

    random = False
    independent = True

    def init(self, key: jax.Array, value: jax.Array, leaf: Leaf) -> Variational:
        return {"value": value}

    def sample(self, variational: Variational, key: jax.Array) -> jax.Array:
        return variational["value"]

    def mean(self, variational: Variational) -> jax.Array:
        return variational["value"]

    def variance(self, variational: Variational) -> jax.Array:
        return jnp.zeros_like(variational["value"])

    def kl(self, variational: Variational, prior: dist.Distribution, key: jax.Array) -> jax.Array:
        return -prior.log_prob(variational["value"]).sum()

    def entropy(self, variational: Variational) -> jax.Array:
        return jnp.zeros(())
