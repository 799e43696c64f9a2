"""What variational inference asks of a family, and what all diagonal Gaussians share."""

import math
from abc import abstractmethod
from typing import Any, Protocol, Self

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from posteriax.arrays import Plan
from posteriax.arrays.gaussian import gaussian_array
from posteriax.arrays.noise import standard_normal
from posteriax.priors import Leaf

Variational = dict[str, jax.Array]  # the variational parameters of one leaf


class Family(Protocol):
    """The shape of q(w) for one leaf w. Settings only: the variational parameters are passed in."""

    def for_leaf(self, leaf: Leaf) -> "Family":
        """The family that serves this leaf: itself, or a simpler one where it has no meaning (a tied bias)."""
        ...

    def init(self, key: jax.Array, value: jax.Array, leaf: Leaf) -> Variational:
        """Starting variational parameters around the network's own value of the leaf."""
        ...

    def array(self, variational: Variational, key: jax.Array, plan: Plan) -> Any:
        """The leaf as the network gets it in training: a draw, or a random array with the planned estimator."""
        ...

    def sample(self, variational: Variational, key: jax.Array) -> jax.Array:
        """One draw of the leaf."""
        ...

    def mean(self, variational: Variational) -> jax.Array: ...

    def kl(self, variational: Variational, prior: dist.Distribution, key: jax.Array) -> jax.Array:
        """KL(q || prior) in nats, summed over the leaf: in closed form, or its one-draw estimate (`exact_kl`)."""
        ...

    def exact_kl(self, prior: dist.Distribution) -> bool:
        """Whether `kl` is in closed form."""
        ...

    def entropy(self, variational: Variational) -> jax.Array:
        """-E_q[log q] in nats, summed over the leaf."""
        ...


class DiagonalGaussian:
    """Independent Gaussian entries. A family says only how mean and scale come from its parameters."""

    @abstractmethod
    def moments(self, variational: Variational) -> tuple[jax.Array, jax.Array]:
        """Mean and standard deviation of every entry, in the leaf's shape."""

    def log_scale(self, variational: Variational) -> jax.Array:
        """Log of the standard deviations; a family that learns them in the log domain has it for nothing."""
        return jnp.log(self.moments(variational)[1])

    def for_leaf(self, leaf: Leaf) -> Self:
        return self

    def array(self, variational: Variational, key: jax.Array, plan: Plan) -> Any:
        if plan.estimator == "weight":
            return self.sample(variational, key)
        return gaussian_array(*self.moments(variational), key, plan.estimator, plan.example_axis)

    def sample(self, variational: Variational, key: jax.Array) -> jax.Array:
        mean, scale = self.moments(variational)
        return mean + scale * standard_normal(key, mean.shape, mean.dtype, unless_nan=mean)

    def mean(self, variational: Variational) -> jax.Array:
        return self.moments(variational)[0]

    def kl(self, variational: Variational, prior: dist.Distribution, key: jax.Array) -> jax.Array:
        if self.exact_kl(prior):
            # NumPyro's closed form, but with the log of the scale from the family: a log for every weight is dear
            base = prior.base_dist if isinstance(prior, dist.ExpandedDistribution) else prior
            mean, scale = self.moments(variational)
            quadratic = (jnp.square(scale) + jnp.square(mean - base.loc)) / (2 * jnp.square(base.scale))
            return (quadratic + jnp.log(base.scale) - self.log_scale(variational) - 0.5).sum()
        # the entropy is known, so that only the prior's term is noisy
        return -self.entropy(variational) - prior.log_prob(self.sample(variational, key)).sum()

    def exact_kl(self, prior: dist.Distribution) -> bool:
        base = prior.base_dist if isinstance(prior, dist.ExpandedDistribution) else prior
        return isinstance(base, dist.Normal)

    def entropy(self, variational: Variational) -> jax.Array:
        return (self.log_scale(variational) + 0.5 * math.log(2 * math.pi * math.e)).sum()
