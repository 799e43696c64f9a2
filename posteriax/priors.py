"""Priors: which distribution each leaf of a network has before the data are seen.

A prior says, for one leaf, which NumPyro distribution its entries come from. Give a problem one prior for all
leaves, or a dictionary by path pattern; any NumPyro distribution that broadcasts against the leaf serves as well.

>>> from posteriax import priors as p
>>> {"**": p.HeNormal(), "**/bias": p.Normal(scale=0.1)}
{'**': HeNormal(gain=2.0, bias_scale=1.0), '**/bias': Normal(scale=0.1, loc=0.0)}
"""

import math
from dataclasses import dataclass
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from posteriax.checks import check_positive
from posteriax.empirical_covariance import EmpCov as EmpCov
from posteriax.leaf import Leaf as Leaf


class Prior(Protocol):
    """A rule that gives each leaf its NumPyro distribution."""

    def distribution(self, leaf: Leaf) -> dist.Distribution: ...


@dataclass(frozen=True)
class Normal:
    """N(loc, scale^2) on every entry.

    >>> Normal(scale=0.3).distribution(Leaf("w", (2, 3))).variance.item()
    0.09...
    """

    scale: float = 1.0
    loc: float = 0.0

    def __post_init__(self) -> None:
        check_positive("scale", self.scale)

    def distribution(self, leaf: Leaf) -> dist.Distribution:
        return dist.Normal(self.loc, self.scale)


@dataclass(frozen=True)
class HeNormal:
    """N(0, gain / fan_in) on weights; N(0, bias_scale^2) on leaves without a fan-in (biases, normalisation scales).

    The fan-in is the number of weights that are summed into one output, as the program uses the leaf: ``in`` for an
    attention kernel (in, heads, dim), 1 for an embedding, of which one row is looked up. ``px.fit`` reads the program;
    a problem by itself goes by the network's convention unless it knows an example, ``px.network(net, example=x)``.

    >>> HeNormal().distribution(Leaf("w", (50, 10))).variance.item()
    0.0...
    """

    gain: float = 2.0
    bias_scale: float = 1.0

    def __post_init__(self) -> None:
        check_positive("gain", self.gain)
        check_positive("bias_scale", self.bias_scale)

    def distribution(self, leaf: Leaf) -> dist.Distribution:
        return dist.Normal(0.0, self.bias_scale if leaf.is_bias else math.sqrt(self.gain / leaf.fan_in))


@dataclass(frozen=True)
class Laplace:
    """Laplace(0, scale): density exp(-|w| / scale) / (2 scale), variance 2 scale^2.

    >>> Laplace(scale=1.0).distribution(Leaf("w", (3,))).variance.item()
    2.0
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        check_positive("scale", self.scale)

    def distribution(self, leaf: Leaf) -> dist.Distribution:
        return dist.Laplace(0.0, self.scale)


@dataclass(frozen=True)
class Logistic:
    """Logistic(0, scale): variance (pi scale)^2 / 3.

    >>> Logistic(scale=1.0).distribution(Leaf("w", (3,))).variance.item()
    3.28...
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        check_positive("scale", self.scale)

    def distribution(self, leaf: Leaf) -> dist.Distribution:
        return dist.Logistic(0.0, self.scale)


@dataclass(frozen=True)
class StudentT:
    """Student-t with `df` degrees of freedom and the given scale; its variance is infinite for df <= 2.

    >>> StudentT(df=4.0, scale=1.0).distribution(Leaf("w", (3,))).variance.item()
    2.0
    """

    df: float = 5.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_positive("df", self.df)
        check_positive("scale", self.scale)

    def distribution(self, leaf: Leaf) -> dist.Distribution:
        return dist.StudentT(self.df, 0.0, self.scale)


@dataclass(frozen=True)
class NormalMixture:
    """weight N(0, scale^2) + (1 - weight) N(0, narrow_scale^2): two Gaussians, a wide and a narrow one.

    >>> NormalMixture(1.0, 0.1, weight=0.5).distribution(Leaf("w", (3,))).variance.item()
    0.50...
    """

    scale: float = 1.0
    narrow_scale: float = 0.1
    weight: float = 0.5

    def __post_init__(self) -> None:
        check_positive("scale", self.scale)
        check_positive("narrow_scale", self.narrow_scale)
        if not 0.0 < self.weight < 1.0:
            raise ValueError(f"weight must lie strictly between 0 and 1, got {self.weight}")

    def distribution(self, leaf: Leaf) -> dist.Distribution:
        weights = dist.Categorical(probs=jnp.array([self.weight, 1.0 - self.weight]))
        return dist.MixtureSameFamily(weights, dist.Normal(0.0, jnp.array([self.scale, self.narrow_scale])))


@dataclass(frozen=True)
class LogUniform:
    """p(w) proportional to 1 / |w|: every order of magnitude is as likely. Not normalisable, so only for VI.

    It favours noise: the KL of N(mu, alpha mu^2) falls to 0 as alpha grows, and a zero-mean Gaussian has none at all.

    >>> has_density(LogUniform().distribution(Leaf("w", (3,))))
    False
    """

    def distribution(self, leaf: Leaf) -> dist.Distribution:
        return LogUniformPrior()


@dataclass(frozen=True)
class ARD:
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


@dataclass(frozen=True)
class Given:
    """A NumPyro distribution taken as it is."""

    value: dist.Distribution

    def distribution(self, leaf: Leaf) -> dist.Distribution:
        if self.value.event_shape not in ((), leaf.shape):
            raise ValueError(
                f"a prior over events of shape {self.value.event_shape} does not fit the leaf {leaf.path} "
                f"{leaf.shape}: give independent entries, or one distribution over the whole leaf"
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
    if hasattr(value, "distribution"):
        return value
    raise TypeError(
        f"{what} must be one of posteriax.priors (such as p.Normal(scale=0.3)), a NumPyro distribution, or a "
        f"dictionary of them by path, got {type(value).__name__}"
    )


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


# at the end: they are made of the priors above
from posteriax.prior_sweeps import family_sweep as family_sweep  # noqa: E402
from posteriax.prior_sweeps import scale_sweep as scale_sweep  # noqa: E402
