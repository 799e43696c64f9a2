"""Counts that vary more than a Poisson's: a negative binomial distribution."""

import math
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import betainc, gammaln

from posteriax._internal.checks import check_positive
from posteriax.likelihoods.likelihood import LikelihoodLatents, at_least_float32
from posteriax.likelihoods.numbers import NumberLikelihood
from posteriax.likelihoods.poisson import AccuratePoisson, check_counts

MEDIAN, WIDTH = 0.3, 1.5  # of the prior of a learned dispersion: 95 % of it between 0.016 and 5.7
MANY = 10.0  # from here on a series gives the difference of two log-gamma functions
MANY_CONCENTRATED, POISSON = 1e3, 5e-3  # and a variance less than 0.5 % larger: its cdf differs by 6e-4
LARGEST_CONCENTRATION = 1e6  # beyond, it is a Poisson distribution to float32


@dataclass(frozen=True)
class NegativeBinomial(NumberLikelihood):
    """A count (or D of them) with more variance than a Poisson's; the network outputs the logarithm of the mean.

        mean m = base_rate exp(f),  variance m + a m^2        a: the dispersion; 0 is a Poisson distribution

    Args:
        base_rate: the mean where the network outputs 0, as for :class:`px.Poisson`.
        dispersion: a, a number; or "learned", inferred with the weights under log a ~ N(log 0.3, 1.5^2).

    >>> distribution = NegativeBinomial(dispersion=0.5).distribution({}, jnp.log(jnp.array([[4.0]])))
    >>> distribution.mean.item(), distribution.variance.item()  # 4 + 0.5 * 16
    (4.0..., 12.0...)
    """

    base_rate: float = 1.0
    dispersion: float | Literal["learned"] = "learned"

    def __post_init__(self) -> None:
        check_positive("base_rate", self.base_rate)
        if self.dispersion != "learned":
            check_positive("dispersion", self.dispersion)

    def priors(self) -> dict[str, dist.Distribution]:
        return {"log_dispersion": dist.Normal(math.log(MEDIAN), WIDTH)} if self.dispersion == "learned" else {}

    def check(self, outputs: jax.ShapeDtypeStruct, y: np.ndarray) -> np.ndarray:
        check_counts(y, "px.likelihoods.NegativeBinomial()")
        return super().check(outputs, y)

    def distribution(self, latents: LikelihoodLatents, outputs: jax.Array) -> dist.Distribution:
        log_mean = at_least_float32(outputs) + math.log(self.base_rate)
        learned = self.dispersion == "learned"
        concentration = jnp.exp(-latents["log_dispersion"]) if learned else 1 / jnp.float32(self.dispersion)
        concentration = jnp.minimum(concentration, LARGEST_CONCENTRATION)
        return _AccurateNegativeBinomial(log_mean, jnp.broadcast_to(concentration, log_mean.shape))


class _AccurateNegativeBinomial(dist.NegativeBinomial2):
    """NumPyro's, in a form that holds in float32 for a small dispersion, and with a distribution function.

    Its density has a difference of two log-gamma functions of size c log c, c = 1 / dispersion.
    """

    pytree_data_fields = ("log_mean",)

    def __init__(self, log_mean: jax.Array, concentration: jax.Array):
        self.log_mean = log_mean
        super().__init__(jnp.exp(log_mean), concentration)

    def log_prob(self, value: jax.Array) -> jax.Array:
        """log p(y) = log Gamma(y + c) - log Gamma(c) - log y! + c log [c / (c + m)] + y log [m / (c + m)]

        For large c, with log Gamma by Stirling's series:
        (c - 1/2) log(1 + y / c) - c log(1 + m / c) + y [log m + log (c + y) - log (c + m) - 1] - log y! + ...
        """
        c, m = self.concentration, self.mean
        y = jnp.asarray(value, m.dtype)
        few, many = jnp.minimum(c, MANY), jnp.maximum(c, MANY)
        exact = gammaln(y + few) - gammaln(few) - few * jnp.log1p(m / few) + y * (self.log_mean - jnp.log(few + m))
        more = (1 / (many + y) - 1 / many) / 12 - (1 / (many + y) ** 3 - 1 / many**3) / 360
        ratio = jnp.log1p((y - m) / (many + m))
        series = (
            (many - 0.5) * jnp.log1p(y / many) - many * jnp.log1p(m / many) + y * (self.log_mean + ratio - 1) + more
        )
        return jnp.where(c < MANY, exact, series) - gammaln(y + 1)

    def cdf(self, value: jax.Array) -> jax.Array:
        """P(Y <= y) = I(c, y + 1) at c / (c + m), the incomplete beta function; a Poisson's where it is close to one.

        Off by up to 1e-3, as float32's incomplete beta function is for a large c.
        """
        c, m = self.concentration, self.mean
        y = jnp.floor(jnp.asarray(value, m.dtype))
        is_poisson = (c > MANY_CONCENTRATED) & (m < POISSON * c)
        own = jnp.where(is_poisson, MANY, c)
        beta = betainc(own, jnp.maximum(y, 0.0) + 1, own / (own + m))
        poisson = AccuratePoisson(self.log_mean, 1.0).cdf(value)
        return jnp.where(y < 0, 0.0, jnp.where(is_poisson, poisson, beta))
