"""Counts: a Poisson distribution, accurate in float32 for large rates too."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import gammaincc, gammaln

from posteriax._internal.checks import check_positive
from posteriax.likelihoods.likelihood import LikelihoodLatents, at_least_float32
from posteriax.likelihoods.numbers import NumberLikelihood

FEW = 10.0  # counts below have a logarithm of their factorial that float32 knows to 1e-6
LARGE = 100.0  # from here on the distribution function is an expansion, to 1e-7
# coefficients of c_0 and c_1 in powers of eta, the highest first (DiDonato and Morris 1986, appendix F)
TEMME_0 = (-139 / 777600, 1 / 2835, 1 / 864, -2 / 135, 1 / 12, -1 / 3)
TEMME_1 = (-0.000990226337448560, 0.00264550264550265, -1 / 288, -1 / 540)


@dataclass(frozen=True)
class Poisson(NumberLikelihood):
    """A count (or D of them): 0, 1, 2, ...; the network outputs the logarithm of the rate.

        log p(y | f) = y log(r) - r - log y!        r = base_rate exp(f)

    Args:
        base_rate: the rate where the network outputs 0. The mean count is a good choice: a prior that is centred at 0
            is then centred at the mean.

    >>> Poisson().log_prob({}, jnp.array([[0.0]]), jnp.array([[0]])).round(3).tolist()
    [-1.0]
    """

    base_rate: float = 1.0

    def __post_init__(self) -> None:
        check_positive("base_rate", self.base_rate)

    def check(self, outputs: jax.ShapeDtypeStruct, y: np.ndarray) -> np.ndarray:
        check_counts(y, "px.Poisson()")
        return super().check(outputs, y)

    def distribution(self, latents: LikelihoodLatents, outputs: jax.Array) -> dist.Poisson:
        return AccuratePoisson(at_least_float32(outputs), self.base_rate)


def check_counts(y: np.ndarray, likelihood: str) -> None:
    """Raise unless all targets are counts."""
    if y.min() < 0:
        raise ValueError(f"y has the value {y.min()}, but counts start at 0")
    if y.dtype.kind not in "biu" and not np.array_equal(y, np.round(y)):
        raise ValueError(f"y must be counts (whole numbers) for {likelihood}, got dtype {y.dtype} with fractions")


class AccuratePoisson(dist.Poisson):
    """A Poisson distribution whose probabilities and distribution function hold in float32 for large rates too.

    y log(r) - r - log y! is a difference of numbers of 1e7 if r is 1e6, where float32 has steps of 1, and NumPyro's
    distribution function, by the incomplete gamma function, stops its series too early. Both are off by 7 % there.
    Here, for a float32 log rate, log p(y) is off by about 1e-7 (1 + log r) |y - r| within 20 % of the rate (by the
    rounding of the log rate) and 3e-7 max(y, r) farther away; the distribution function by 1e-5 up to r = 100 and
    1e-8 (1 + log r) sqrt(r) beyond.
    """

    pytree_data_fields = ("log_rate",)

    def __init__(self, outputs: jax.Array, base_rate: float):
        # kept as well: where the rate underflows to 0, its logarithm still has a gradient
        self.log_rate = outputs + math.log(base_rate)
        super().__init__(base_rate * jnp.exp(outputs))

    def log_prob(self, value: jax.Array) -> jax.Array:
        """log p(y) = -D(y) - log(2 pi y) / 2 - (1 / (12 y) - ...), the saddle-point form of Loader (2000)."""
        y = jnp.asarray(value, self.rate.dtype)
        many = jnp.where(y < FEW, FEW, y)  # where there are few, the other branch is taken
        stirling = (1 / 12 - (1 / 360 - 1 / 1260 / many**2) / many**2) / many  # log y! by Stirling's series
        saddle_point = -self._deviance(many) - 0.5 * jnp.log(2 * jnp.pi * many) - stirling
        direct = y * self.log_rate - self.rate - gammaln(y + 1.0)
        return jnp.where(y < FEW, direct, saddle_point)

    def cdf(self, value: jax.Array) -> jax.Array:
        """P(Y <= y) = Q(y + 1, r), the incomplete gamma function: by Temme's (1979) uniform expansion for large y.

        Q(a, r) = erfc(eta sqrt(a / 2)) / 2 + exp(-D(a)) / sqrt(2 pi a) (c_0(eta) + c_1(eta) / a + ...)
        """
        a = jnp.floor(jnp.asarray(value, self.rate.dtype)) + 1
        is_large = a >= LARGE
        large = jnp.where(is_large, a, LARGE)
        deviance = self._deviance(large)
        z = jnp.sign(self.rate - large) * jnp.sqrt(2 * deviance)
        eta = jnp.clip(z / jnp.sqrt(large), -1.0, 1.0)  # beyond, exp(-deviance) is 0
        series = jnp.polyval(jnp.array(TEMME_0), eta) + jnp.polyval(jnp.array(TEMME_1), eta) / large
        remainder = jnp.exp(-deviance) / jnp.sqrt(2 * jnp.pi * large) * series
        expansion = 0.5 * jax.scipy.special.erfc(z / math.sqrt(2)) + remainder
        # the incomplete gamma function iterates until all have converged: none that is not used
        incomplete_gamma = gammaincc(jnp.where(is_large, 1.0, jnp.maximum(a, 1.0)), jnp.where(is_large, 1.0, self.rate))
        return jnp.where(is_large, jnp.clip(expansion, 0.0, 1.0), jnp.where(a < 1, 0.0, incomplete_gamma))

    def _deviance(self, a: jax.Array) -> jax.Array:
        """D(a) = a log(a / r) + r - a: next to 0 where a is close to r, and summed there as a series (Loader 2000)."""
        near = jnp.abs(a - self.rate) < 0.1 * (a + self.rate)
        rate = jnp.where(near, self.rate, a)
        v = (a - rate) / (a + rate)
        series = 1 / 3 + v**2 * (1 / 5 + v**2 * (1 / 7 + v**2 / 9))
        close = (a - rate) * v + 2 * a * v**3 * series
        return jnp.where(near, close, a * (jnp.log(a) - self.log_rate) + self.rate - a)
