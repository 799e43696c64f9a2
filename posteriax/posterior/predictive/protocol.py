"""What all predictions have in common."""

from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from posteriax._internal.checks import check_targets
from posteriax.problem import Likelihood


class Predictive(Protocol):
    """Predictions for N examples from S draws."""

    @property
    def mean(self) -> np.ndarray: ...

    @property
    def std(self) -> np.ndarray: ...

    def quantile(self, q: Any) -> np.ndarray: ...

    def entropy(self) -> np.ndarray: ...

    def mutual_information(self) -> np.ndarray: ...

    def log_prob(self, y: Any) -> np.ndarray: ...


def needs_draws(what: str) -> ValueError:
    return ValueError(f"{what} needs the outputs of every draw: predict with reduce=False")


def check_against(likelihood: Likelihood, shape: tuple[int, ...], y: Any) -> np.ndarray:
    y = check_targets(y)
    if y.ndim == 0 or y.shape[0] != shape[0]:
        raise ValueError(f"y has shape {y.shape}, but there are predictions for {shape[0]} examples")
    return likelihood.check(jax.ShapeDtypeStruct(shape, jnp.float32), y)


def log_mean(log_values: jax.Array) -> jax.Array:
    return logsumexp(log_values, axis=0) - jnp.log(log_values.shape[0])
