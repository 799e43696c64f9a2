"""Robust regression: noise with heavy tails."""

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.special import gammaln

from posteriax.likelihoods.likelihood import LikelihoodLatents
from posteriax.likelihoods.noise_scale import (
    WIDTH_OF_LEARNED_SCALE,
    Scale,
    ScalePrior,
    check_scale,
    check_scale_prior,
    check_two_outputs,
    location_and_scale,
    log_scale_prior,
)
from posteriax.likelihoods.numbers import NumberLikelihood

SMALLEST_LEARNED_DF = 2.0  # above it the variance is finite
MANY_DF = 10.0  # from here on a series gives the normalising constant, to 2e-8
TABLE, FARTHEST = 2048, 16.0  # of the distribution function: points, and the largest asinh of a standardised value


@dataclass(frozen=True)
class StudentT(NumberLikelihood):
    """A real number (or D of them) with heavy-tailed noise, for data with outliers.

        y = f + sigma t        t ~ Student's t with `df` degrees of freedom

    An outlier k sigma away costs (df + 1) log(k) nats, not k^2 / 2: it affects the fit much less than with Gaussian
    noise (Lange, Little and Taylor 1989).

    Args:
        df: degrees of freedom, above 1 (at 1 or below there is no mean; up to 2, no finite standard deviation). Few are
            robust, many are close to Gaussian. A number fixes them. ``"learned"`` infers one value above 2 with the
            weights, under the prior log(df - 2) ~ N(log 8, 1), 95 % of which lies between 3 and 60.
        scale: sigma, in the units of y; a number, ``"learned"`` or ``"predicted"`` as for :class:`px.Normal`. The
            standard deviation of y is sigma sqrt(df / (df - 2)).
        scale_prior: of a learned scale, as for :class:`px.Normal`.

    >>> StudentT(df=4.0, scale=1.0).log_prob({}, jnp.array([[0.0]]), jnp.array([[0.0]])).round(3).tolist()
    [-0.98...]
    """

    df: float | Literal["learned"] = 4.0
    scale: Scale = "learned"
    scale_prior: ScalePrior | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_scale(self.scale)
        object.__setattr__(self, "scale_prior", check_scale_prior(self.scale, self.scale_prior))
        if self.df != "learned" and not (isinstance(self.df, int | float | np.number) and 1 < self.df < math.inf):
            raise ValueError(f'df must be a number above 1 or "learned", got {self.df!r}')

    def priors(self) -> dict[str, dist.Distribution]:
        df: dict[str, Any] = {"log_df": dist.Normal(math.log(8.0), 1.0)} if self.df == "learned" else {}
        return df | ({"log_scale": log_scale_prior(self.scale_prior)} if self.scale == "learned" else {})

    @property
    def outputs_per_target(self) -> int:
        return 2 if self.scale == "predicted" else 1

    @property
    def needs_target_scale(self) -> bool:
        return self.scale == "learned" and self.scale_prior is None

    def for_target_scale(self, scale: float) -> "StudentT":
        return replace(self, scale_prior=(scale, WIDTH_OF_LEARNED_SCALE)) if self.needs_target_scale else self

    def check(self, outputs: jax.ShapeDtypeStruct, y: np.ndarray) -> np.ndarray:
        if self.scale == "predicted":
            check_two_outputs("StudentT", outputs.shape)
        return super().check(outputs, y)

    def distribution(self, latents: LikelihoodLatents, outputs: jax.Array) -> dist.StudentT:
        df: Any = self.df if self.df != "learned" else SMALLEST_LEARNED_DF + jnp.exp(latents["log_df"])
        return _TabulatedStudentT(df, *location_and_scale(self.scale, latents, outputs))


class _TabulatedStudentT(dist.StudentT):
    """A Student t with a single number of degrees of freedom, accurate in float32, with a tabulated cdf.

    NumPyro's cdf, by the incomplete beta function, is off by 2e-4 in float32 and takes half a microsecond per value.
    Its density has a difference of two log-gamma functions, each of size df log df: off by 2 % at df = 1e5.
    """

    pytree_data_fields = ("_table",)

    def __init__(self, df: float | jax.Array, loc: jax.Array, scale: jax.Array):
        super().__init__(df, loc, scale)
        # an even grid in asinh reaches far tails: x = sinh(u), dx = cosh(u) du
        u = jnp.linspace(0.0, FARTHEST, TABLE, dtype=loc.dtype)
        density = jnp.exp(-(df + 1) / 2 * jnp.log1p(jnp.square(jnp.sinh(u)) / df)) * jnp.cosh(u)
        table = jnp.concatenate([jnp.zeros(1, u.dtype), jnp.cumsum(density[1:] + density[:-1])])
        self._table = table / (2 * table[-1])  # the probability between 0 and x: from 0 to 1/2

    def log_prob(self, value: jax.Array) -> jax.Array:
        """log p(y) = c(v) - (v + 1) / 2 log(1 + t^2 / v) - log sigma        t = (y - f) / sigma, v = df

        c(v) = log Gamma((v + 1) / 2) - log Gamma(v / 2) - log(pi v) / 2
             = -log(2 pi) / 2 - 1 / (4 v) + 1 / (24 v^3) - 1 / (20 v^5) + ...
        """
        v = jnp.asarray(self.df, self.scale.dtype)
        few, many = jnp.minimum(v, MANY_DF), jnp.maximum(v, MANY_DF)
        exact = gammaln((few + 1) / 2) - gammaln(few / 2) - 0.5 * jnp.log(math.pi * few)
        series = -0.5 * math.log(2 * math.pi) - (1 / 4 - (1 / 24 - 1 / 20 / many**2) / many**2) / many
        kernel = (v + 1) / 2 * jnp.log1p(jnp.square((value - self.loc) / self.scale) / v)
        return jnp.where(v < MANY_DF, exact, series) - kernel - jnp.log(self.scale)

    def cdf(self, value: jax.Array) -> jax.Array:
        standard = (value - self.loc) / self.scale
        position = jnp.minimum(jnp.arcsinh(jnp.abs(standard)) / FARTHEST, 1.0) * (TABLE - 1)
        left = jnp.clip(position.astype(jnp.int32), 0, TABLE - 2)
        probability = self._table[left] + (position - left) * (self._table[left + 1] - self._table[left])
        return 0.5 + jnp.sign(standard) * probability
