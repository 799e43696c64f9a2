"""Counts with more zeros than a Poisson's: some examples are always zero."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from posteriax._internal.checks import check_positive
from posteriax.likelihoods.likelihood import LikelihoodLatents, at_least_float32
from posteriax.likelihoods.numbers import NumberLikelihood
from posteriax.likelihoods.poisson import AccuratePoisson, check_counts


@dataclass(frozen=True)
class ZeroInflatedPoisson(NumberLikelihood):
    """A count (or D of them) that is 0 with probability g, and otherwise Poisson; the network has 2 D outputs.

        p(y) = g [y = 0] + (1 - g) Poisson(y; r)        r = base_rate exp(f_1),  g = sigmoid(f_2)

    Both depend on the inputs: the first D outputs are the logarithms of the rates, the others the logits of g.

    Args:
        base_rate: the rate where the network outputs 0, as for :class:`px.Poisson`.

    >>> outputs = jnp.array([[jnp.log(2.0), 0.0]])  # r = 2, g = 1/2
    >>> likelihood = ZeroInflatedPoisson()
    >>> jnp.exp(likelihood.log_prob({}, outputs, jnp.array([[0]]))).round(3).item()  # 1/2 + exp(-2) / 2
    0.568...
    """

    base_rate: float = 1.0

    def __post_init__(self) -> None:
        check_positive("base_rate", self.base_rate)

    @property
    def outputs_per_target(self) -> int:
        return 2

    def check(self, outputs: jax.ShapeDtypeStruct, y: np.ndarray) -> np.ndarray:
        if len(outputs.shape) < 2 or outputs.shape[-1] % 2:
            raise ValueError(
                f"ZeroInflatedPoisson needs two outputs per target (log rate, logit of always zero), but the network "
                f"has outputs of shape {outputs.shape[1:]} per example"
            )
        check_counts(y, "px.likelihoods.ZeroInflatedPoisson()")
        return super().check(outputs, y)

    def distribution(self, latents: LikelihoodLatents, outputs: jax.Array) -> dist.Distribution:
        rate, logit = jnp.split(at_least_float32(outputs), 2, axis=-1)
        return _ZeroInflated(AccuratePoisson(rate, self.base_rate), logit)


class _ZeroInflated(dist.Distribution):
    """A distribution of counts, or 0 with the probability sigmoid(logit)."""

    support = dist.constraints.nonnegative_integer
    pytree_data_fields = ("base", "logit")

    def __init__(self, base: dist.Distribution, logit: jax.Array):
        self.base, self.logit = base, logit
        super().__init__(base.batch_shape)

    @property
    def mean(self) -> jax.Array:
        return jax.nn.sigmoid(-self.logit) * self.base.mean

    @property
    def variance(self) -> jax.Array:
        """(1 - g) (v + m^2) - [(1 - g) m]^2"""
        rest = jax.nn.sigmoid(-self.logit)
        return rest * (self.base.variance + jax.nn.sigmoid(self.logit) * jnp.square(self.base.mean))

    def log_prob(self, value: jax.Array) -> jax.Array:
        counted = jax.nn.log_sigmoid(-self.logit) + self.base.log_prob(value)
        return jnp.where(value == 0, jnp.logaddexp(jax.nn.log_sigmoid(self.logit), counted), counted)

    def cdf(self, value: jax.Array) -> jax.Array:
        inside = jax.nn.sigmoid(self.logit) + jax.nn.sigmoid(-self.logit) * self.base.cdf(value)
        return jnp.where(jnp.asarray(value) < 0, 0.0, inside)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        first, second = jax.random.split(key)
        counts = self.base.sample(first, sample_shape)
        always = jax.random.bernoulli(second, jax.nn.sigmoid(self.logit), counts.shape)
        return jnp.where(always, 0, counts)
