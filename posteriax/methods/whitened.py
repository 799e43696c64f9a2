"""Adam in the posterior's own units: the default optimiser of variational inference.

Adam makes gradients dimensionless; its updates are then scaled by the posterior's standard deviations, so that the same
rates suit weights of any size and inputs in any unit:

    independent, sigma      mu <- mu - 0.1 sigma Adam(dmu),    log sigma <- log sigma - 0.03 Adam(dlog sigma)
    full covariance, L L'   mu <- mu - 0.1 L Adam(L' dmu),     L <- L T,  T - I = -0.03 Adam(tril(L' dL)), below the
                                                               diagonal divided by the square root of the size
    no scale of its own     w <- w - 0.003 Adam(dw)            (points, shared matrices, multiplicative noise)

All rates decay to 0 along a cosine. L' dmu and tril(L' dL) are the gradients in whitened coordinates,
e = L^-1 (w - mu), which do not change if the weights are scaled or sheared.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from posteriax._internal import triangular
from posteriax.methods.optimizer import pack_small_leaves

MEAN_RATE, SCALE_RATE, PLAIN_RATE = 0.1, 0.03, 3e-3
LARGEST = 64  # weights under one covariance that are whitened by it: larger noisy triangles are badly conditioned
Leaf = Mapping[str, jax.Array]  # the variational parameters of one block, or their gradients


class WhitenedState(NamedTuple):
    adam: Any
    step: jax.Array


def whitened_adam(
    steps: int, mean_rate: float = MEAN_RATE, scale_rate: float = SCALE_RATE, plain_rate: float = PLAIN_RATE
) -> optax.GradientTransformation:
    """The optimiser for a run of `steps` steps.

    Args:
        steps: after which the rates are 0.
        mean_rate: a mean's step, in standard deviations.
        scale_rate: a step of the log of a standard deviation.
        plain_rate: a step of a parameter without a standard deviation, in its own units.
    """
    adam = pack_small_leaves(optax.scale_by_adam())
    fall = optax.cosine_decay_schedule(1.0, max(steps, 1))

    def init(params: Mapping[str, Leaf]) -> WhitenedState:
        return WhitenedState(adam.init(params), jnp.zeros((), jnp.int32))

    def update(gradient: Any, state: WhitenedState, params: Any = None) -> tuple[Any, WhitenedState]:
        gradient = {
            name: _by_factor(params[name], own) if is_full(params[name]) else own for name, own in gradient.items()
        }
        directions, adam_state = adam.update(gradient, state.adam)
        left = -fall(state.step)
        rates = (left * mean_rate, left * scale_rate, left * plain_rate)
        updates = {name: _step(params[name], own, *rates) for name, own in directions.items()}
        return updates, WhitenedState(adam_state, state.step + 1)

    return optax.GradientTransformation(init, update)


def is_full(leaf: Leaf) -> bool:
    """Whether these are the parameters of a full covariance that is whitened."""
    return set(leaf) == {"mean", "log_diagonal", "lower"} and leaf["log_diagonal"].size <= LARGEST


def units(leaf: Leaf) -> dict[str, jax.Array | None]:
    """The parameters that are a mean or a log scale: a mean's standard deviation, or None for a log scale.

    >>> sorted(units({"mean": jnp.zeros(3), "log_scale": jnp.zeros(3)}))
    ['log_scale', 'mean']
    >>> units({"value": jnp.zeros(3)})
    {}
    """
    found: dict[str, jax.Array | None] = {}
    if "log_u" in leaf:  # k-tied
        found["mean"] = (jnp.exp(leaf["log_u"]) @ jnp.exp(leaf["log_v"]).T).reshape(leaf["mean"].shape)
        return found
    if "log_left" in leaf:  # matrix normal: the diagonals of its factors stand for their rows
        found["mean"] = jnp.exp(leaf["log_left"][:, None] + leaf["log_right"]).reshape(leaf["mean"].shape)
        return found
    if "log_diagonal" in leaf:
        return {"mean": jnp.exp(leaf["log_diagonal"]).reshape(leaf["mean"].shape), "log_diagonal": None}
    for mean, log_scale in (("mean", "log_scale"), ("in", "log_scale_in"), ("out", "log_scale_out")):
        if log_scale in leaf:
            found[log_scale] = None
            if mean in leaf:
                found[mean] = jnp.exp(leaf[log_scale])
    return found


# logs of scales that are multiplied with each other, and what is in units of such scales
SCALES = {"log_u": 0.5, "log_v": 0.5, "log_left": 0.5, "log_right": 0.5, "directions": 1.0}
SCALES |= {"log_prior_scale_in": 1.0, "log_prior_scale_out": 1.0}
TRIANGLES = {"lower": "log_diagonal", "left": "log_left", "right": "log_right"}  # and their diagonals


def _step(leaf: Leaf, direction: Leaf, mean_rate: Any, scale_rate: Any, plain_rate: Any) -> dict[str, jax.Array]:
    if is_full(leaf):
        return _step_full(leaf, direction, mean_rate, scale_rate)
    known, updates = units(leaf), {}
    for name, own in direction.items():
        if name in known:
            unit = known[name]
            updates[name] = scale_rate * own if unit is None else mean_rate * unit * own
        elif name in SCALES:
            updates[name] = SCALES[name] * scale_rate * own
        elif name in TRIANGLES:
            updates[name] = scale_rate * _of_row(leaf[TRIANGLES[name]].size) * own
        else:
            updates[name] = plain_rate * own
    return updates


def _of_row(size: int) -> np.float32:
    """The rate of an entry below the diagonal, so that a whole row moves no further than its diagonal entry."""
    return np.float32(1 / np.sqrt(max(size, 1)))


def _by_factor(leaf: Leaf, gradient: Leaf) -> dict[str, jax.Array]:
    """Gradients in whitened coordinates: L' dmu, and the lower triangle of L' dL."""
    factor = triangular.factor(leaf["log_diagonal"], leaf["lower"])
    natural = triangular.whitened_gradient(factor, gradient["log_diagonal"], gradient["lower"])
    return {
        "mean": (factor.T @ gradient["mean"].reshape(-1)).reshape(leaf["mean"].shape),
        "log_diagonal": jnp.diag(natural),
        "lower": natural[np.tril_indices(len(factor), -1)],
    }


def _step_full(leaf: Leaf, direction: Leaf, mean_rate: Any, scale_rate: Any) -> dict[str, jax.Array]:
    factor = triangular.factor(leaf["log_diagonal"], leaf["lower"])
    below = np.tril_indices(len(factor), -1)
    on_diagonal = scale_rate * direction["log_diagonal"]
    turn = jnp.diag(jnp.exp(on_diagonal)).at[below].set(scale_rate * _of_row(len(factor)) * direction["lower"])
    new = factor @ turn
    return {
        "mean": mean_rate * (factor @ direction["mean"].reshape(-1)).reshape(leaf["mean"].shape),
        "log_diagonal": on_diagonal,
        "lower": (new / jnp.diag(new)[:, None])[below] - leaf["lower"],
    }


def fisher(leaf: Leaf) -> dict[str, float]:
    """The Fisher information of each log scale: 2 for every weight that it scales."""
    if "log_u" in leaf:
        of_u, of_v = leaf["log_u"], leaf["log_v"]
        # k products share a weight
        return {"log_u": 2 * of_v.shape[0] / of_v.shape[1], "log_v": 2 * of_u.shape[0] / of_u.shape[1]}
    if "log_left" in leaf:
        return {"log_left": 2.0 * leaf["log_right"].size, "log_right": 2.0 * leaf["log_left"].size}
    return {name: 2.0 for name, unit in units(leaf).items() if unit is None}


def count(leaf: Leaf) -> int:
    """How many entries the whitened gradient has: a mean and a scale for every weight, or one of them."""
    means = [name for name, unit in jax.eval_shape(units, leaf).items() if unit is not None]
    return 2 * sum(leaf[name].size for name in means) if means else sum(leaf[name].size for name in fisher(leaf))


def whiten(leaf: Leaf, gradient: Leaf) -> dict[str, jax.Array]:
    """The gradient with respect to parameters of known scale, divided by the square root of their Fisher information.

    For a Gaussian posterior, an entry of 0.1 means that a mean is 0.1 standard deviations off.
    """
    if is_full(leaf):
        own = _by_factor(leaf, gradient)
        return own | {"log_diagonal": own["log_diagonal"] * np.float32(0.5**0.5)}
    means = {name: gradient[name] * unit for name, unit in units(leaf).items() if unit is not None}
    return means | {name: gradient[name] * np.float32(size**-0.5) for name, size in fisher(leaf).items()}
