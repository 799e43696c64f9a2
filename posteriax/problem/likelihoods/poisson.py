"""Counts."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from posteriax._internal.checks import check_positive
from posteriax.problem.likelihoods.likelihood import LikelihoodLatents, at_least_float32, sum_per_example
from posteriax.problem.likelihoods.numbers import NumberLikelihood


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
        if y.min() < 0:
            raise ValueError(f"y has the value {y.min()}, but counts start at 0")
        if y.dtype.kind not in "biu" and not np.array_equal(y, np.round(y)):
            raise ValueError(f"y must be counts (whole numbers) for px.Poisson(), got dtype {y.dtype} with fractions")
        return super().check(outputs, y)

    def log_prob(self, latents: LikelihoodLatents, outputs: jax.Array, y: jax.Array) -> jax.Array:
        log_rate = at_least_float32(outputs) + math.log(self.base_rate)
        # from the log rate itself: a rate that underflows to 0 still has a gradient
        return sum_per_example(y * log_rate - jnp.exp(log_rate) - jax.scipy.special.gammaln(y + 1.0))

    def distribution(self, latents: LikelihoodLatents, outputs: jax.Array) -> dist.Poisson:
        return dist.Poisson(self.base_rate * jnp.exp(at_least_float32(outputs)))
