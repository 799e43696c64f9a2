"""What variational inference asks of a family, and what all Gaussian families share."""

import math
from abc import ABC, abstractmethod
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from posteriax._internal.settings import Savable
from posteriax.families.arrays.estimators import Plan
from posteriax.families.arrays.gaussian import GaussianArray
from posteriax.families.arrays.noise import standard_normal
from posteriax.families.cross_entropy import cross_entropy, cross_entropy_note
from posteriax.priors import Leaf, has_density

Variational = dict[str, jax.Array]  # the variational parameters of one leaf


class Family(Savable, ABC, namespace="families"):
    """The shape of q(w) for one leaf w. Settings only: the variational parameters are passed in.

    A family of a mixture has `components`; one index then chooses the component of all leaves of the network.
    """

    components: int | None = None
    joint: bool = False  # whether one q spans all leaves of this family, raveled into one vector
    random: bool = True  # whether draws (of one component) differ
    independent: bool = False  # whether the entries of a draw are independent of each other
    likelihood: str = "average"  # of a mixture: the log-likelihood averaged over components, or that of the "mixture"
    natural: bool = False  # whether there is a `natural_step`

    def for_leaf(self, leaf: Leaf) -> "Family":
        """The family that serves this leaf: itself, or a simpler one where it has no meaning (a tied bias)."""
        return self

    def misfit(self, leaf: Leaf) -> str:
        """In words, what a leaf is too small or too odd for, and what it gets instead; empty if the family fits.

        A family for many leaves is then noted in the trace; one that was given to this very leaf is refused. Biases
        are no misfits: every family says what it does with them.
        """
        return ""

    @abstractmethod
    def init(self, key: jax.Array, value: jax.Array, leaf: Leaf) -> Variational:
        """Starting variational parameters around the network's own value of the leaf."""

    def spread(self, variational: Variational, variance: jax.Array, covariance: jax.Array | None) -> Variational | None:
        """The starting parameters with scales from elsewhere, such as another posterior; None if it takes none.

        Args:
            variational: what `init` returned.
            variance: of every entry, in the leaf's shape.
            covariance: of all D entries, raveled, if it is known.
        """
        return None

    def project(self, variational: Variational) -> Variational:
        """The parameters after an optimiser's step, brought back to where they are allowed."""
        return variational

    def natural_step(self, variational: Variational, gradient: Variational, mean_rate: Any, precision_rate: Any) -> Any:
        """What a natural-gradient step adds to the parameters (:func:`px.natural_gradient`).

        A family that has one sets `natural`, and has a parameter "mean", whose gradient is averaged by momentum first.
        """
        raise NotImplementedError(f"{type(self).__name__} has no natural gradient")

    def log_density(self, variational: Variational, value: jax.Array) -> jax.Array | None:
        """log q(value), summed over the leaf, for families that train on it rather than on their entropy."""
        return None

    def precompute(self, variational: Variational) -> Variational:
        """The parameters, with what several parts of a step derive from them, so that its gradient is computed once."""
        return variational

    def component(self, variational: Variational, index: Any) -> Variational:
        """The variational parameters of one component of a mixture."""
        return variational

    def array(self, variational: Variational, keys: jax.Array, plan: Plan, examples: int) -> Any:
        """The leaf as the network gets it in training: a draw, or a random array with the planned estimator."""
        return self.sample(variational, keys[0])

    @abstractmethod
    def sample(self, variational: Variational, key: jax.Array) -> Any:
        """One draw of the leaf."""

    @abstractmethod
    def mean(self, variational: Variational) -> jax.Array: ...

    def variance(self, variational: Variational) -> jax.Array:
        """The variance of every entry, in the leaf's shape."""
        raise NotImplementedError(f"the variances of {type(self).__name__} are not known in closed form")

    def covariance(self, variational: Variational) -> jax.Array:
        """The covariance of all D entries, raveled: D x D, so only for small leaves."""
        if self.independent:
            return jnp.diag(self.variance(variational).reshape(-1))
        raise NotImplementedError(f"the covariance of {type(self).__name__} is not known in closed form")

    @abstractmethod
    def kl(self, variational: Variational, prior: dist.Distribution, key: jax.Array) -> jax.Array:
        """KL(q || prior) in nats, summed over the leaf: in closed form, or an estimate that `kl_note` tells of."""

    @abstractmethod
    def entropy(self, variational: Variational) -> jax.Array:
        """-E_q[log q] in nats, summed over the leaf."""

    def kl_note(self, prior: dist.Distribution) -> str:
        """How the KL is estimated; empty if it is in closed form."""
        return ""

    def plan_note(self, plan: Plan) -> str:
        """Why examples share a draw, though the estimator asked for would not; empty if it was to be had."""
        return ""

    def check_plan(self, leaf: Leaf, plan: Plan) -> None:
        """Raise if the family cannot enter the network in this way."""
        return

    def check_prior(self, leaf: Leaf, prior: dist.Distribution) -> None:
        """Raise if this prior gives the family no KL."""
        if not has_density(prior):
            raise ValueError(
                f"{type(self).__name__} for {leaf.path} needs a prior with a density, but {type(prior).__name__} has "
                f"none: it serves Gaussian families such as q.Normal() and q.MultiplicativeNormal()"
            )


class Gaussian(Family):
    """Any Gaussian. A family says its mean, its noise, its marginal variances and its entropy."""

    @abstractmethod
    def variance(self, variational: Variational) -> jax.Array:
        """The variance of every entry, in the leaf's shape."""

    @abstractmethod
    def noise(self, variational: Variational, key: jax.Array) -> jax.Array:
        """One draw less its mean."""

    def sample(self, variational: Variational, key: jax.Array) -> jax.Array:
        return self.mean(variational) + self.noise(variational, key)

    def kl(self, variational: Variational, prior: dist.Distribution, key: jax.Array) -> jax.Array:
        # the entropy is always known, so that only the prior's term can be noisy
        term = cross_entropy(prior, self.mean(variational), self.variance(variational))
        if term is None:
            term = -prior.log_prob(self.sample(variational, key)).sum()
        return term - self.entropy(variational)

    def kl_note(self, prior: dist.Distribution) -> str:
        return cross_entropy_note(prior)

    def check_prior(self, leaf: Leaf, prior: dist.Distribution) -> None:
        return  # every prior has a cross-entropy with a Gaussian, or a density


class DiagonalGaussian(Gaussian):
    """Independent Gaussian entries. A family says only how mean and scale come from its parameters."""

    independent = True

    @abstractmethod
    def moments(self, variational: Variational) -> tuple[jax.Array, jax.Array]:
        """Mean and standard deviation of every entry, in the leaf's shape."""

    def log_scale(self, variational: Variational) -> jax.Array:
        """Log of the standard deviations; a family that learns them in the log domain has it for nothing."""
        return jnp.log(self.moments(variational)[1])

    def for_leaf(self, leaf: Leaf) -> Any:
        return self

    def array(self, variational: Variational, keys: jax.Array, plan: Plan, examples: int) -> Any:
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

    def entropy(self, variational: Variational) -> jax.Array:
        # the log of the scale from the family: a log for every weight is dear
        return gaussian_entropy(self.log_scale(variational))

    def plan_note(self, plan: Plan) -> str:
        return plan.note


def rows_and_columns(variance: jax.Array, shape: tuple[int, int]) -> tuple[jax.Array, jax.Array]:
    """The logs of row and column factors whose products are closest, in the log, to the standard deviations."""
    log_scale = 0.5 * jnp.log(variance).reshape(shape)
    half = 0.5 * log_scale.mean()
    return log_scale.mean(axis=1) - half, log_scale.mean(axis=0) - half


def gaussian_entropy(log_scale: jax.Array) -> jax.Array:
    """The entropy of independent Gaussians, summed."""
    return (log_scale + 0.5 * math.log(2 * math.pi * math.e)).sum()
