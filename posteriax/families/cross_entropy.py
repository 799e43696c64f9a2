"""E_q[-log p(w)] for Gaussian q in closed form; subtracting the entropy of q gives KL(q || p).

    Normal(m, s):    ((mu - m)^2 + sigma^2) / (2 s^2) + log s + 1/2 log 2 pi
    ARD:             the same for m = 0, at the best s^2 = mu^2 + sigma^2:   1/2 log(2 pi (mu^2 + sigma^2)) + 1/2
    log-uniform:     E log|w|, up to the constant that lets the KL vanish as alpha = sigma^2 / mu^2 grows

Only marginal means and variances enter, so this holds for correlated Gaussians too. (Log-uniform: Molchanov et al.
2017; ARD: Kharitonov et al. 2018)
"""

import math

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from posteriax.priors import ARDPrior, LogUniformPrior

LOG_UNIFORM = (0.63576, 1.87320, 1.48695)
TINY = 1e-16  # keeps the log of a zero mean finite


def cross_entropy(prior: dist.Distribution, mean: jax.Array, variance: jax.Array) -> jax.Array | None:
    """E_q[-log p(w)], summed over the entries; None if there is no closed form.

    >>> float(cross_entropy(dist.Normal(0.0, 1.0), jnp.zeros(1), jnp.ones(1)))  # the entropy of N(0, 1)
    1.418...
    """
    base = prior.base_dist if isinstance(prior, dist.ExpandedDistribution) else prior
    if isinstance(base, dist.Normal):
        quadratic = (variance + jnp.square(mean - base.loc)) / (2 * jnp.square(base.scale))
        return (quadratic + jnp.log(base.scale) + 0.5 * math.log(2 * math.pi)).sum()
    if isinstance(base, ARDPrior):
        return (0.5 * jnp.log(jnp.square(mean) + variance + TINY) + 0.5 * math.log(2 * math.pi * math.e)).sum()
    if isinstance(base, LogUniformPrior):
        log_variance = jnp.log(variance + TINY)
        kl = log_uniform_kl(log_variance - jnp.log(jnp.square(mean) + TINY))
        return (kl + 0.5 * log_variance + 0.5 * math.log(2 * math.pi * math.e)).sum()
    return None


def cross_entropy_note(prior: dist.Distribution) -> str:
    """How E_q[-log p] is estimated; empty if it has a closed form."""
    base = prior.base_dist if isinstance(prior, dist.ExpandedDistribution) else prior
    if isinstance(base, LogUniformPrior):
        return "KL approximated to within 0.01 nats per weight (log-uniform prior)"
    if isinstance(base, dist.Normal | ARDPrior):
        return ""
    return f"KL estimated with one draw per step (no closed form for {type(base).__name__})"


def log_uniform_kl(log_alpha: jax.Array) -> jax.Array:
    """KL(N(mu, alpha mu^2) || log-uniform) = k1 - k1 sigmoid(k2 + k3 log alpha) + 1/2 log(1 + 1/alpha).

    It decreases to 0 as alpha grows. (Neklyudov et al. 2018, eq. 10, has the wrong sign in the first terms.)

    >>> log_uniform_kl(jnp.array([-4.0, 0.0, 5.0])).round(3).tolist()
    [2.634..., 0.43..., 0.003...]
    """
    k1, k2, k3 = LOG_UNIFORM
    return k1 * jax.nn.sigmoid(-(k2 + k3 * log_alpha)) + 0.5 * jax.nn.softplus(-log_alpha)


def ard_kl(log_alpha: jax.Array) -> jax.Array:
    """KL(N(mu, alpha mu^2) || N(0, s^2)) at the optimal s: 1/2 log(1 + 1/alpha).

    >>> ard_kl(jnp.array([-2.0, 0.0])).round(3).tolist()
    [1.06..., 0.34...]
    """
    return 0.5 * jax.nn.softplus(-log_alpha)
