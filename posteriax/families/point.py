"""A point estimate: no posterior for this leaf, only its most probable value under the prior and the data.

q(w) = delta(w - mu),   "KL" = -log p(mu)   (the delta's infinite constant is left out)
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from posteriax.families.family import Family, Variational
from posteriax.priors import Leaf


@dataclass(frozen=True)
class Point(Family):
    """One value for the leaf, trained under its prior: for biases, embeddings, normalisation scales.

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
