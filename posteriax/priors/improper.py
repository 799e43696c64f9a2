"""Priors without a density of their own: they exist as a term of Gaussian variational objectives."""

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
    """p(w) proportional to 1 / |w|: every order of magnitude is as likely. Not normalisable, so only for VI.

    It favours noise: the KL of N(mu, alpha mu^2) falls to 0 as alpha grows, and a zero-mean Gaussian has none at all.

    >>> has_density(LogUniform().distribution(Leaf("w", (3,))))
    False
    """

    def distribution(self, leaf: Leaf) -> dist.Distribution:
        return LogUniformPrior()


@dataclass(frozen=True)
class ARD(Prior):
    """N(0, s_ij^2) with the best scale for every weight (automatic relevance determination). Only for VI.

    >>> has_density(ARD().distribution(Leaf("w", (3,))))
    False
    """

    def distribution(self, leaf: Leaf) -> dist.Distribution:
        return ARDPrior()


class _WithoutDensity(dist.Distribution):
    """A prior that exists only as a term of Gaussian variational objectives."""

    support = dist.constraints.real

    def log_prob(self, value: jax.Array) -> jax.Array:
        raise ValueError(f"{type(self).__name__} has no density: it serves VI with Gaussian families only")


class LogUniformPrior(_WithoutDensity):
    """What :class:`LogUniform` gives a leaf."""


class ARDPrior(_WithoutDensity):
    """What :class:`ARD` gives a leaf."""


def has_density(prior: dist.Distribution) -> bool:
    """Whether a prior is more than a term of Gaussian variational objectives.

    >>> has_density(dist.Normal(0.0, 1.0))
    True
    """
    return not isinstance(prior, _WithoutDensity)


def typical_scale(distribution: dist.Distribution) -> float:
    """The standard deviation where it is finite, otherwise half the width of the middle 68 %.

    Samplers measure lengths in it.
    """
    if not has_density(distribution):
        return 1.0  # no sampler takes it
    try:
        scale = float(np.sqrt(np.mean(distribution.variance)))
    except NotImplementedError:
        scale = math.inf
    if not math.isfinite(scale):
        draws = distribution.sample(jax.random.key(0), (4096,))
        low, high = jnp.quantile(draws, jnp.array([0.16, 0.84]))
        scale = float(high - low) / 2
    return scale
