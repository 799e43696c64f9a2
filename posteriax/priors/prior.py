"""The contract of a prior, NumPyro distributions as priors, and what methods ask a distribution.

VI asks for a closed-form cross-entropy, samplers for a density, whitening and a unit of length.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from posteriax._internal.settings import Savable, to_plain
from posteriax.networks.leaf import Leaf


class Prior(Savable, ABC, namespace="priors"):
    """A rule that gives each leaf its NumPyro distribution."""

    @abstractmethod
    def distribution(self, leaf: Leaf) -> dist.Distribution:
        """The distribution of the entries of a leaf; its shape must broadcast to the leaf's."""


@runtime_checkable
class GaussianCrossEntropy(Protocol):
    """A distribution that knows E_q[-log p(w)] for Gaussian q, so that VI need not estimate it.

    `cross_entropy_note` says how good the formula is; empty if it is exact.
    """

    cross_entropy_note: str

    def gaussian_cross_entropy(self, mean: jax.Array, variance: jax.Array) -> jax.Array:
        """Summed over the entries, whose marginal means and variances under q are given."""


@runtime_checkable
class Whitening(Protocol):
    """A distribution of correlated weights that can make them independent, so that samplers need not learn it.

    Both maps are linear and symmetric, C^-1/2 and C^1/2 of the covariance C, and allow leading axes.
    """

    def whiten(self, w: jax.Array) -> jax.Array:
        """Independent standard normals, if w is a draw."""

    def unwhiten(self, z: jax.Array) -> jax.Array:
        """The inverse of `whiten`."""


class WithoutDensity(dist.Distribution):
    """A prior that exists only as a term of Gaussian variational objectives."""

    support = dist.constraints.real

    def log_prob(self, value: jax.Array) -> jax.Array:
        raise ValueError(f"{type(self).__name__} has no density: it only works with VI and Gaussian families")


@dataclass(frozen=True)
class Given(Prior):
    """A NumPyro distribution, used as it is."""

    value: dist.Distribution

    def to_plain(self) -> dict[str, Any]:
        return to_plain(self.value)

    def distribution(self, leaf: Leaf) -> dist.Distribution:
        if self.value.event_shape not in ((), leaf.shape):
            raise ValueError(
                f"a prior over events of shape {self.value.event_shape} does not fit the leaf {leaf.path} "
                f"{leaf.shape}: use independent entries, or one distribution over the whole leaf"
            )
        shape = self.value.batch_shape + self.value.event_shape
        try:
            broadcast = jnp.broadcast_shapes(shape, leaf.shape)
        except ValueError:
            broadcast = ()
        if broadcast != leaf.shape:
            raise ValueError(f"prior of shape {shape} does not broadcast to the leaf {leaf.path} {leaf.shape}")
        if not bool(jnp.all(self.value.support(jnp.full(shape, 1e6)) & self.value.support(jnp.full(shape, -1e6)))):
            raise ValueError(f"prior {type(self.value).__name__} is bounded, but weights take any real value")
        return self.value if shape in ((), leaf.shape) else self.value.expand(leaf.shape)


def as_prior(value: object, what: str = "prior") -> Prior:
    """A prior from a posteriax prior or a NumPyro distribution."""
    if isinstance(value, dist.Distribution):
        return Given(value)
    if isinstance(value, type):
        raise TypeError(f"{what} is the class {value.__name__}: give an instance, such as p.Normal(scale=0.3)")
    if hasattr(value, "distribution"):  # anything with this method works, but only a Prior can be saved
        return value  # type: ignore[return-value]
    raise TypeError(
        f"{what} must be one of posteriax.priors (such as p.Normal(scale=0.3)), a NumPyro distribution, or a "
        f"dictionary of them by path, got {type(value).__name__}"
    )


def has_density(prior: dist.Distribution) -> bool:
    """Whether a prior has a density, rather than being a term of Gaussian variational objectives only.

    >>> has_density(dist.Normal(0.0, 1.0))
    True
    """
    return not isinstance(prior, WithoutDensity)


def base_distribution(prior: dist.Distribution) -> dist.Distribution:
    """The prior without its expansion to the shape of a leaf, if it has one."""
    return prior.base_dist if isinstance(prior, dist.ExpandedDistribution) else prior


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
        try:
            draws = distribution.sample(jax.random.key(0), (4096,))
        except NotImplementedError:
            return 1.0  # only a unit of length: samplers adapt to the posterior's scales
        low, high = jnp.quantile(draws, jnp.array([0.16, 0.84]))
        scale = float(high - low) / 2
    return scale
