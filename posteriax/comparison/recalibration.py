"""Recalibration: one temperature on held-out data.

    p_T(c | x)  proportional to  p(c | x)^(1/T),      T = argmin of the held-out nll

It changes no ranking of classes, so accuracy stays; it can mend confidence that is off everywhere by the same factor.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteriax._internal.compiler import jit
from posteriax.posterior import ClassPredictive, NormalPredictive
from posteriax.problem import Categorical

GOLDEN = (5**0.5 - 1) / 2
LARGEST = 4.0  # of |log T|


def best_temperature(predictive: Any, y: Any) -> float:
    """The temperature at which the predictions' nll on `y` is smallest.

    >>> import posteriax as px
    >>> sure = px.ClassPredictive(px.Categorical(), np.array([[[4.0, 0.0]] * 4]))
    >>> round(best_temperature(sure, [0, 0, 0, 1]), 2)  # sure at 98 %, right at 75 %: softer
    3.64
    """
    if isinstance(predictive, NormalPredictive):
        raise TypeError("recalibration by a temperature is for classes, not for real numbers")
    log_probs = jnp.log(jnp.maximum(jnp.asarray(predictive.probs), 1e-30))
    labels = jnp.asarray(predictive.check(y))

    @jit
    def nll(log_temperature: jax.Array) -> jax.Array:
        log_p = jax.nn.log_softmax(log_probs / jnp.exp(log_temperature), axis=-1)
        return -jnp.take_along_axis(log_p, labels[..., None], axis=-1).mean()

    low, high = -LARGEST, LARGEST
    for _ in range(40):  # golden section: the nll is convex in 1 / T, so it has one valley
        left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        low, high = (low, right) if nll(left) < nll(right) else (left, high)
    return float(np.exp((low + high) / 2))


def tempered(predictive: Any, temperature: float) -> ClassPredictive:
    """The predictions at another temperature, as those of a single draw.

    >>> import posteriax as px
    >>> sure = px.ClassPredictive(px.Categorical(), np.array([[[4.0, 0.0]]]))
    >>> tempered(sure, 4.0).probs.round(2)
    array([[0.73, 0.27]], dtype=float32)
    """
    log_probs = np.log(np.maximum(predictive.probs, 1e-30)) / temperature
    return ClassPredictive(Categorical(), log_probs[None].astype(np.float32))
