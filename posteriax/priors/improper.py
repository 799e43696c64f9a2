"""Priors without a density: they only exist as a term of Gaussian variational objectives.

    E_q[-log p], q = N(mu, sigma^2), alpha = sigma^2 / mu^2:
    ARD:             1/2 log(2 pi (mu^2 + sigma^2)) + 1/2, that of N(0, s^2) at the optimal s^2 = mu^2 + sigma^2
    log-uniform:     E log|w|, up to the constant that makes the KL vanish as alpha grows

(Log-uniform: Molchanov et al. 2017; ARD: Kharitonov et al. 2018)
"""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from posteriax.networks.leaf import Leaf
from posteriax.priors.prior import Prior, WithoutDensity

LOG_UNIFORM = (0.63576, 1.87320, 1.48695)
TINY = 1e-16  # keeps the log of a zero mean finite


@dataclass(frozen=True)
class LogUniform(Prior):
    """p(w) proportional to 1 / |w|: all orders of magnitude are equally likely. Improper, so only for VI.

    It favours noise: the KL of N(mu, alpha mu^2) decreases to 0 as alpha grows, and is 0 for a zero-mean Gaussian.

    >>> from posteriax.priors.prior import has_density
    >>> has_density(LogUniform().distribution(Leaf("w", (3,))))
    False
    """

    def distribution(self, leaf: Leaf) -> dist.Distribution:
        return LogUniformPrior()


@dataclass(frozen=True)
class ARD(Prior):
    """N(0, s_ij^2) with the optimal scale for each weight (automatic relevance determination). Only for VI.

    >>> from posteriax.priors.prior import has_density
    >>> has_density(ARD().distribution(Leaf("w", (3,))))
    False
    """

    def distribution(self, leaf: Leaf) -> dist.Distribution:
        return ARDPrior()


class LogUniformPrior(WithoutDensity):
    """The distribution of :class:`LogUniform`."""

    cross_entropy_note = "KL approximated to within 0.01 nats per weight (log-uniform prior)"

    def gaussian_cross_entropy(self, mean: jax.Array, variance: jax.Array) -> jax.Array:
        log_variance = jnp.log(variance + TINY)
        kl = log_uniform_kl(log_variance - jnp.log(jnp.square(mean) + TINY))
        return (kl + 0.5 * log_variance + 0.5 * math.log(2 * math.pi * math.e)).sum()


class ARDPrior(WithoutDensity):
    """The distribution of :class:`ARD`."""

    cross_entropy_note = ""

    def gaussian_cross_entropy(self, mean: jax.Array, variance: jax.Array) -> jax.Array:
        return (0.5 * jnp.log(jnp.square(mean) + variance + TINY) + 0.5 * math.log(2 * math.pi * math.e)).sum()


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
