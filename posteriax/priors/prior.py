"""The interface of a prior, and NumPyro distributions as priors."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
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
    if hasattr(value, "distribution"):  # anything with this method works, but only a Prior can be saved
        return value  # type: ignore[return-value]
    raise TypeError(
        f"{what} must be one of posteriax.priors (such as p.Normal(scale=0.3)), a NumPyro distribution, or a "
        f"dictionary of them by path, got {type(value).__name__}"
    )
