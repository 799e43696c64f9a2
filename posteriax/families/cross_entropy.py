"""E_q[-log p(w)] for Gaussian q in closed form; subtracting the entropy of q gives KL(q || p).

    Normal(m, s):    ((mu - m)^2 + sigma^2) / (2 s^2) + log s + 1/2 log 2 pi

Other distributions bring their own (:class:`posteriax.priors.GaussianCrossEntropy`). Only marginal means and variances
enter, so this holds for correlated Gaussians too.
"""

import math

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from posteriax.priors import GaussianCrossEntropy


def cross_entropy(prior: dist.Distribution, mean: jax.Array, variance: jax.Array) -> jax.Array | None:
    """E_q[-log p(w)], summed over the entries; None if there is no closed form.

    >>> float(cross_entropy(dist.Normal(0.0, 1.0), jnp.zeros(1), jnp.ones(1)))  # the entropy of N(0, 1)
    1.418...
    """
    base = prior.base_dist if isinstance(prior, dist.ExpandedDistribution) else prior
    if isinstance(base, dist.Normal):
        quadratic = (variance + jnp.square(mean - base.loc)) / (2 * jnp.square(base.scale))
        return (quadratic + jnp.log(base.scale) + 0.5 * math.log(2 * math.pi)).sum()
    return base.gaussian_cross_entropy(mean, variance) if isinstance(base, GaussianCrossEntropy) else None


def cross_entropy_note(prior: dist.Distribution) -> str:
    """How E_q[-log p] is estimated; empty if it has a closed form."""
    base = prior.base_dist if isinstance(prior, dist.ExpandedDistribution) else prior
    if isinstance(base, GaussianCrossEntropy):
        return base.cross_entropy_note
    return (
        ""
        if isinstance(base, dist.Normal)
        else f"KL estimated with one draw per step (no closed form for {type(base).__name__})"
    )
