"""Fractions between 0 and 1: a beta distribution."""

import math
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from posteriax._internal.checks import check_positive
from posteriax.likelihoods.likelihood import LikelihoodLatents, at_least_float32
from posteriax.likelihoods.numbers import NumberLikelihood

MEDIAN, WIDTH = 10.0, 1.5  # of the prior of a learned precision: 95 % of it between 0.5 and 190
CLOSEST = 1e-6  # of a mean to 0 or 1


@dataclass(frozen=True)
class Beta(NumberLikelihood):
    """A fraction (or D of them) strictly between 0 and 1; the network outputs the logit of the mean.

        y ~ Beta(m s, (1 - m) s)        m = sigmoid(f),  variance m (1 - m) / (s + 1)

    (Ferrari and Cribari-Neto 2004.) Fractions of 0 or 1 have no density: move them inside, (y (N - 1) + 1/2) / N for N
    rows, or use :class:`px.Bernoulli` if they are all or nothing.

    Args:
        precision: s, a number; or "learned", inferred with the weights under log s ~ N(log 10, 1.5^2).

    >>> distribution = Beta(precision=3.0).distribution({}, jnp.array([[0.0]]))
    >>> distribution.mean.item(), distribution.variance.item()  # 1/2, 1/4 / 4
    (0.5, 0.0625)
    """

    precision: float | Literal["learned"] = "learned"

    def __post_init__(self) -> None:
        if self.precision != "learned":
            check_positive("precision", self.precision)

    def priors(self) -> dict[str, dist.Distribution]:
        return {"log_precision": dist.Normal(math.log(MEDIAN), WIDTH)} if self.precision == "learned" else {}

    def check(self, outputs: jax.ShapeDtypeStruct, y: np.ndarray) -> np.ndarray:
        outside = y[(y <= 0) | (y >= 1)]
        if outside.size:
            hint = "move it inside, (y (N - 1) + 1/2) / N" if outside.flat[0] in (0, 1) else "divide by the largest"
            raise ValueError(f"y has the value {outside.flat[0]:g}, but fractions lie between 0 and 1: {hint}")
        return super().check(outputs, y)

    def distribution(self, latents: LikelihoodLatents, outputs: jax.Array) -> dist.Distribution:
        mean = jnp.clip(jax.nn.sigmoid(at_least_float32(outputs)), CLOSEST, 1 - CLOSEST)
        precision = jnp.exp(latents["log_precision"]) if self.precision == "learned" else jnp.float32(self.precision)
        return dist.Beta(mean * precision, (1 - mean) * precision)
