"""Priors without a density: they only exist as a term of Gaussian variational objectives."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from posteriax.priors.leaf import Leaf
from posteriax.priors.prior import Prior


@dataclass(frozen=True)
class LogUniform(Prior):
    """p(w) proportional to 1 / |w|: all orders of magnitude are equally likely. Improper, so only for VI.

    It favours noise: the KL of N(mu, alpha mu^2) decreases to 0 as alpha grows, and is 0 for a zero-mean Gaussian.

    >>> has_density(LogUniform().distribution(Leaf("w", (3,))))
    False
    """

    def distribution(self, leaf: Leaf) -> dist.Distribution:
        return LogUniformPrior()


@dataclass(frozen=True)
class ARD(Prior):
    """N(0, s_ij^2) with the optimal scale for each weight (automatic relevance determination). Only for VI.

    >>> has_density(ARD().distribution(Leaf("w", (3,))))
    False
    """

    def distribution(self, leaf: Leaf) -> dist.Distribution:
        return ARDPrior()


class _WithoutDensity(dist.Distribution):
    """A prior that only exists as a term of Gaussian variational objectives."""

    support = dist.constraints.real

    def log_prob(self, value: jax.Array) -> jax.Array:
        raise ValueError(f"{type(self).__name__} has no density: it only works with VI and Gaussian families")


class LogUniformPrior(_WithoutDensity):
    """The distribution of :class:`LogUniform`."""


class ARDPrior(_WithoutDensity):
    """The distribution of :class:`ARD`."""


def has_density(prior: dist.Distribution) -> bool:
    """Whether a prior has a density, rather than being a term of Gaussian variational objectives only.

    >>> has_density(dist.Normal(0.0, 1.0))
    True
    """
    return not isinstance(prior, _WithoutDensity)


def typical_scale(distribution: dist.Distribution) -> float:
    """The standard deviation if it is finite, otherwise half the width of the central 68 % interval.

    Samplers use it as their unit of length.
    """
    if not has_density(distribution):
        return 1.0  # samplers refuse it
    try:
        scale = float(np.sqrt(np.mean(distribution.variance)))
    except NotImplementedError:
        scale = math.inf
    if not math.isfinite(scale):
        draws = distribution.sample(jax.random.key(0), (4096,))
        low, high = jnp.quantile(draws, jnp.array([0.16, 0.84]))
        scale = float(high - low) / 2
    return scale
