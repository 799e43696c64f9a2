"""The contract of a variational family, and what all Gaussian families share.

A family is the shape of q(w) for a leaf w. It defines draws, moments, its entropy and its KL to a prior; the rest has
defaults. The KL of a Gaussian is E_q[-log p(w)] - H(q), with the first term in closed form where there is one:

    Normal(m, s):    ((mu - m)^2 + sigma^2) / (2 s^2) + log s + 1/2 log 2 pi

Other distributions bring their own (:class:`posteriax.priors.GaussianCrossEntropy`). Only marginal means and variances
enter, so this holds for correlated Gaussians too.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.typing import ArrayLike

from posteriax._internal.settings import Savable
from posteriax.families.arrays.estimators import EstimatorPlan
from posteriax.families.arrays.gaussian import GaussianArray
from posteriax.families.arrays.noise import standard_normal
from posteriax.families.arrays.random_array import RandomArray
from posteriax.networks.leaf import Leaf
from posteriax.priors.prior import GaussianCrossEntropy, base_distribution, has_density

Variational = dict[str, jax.Array]  # the variational parameters of one leaf
Draw = jax.Array | RandomArray  # of a leaf, as it enters the network
Rate = float | jax.Array


@dataclass(frozen=True)
class Units:
    """Which of a family's parameters are means and which are scales, by name, and in what units.

    VI's default optimiser and its check of convergence ask for these, never for the names of parameters. A parameter in
    none of them moves at the plain rate.

    Args:
        means: the standard deviation of each parameter that is a mean, in that parameter's shape or broadcasting to it.
        scales: the rate of each parameter that is a log of a scale, or is measured in scales, as a multiple of the rate
            of log sigma: 1 for log sigma itself, 1/2 for each of two logs that add up to it, 1 / sqrt(n) for entries
            of which n make a row.
        fisher: the Fisher information of each log of a scale, for the check of convergence: 2 for every weight that it
            scales.
        joint: the names of mean, log diagonal and lower triangle of a covariance L L' to be whitened together, where
            L = diag(exp(log_diagonal)) (I + S) and S is stored row by row; the family then has no other parameters.
        inferred: whether a base class worked them out because the family does not define `units`. The trace then names
            the parameters without a unit.

    >>> from posteriax import families as q
    >>> q.Normal().units({"mean": jax.numpy.zeros(3), "log_scale": jax.numpy.zeros(3)}).scales
    {'log_scale': 1.0}
    """

    means: Mapping[str, jax.Array] = field(default_factory=dict)
    scales: Mapping[str, ArrayLike] = field(default_factory=dict)
    fisher: Mapping[str, float] = field(default_factory=dict)
    joint: tuple[str, str, str] | None = None
    inferred: bool = False

    def cover(self, name: str) -> bool:
        """Whether the parameter has a unit."""
        return name in self.means or name in self.scales


class Family(Savable, ABC, namespace="families"):
    """The shape of q(w) for one leaf w. It holds settings only; the variational parameters are passed in.

    A mixture has `components`; a single index then selects the component of all leaves of the network.
    """

    components: int | None = None
    joint: bool = False  # whether one q covers all leaves of this family, raveled into one vector
    random: bool = True  # whether draws (of one component) differ
    independent: bool = False  # whether the entries of a draw are independent of each other
    likelihood: str = "average"  # of a mixture: the log-likelihood averaged over components, or that of the "mixture"
    natural: bool = False  # whether there is a `natural_step`
    has_mean: bool = True  # whether its mean is learned, so that it can start at a mode or at another posterior

    def for_leaf(self, leaf: Leaf) -> "Family":
        """The family to use for this leaf: itself, or a simpler one where it makes no sense (a tied bias)."""
        return self

    def misfit(self, leaf: Leaf) -> str:
        """Why the leaf does not suit the family and what it gets instead, as text; empty if it does.

        The text is noted in the trace, or is an error if the family was given to this leaf by name. Biases are not
        misfits: every family documents what it does with them.
        """
        return ""

    @abstractmethod
    def init(self, key: jax.Array, value: jax.Array, leaf: Leaf) -> Variational:
        """Initial variational parameters, around the value of the leaf in the network."""

    def spread(self, variational: Variational, variance: jax.Array, covariance: jax.Array | None) -> Variational | None:
        """The initial parameters with scales from elsewhere, such as another posterior; None if unsupported.

        Args:
            variational: what `init` returned.
            variance: of each entry, in the leaf's shape.
            covariance: of all D entries, raveled, if known.
        """
        return None

    def project(self, variational: Variational) -> Variational:
        """The parameters after an optimiser step, projected back onto the allowed set."""
        return variational

    def units(self, variational: Variational) -> Units:
        """Which parameters are means and which are scales, for VI's default optimiser and its check of convergence.

        Parameters without a unit move at a plain rate, and the check does not look at them; the trace says so if the
        family is random and does not define this method.
        """
        return Units(inferred=True)

    def natural_step(
        self, variational: Variational, gradient: Variational, mean_rate: Rate, precision_rate: Rate
    ) -> Variational:
        """What a natural-gradient step adds to the parameters (:func:`px.methods.natural_gradient`).

        A family that has one sets `natural`, and has a parameter "mean", whose gradient is averaged by momentum first.
        """
        raise NotImplementedError(f"{type(self).__name__} has no natural gradient")

    def log_density(self, variational: Variational, value: jax.Array) -> jax.Array | None:
        """log q(value), summed over the leaf, for families that train on it instead of on their entropy."""
        return None

    def precompute(self, variational: Variational) -> Variational:
        """The parameters plus anything that several parts of a step derive from them, so that it is computed once."""
        return variational

    def component(self, variational: Variational, index: jax.Array | int) -> Variational:
        """The variational parameters of one component of a mixture."""
        return variational

    def array(self, variational: Variational, keys: jax.Array, plan: EstimatorPlan, examples: int) -> Draw:
        """The leaf as passed to the network in training: a draw, or a random array with the planned estimator."""
        return self.sample(variational, keys[0])

    @abstractmethod
    def sample(self, variational: Variational, key: jax.Array) -> Draw:
        """One draw of the leaf."""

    @abstractmethod
    def mean(self, variational: Variational) -> jax.Array: ...

    def variance(self, variational: Variational) -> jax.Array:
        """The variance of each entry, in the leaf's shape."""
        raise NotImplementedError(f"the variances of {type(self).__name__} are not known in closed form")

    def covariance(self, variational: Variational) -> jax.Array:
        """The D x D covariance of all entries, raveled; for small leaves only."""
        if self.independent:
            return jnp.diag(self.variance(variational).reshape(-1))
        raise NotImplementedError(f"the covariance of {type(self).__name__} is not known in closed form")

    @abstractmethod
    def kl(self, variational: Variational, prior: dist.Distribution, key: jax.Array) -> jax.Array:
        """KL(q || prior) in nats, summed over the leaf: in closed form, or estimated, which `kl_note` then says."""

    @abstractmethod
    def entropy(self, variational: Variational) -> jax.Array:
        """-E_q[log q] in nats, summed over the leaf."""

    def kl_note(self, prior: dist.Distribution) -> str:
        """How the KL is estimated; empty if it has a closed form."""
        return ""

    def plan_note(self, plan: EstimatorPlan) -> str:
        """Why examples share a draw although the requested estimator avoids that; empty if the estimator applies."""
        return ""

    def check_plan(self, leaf: Leaf, plan: EstimatorPlan) -> None:
        """Raise if the family does not support this plan."""
        return

    def check_prior(self, leaf: Leaf, prior: dist.Distribution) -> None:
        """Raise if the family has no KL to this prior."""
        if not has_density(prior):
            raise ValueError(
                f"{type(self).__name__} for {leaf.path} needs a prior with a density, but {type(prior).__name__} has "
                f"none: it works with Gaussian families such as q.Normal() and q.MultiplicativeNormal()"
            )


class Gaussian(Family):
    """Any Gaussian: subclasses provide noise, marginal variances and entropy, and the mean if it is derived."""

    def mean(self, variational: Variational) -> jax.Array:
        return variational["mean"]

    @abstractmethod
    def variance(self, variational: Variational) -> jax.Array:
        """The variance of each entry, in the leaf's shape."""

    @abstractmethod
    def noise(self, variational: Variational, key: jax.Array) -> jax.Array:
        """One draw minus the mean."""

    def sample(self, variational: Variational, key: jax.Array) -> jax.Array:
        return self.mean(variational) + self.noise(variational, key)

    def kl(self, variational: Variational, prior: dist.Distribution, key: jax.Array) -> jax.Array:
        # the entropy is exact, so only the prior term can be noisy
        term = cross_entropy(prior, self.mean(variational), self.variance(variational))
        if term is None:
            term = -prior.log_prob(self.sample(variational, key)).sum()
        return term - self.entropy(variational)

    def kl_note(self, prior: dist.Distribution) -> str:
        return cross_entropy_note(prior)

    def units(self, variational: Variational) -> Units:
        """The parameter that `mean` returns unchanged, if there is one, in units of the standard deviations."""
        means = _same(variational, self.mean(variational))
        return Units({name: jnp.sqrt(self.variance(variational)) for name in means}, inferred=True)

    def check_prior(self, leaf: Leaf, prior: dist.Distribution) -> None:
        return  # every prior has a density, or a closed-form cross-entropy with a Gaussian


class DiagonalGaussian(Gaussian):
    """Independent Gaussian entries: subclasses only say how mean and scale follow from their parameters."""

    independent = True

    @abstractmethod
    def moments(self, variational: Variational) -> tuple[jax.Array, jax.Array]:
        """Mean and standard deviation of every entry, in the leaf's shape."""

    def log_scale(self, variational: Variational) -> jax.Array:
        """Log of the standard deviations; override it if they are learned in the log domain."""
        return jnp.log(self.moments(variational)[1])

    def array(self, variational: Variational, keys: jax.Array, plan: EstimatorPlan, examples: int) -> Draw:
        if plan.estimator == "weight":
            return self.sample(variational, keys[0])
        mean, scale = self.moments(variational)
        return GaussianArray(mean, scale, keys, plan.estimator, plan.example_axis, mean.shape)

    def mean(self, variational: Variational) -> jax.Array:
        return self.moments(variational)[0]

    def variance(self, variational: Variational) -> jax.Array:
        return jnp.square(self.moments(variational)[1])

    def noise(self, variational: Variational, key: jax.Array) -> jax.Array:
        mean, scale = self.moments(variational)
        return scale * standard_normal(key, mean.shape, mean.dtype, unless_nan=mean)

    def kl(self, variational: Variational, prior: dist.Distribution, key: jax.Array) -> jax.Array:
        base = base_distribution(prior)
        if not isinstance(base, dist.Normal):
            return super().kl(variational, prior, key)
        # one sum instead of a difference of two: a kernel less to compile for every leaf
        mean, scale = self.moments(variational)
        quadratic = (jnp.square(scale) + jnp.square(mean - base.loc)) / (2 * jnp.square(base.scale))
        return (quadratic + jnp.log(base.scale) - self.log_scale(variational) - 0.5).sum()

    def entropy(self, variational: Variational) -> jax.Array:
        # from the family: avoids one log per weight, which is expensive
        return gaussian_entropy(self.log_scale(variational))

    def units(self, variational: Variational) -> Units:
        """Known for a parameter that `moments` returns as the mean, or `log_scale` as the log scales, unchanged."""
        mean, scale = self.moments(variational)
        means = dict.fromkeys(_same(variational, mean), scale)
        logs = _same(variational, self.log_scale(variational))
        return Units(means, dict.fromkeys(logs, 1.0), dict.fromkeys(logs, 2.0), inferred=True)

    def plan_note(self, plan: EstimatorPlan) -> str:
        return plan.note


def _same(variational: Variational, value: jax.Array) -> list[str]:
    """The name of the parameter that is this very array, not one derived from it."""
    return [name for name, parameter in variational.items() if parameter is value]


def rows_and_columns(variance: jax.Array, shape: tuple[int, int]) -> tuple[jax.Array, jax.Array]:
    """Logs of the row and column factors whose products best fit the standard deviations, in the log domain."""
    log_scale = 0.5 * jnp.log(variance).reshape(shape)
    half = 0.5 * log_scale.mean()
    return log_scale.mean(axis=1) - half, log_scale.mean(axis=0) - half


def gaussian_entropy(log_scale: jax.Array) -> jax.Array:
    """The entropy of independent Gaussians, summed."""
    return (log_scale + 0.5 * math.log(2 * math.pi * math.e)).sum()


def cross_entropy(prior: dist.Distribution, mean: jax.Array, variance: jax.Array) -> jax.Array | None:
    """E_q[-log p(w)], summed over the entries; None if there is no closed form.

    >>> float(cross_entropy(dist.Normal(0.0, 1.0), jnp.zeros(1), jnp.ones(1)))  # the entropy of N(0, 1)
    1.418...
    """
    base = base_distribution(prior)
    if isinstance(base, dist.Normal):
        quadratic = (variance + jnp.square(mean - base.loc)) / (2 * jnp.square(base.scale))
        return (quadratic + jnp.log(base.scale) + 0.5 * math.log(2 * math.pi)).sum()
    return base.gaussian_cross_entropy(mean, variance) if isinstance(base, GaussianCrossEntropy) else None


def cross_entropy_note(prior: dist.Distribution) -> str:
    """How E_q[-log p] is estimated; empty if it has a closed form."""
    base = base_distribution(prior)
    if isinstance(base, GaussianCrossEntropy):
        return base.cross_entropy_note
    return (
        ""
        if isinstance(base, dist.Normal)
        else f"KL estimated with one draw per step (no closed form for {type(base).__name__})"
    )
