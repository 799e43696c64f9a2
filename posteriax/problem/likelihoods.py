"""Likelihoods: what a network's outputs say about the targets.

Each one knows the log probability of every example's target, in nats, and checks once that targets and outputs fit.
A likelihood may have unknowns of its own (a noise scale that is learned); they are inferred with the weights.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from posteriax._internal.checks import check_positive
from posteriax._internal.settings import Savable

Unknown = dict[str, jax.Array]


class Likelihood(Savable, ABC, namespace="likelihoods"):
    """What a problem asks of a likelihood. Outputs and targets have a leading axis of examples."""

    def unknowns(self) -> Unknown:
        """Starting values of the likelihood's own unknowns; empty where it has none."""
        return {}

    def priors(self) -> dict[str, dist.Distribution]:
        """Their priors."""
        return {}

    @abstractmethod
    def check(self, outputs: jax.ShapeDtypeStruct, y: np.ndarray) -> np.ndarray:
        """The targets in the shape and dtype that `log_prob` takes, or an error that says what does not fit."""

    @abstractmethod
    def log_prob(self, unknowns: Unknown, outputs: jax.Array, y: jax.Array) -> jax.Array:
        """log p(y_i | outputs_i) of every example, summed over whatever axes one example has."""


@dataclass(frozen=True)
class Categorical(Likelihood):
    """One of C classes; the network's last axis holds C logits.

        log p(y | f) = f_y - logsumexp(f)

    Targets are labels 0 to C - 1 with the outputs' shape less the last axis: one per example, or one per token.

    >>> Categorical().log_prob({}, jnp.array([[0.0, 0.0]]), jnp.array([1])).round(3).tolist()
    [-0.693...]
    """

    def check(self, outputs: jax.ShapeDtypeStruct, y: np.ndarray) -> np.ndarray:
        if len(outputs.shape) < 2 or outputs.shape[-1] < 2:
            raise ValueError(
                f"Categorical needs at least two outputs (logits) per example, but the network gives "
                f"{outputs.shape[1:]}. For one logit use px.Bernoulli()."
            )
        labels = _labels(y)
        classes = outputs.shape[-1]
        if labels.max() >= classes:
            raise ValueError(
                f"y has labels up to {labels.max()}, but the network has {classes} outputs (labels 0 to "
                f"{classes - 1}). Did you mean {int(labels.max()) + 1} classes?"
            )
        if labels.ndim == len(outputs.shape) and labels.shape[-1] == 1:
            labels = labels[..., 0]
        _check_shape("labels", labels, outputs.shape[:-1])
        return labels

    def log_prob(self, unknowns: Unknown, outputs: jax.Array, y: jax.Array) -> jax.Array:
        return _sum_per_example(jnp.take_along_axis(self.log_probs(outputs), y[..., None], axis=-1)[..., 0])

    def log_probs(self, outputs: jax.Array) -> jax.Array:
        """The log probability of every class, in a last axis."""
        return jax.nn.log_softmax(_at_least_float32(outputs))


@dataclass(frozen=True)
class Bernoulli(Likelihood):
    """Yes or no; the network gives one logit per target, in shape (N,) or (N, 1).

        log p(y | f) = y log sigmoid(f) + (1 - y) log sigmoid(-f)

    Predictions have two classes, 0 and 1, in their last axis, as in scikit-learn.

    >>> Bernoulli().log_prob({}, jnp.array([0.0]), jnp.array([1])).round(3).tolist()
    [-0.693...]
    """

    def check(self, outputs: jax.ShapeDtypeStruct, y: np.ndarray) -> np.ndarray:
        if math.prod(outputs.shape[1:]) != 1:
            raise ValueError(
                f"Bernoulli needs one output (logit) per example, but the network gives {outputs.shape[1:]}. "
                f"For several classes use px.Categorical()."
            )
        labels = _labels(y)
        if labels.max() > 1:
            raise ValueError(f"y has labels up to {labels.max()}, but Bernoulli takes 0 and 1")
        if labels.size != labels.shape[0]:
            raise ValueError(f"y has shape {labels.shape}, but Bernoulli takes one label per example")
        return labels.reshape(-1)

    def log_prob(self, unknowns: Unknown, outputs: jax.Array, y: jax.Array) -> jax.Array:
        logit = _at_least_float32(outputs).reshape(y.shape)
        return jax.nn.log_sigmoid(jnp.where(y == 1, logit, -logit))

    def log_probs(self, outputs: jax.Array) -> jax.Array:
        logit = _at_least_float32(outputs).reshape(outputs.shape[0])
        return jax.nn.log_sigmoid(jnp.stack([-logit, logit], axis=-1))


@dataclass(frozen=True)
class Units:
    """The units of a target that a network learned standardised: y = offset + scale (standardised y).

    In float64, on the host: where the offset is large against the scale, float32 would lose what was learned.

    >>> Units(offset=1e7, scale=2.0).restore(np.float32([0.25])).item()
    10000000.5
    """

    offset: float = 0.0
    scale: float = 1.0

    @property
    def are_standard(self) -> bool:
        return self.offset == 0.0 and self.scale == 1.0

    @property
    def log_scale(self) -> float:
        return math.log(self.scale)

    def restore(self, values: Any) -> np.ndarray:
        """Values in the target's units."""
        return np.asarray(values) if self.are_standard else self.offset + self.scale * np.asarray(values, np.float64)

    def restore_spread(self, values: Any) -> np.ndarray:
        """Differences, standard deviations or distances in the target's units."""
        return np.asarray(values) if self.are_standard else self.scale * np.asarray(values, np.float64)

    def standardise(self, y: Any) -> np.ndarray:
        """Targets as the network learned them."""
        return (np.asarray(y, np.float64) - self.offset) / self.scale


@dataclass(frozen=True)
class Normal(Likelihood):
    """A real number (or D of them) with Gaussian noise.

        log p(y | f) = -log(2 pi sigma^2) / 2 - (y - f)^2 / (2 sigma^2)

    Args:
        scale: the noise's standard deviation sigma, in the units of y. A number fixes it. ``"learned"`` makes it one
            unknown with the prior log sigma ~ N(0, 1), inferred with the weights (standardise y first).
            ``"predicted"`` reads it from the network, which then gives 2 D outputs for D targets: the means, then
            values whose softplus is sigma.

    >>> Normal(scale=1.0).log_prob({}, jnp.array([[0.0]]), jnp.array([[0.0]])).round(3).tolist()
    [-0.919...]
    """

    scale: float | Literal["learned", "predicted"] = "learned"

    def __post_init__(self) -> None:
        if isinstance(self.scale, str):
            if self.scale not in ("learned", "predicted"):
                raise ValueError(f'scale must be a positive number, "learned" or "predicted", got {self.scale!r}')
        else:
            check_positive("scale", self.scale)

    @property
    def units(self) -> Units:
        """The units of the target, if they are not the outputs'."""
        return Units()

    def unknowns(self) -> Unknown:
        return {"log_scale": jnp.zeros(())} if self.scale == "learned" else {}

    def priors(self) -> dict[str, dist.Distribution]:
        return {"log_scale": dist.Normal(0.0, 1.0)} if self.scale == "learned" else {}

    def check(self, outputs: jax.ShapeDtypeStruct, y: np.ndarray) -> np.ndarray:
        shape = outputs.shape
        if self.scale == "predicted":
            if len(shape) < 2 or shape[-1] % 2:
                raise ValueError(
                    f'Normal(scale="predicted") needs two outputs per target (mean and scale), but the network gives '
                    f"{shape[1:]} per example"
                )
            shape = (*shape[:-1], shape[-1] // 2)
        targets = y.astype(jax.dtypes.canonicalize_dtype(np.float64))
        # (N,) against (N, 1) would broadcast to (N, N) later on: reshape here, where it is certain what is meant
        if targets.ndim != len(shape) and targets.size == targets.shape[0] and math.prod(shape[1:]) == 1:
            targets = targets.reshape(targets.shape[0], *shape[1:])
        _check_shape("targets", targets, shape)
        return targets

    def log_prob(self, unknowns: Unknown, outputs: jax.Array, y: jax.Array) -> jax.Array:
        mean, scale = self.moments(unknowns, outputs)
        return _sum_per_example(dist.Normal(mean, scale).log_prob(y))

    def moments(self, unknowns: Unknown, outputs: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Mean and standard deviation of the target, of the same shape."""
        outputs = _at_least_float32(outputs)
        if self.scale == "predicted":
            mean, raw = jnp.split(outputs, 2, axis=-1)
            return mean, jax.nn.softplus(raw) + 1e-6  # a floor: an exact zero would make the density infinite
        scale: Any = jnp.exp(unknowns["log_scale"]) if self.scale == "learned" else self.scale
        return outputs, jnp.broadcast_to(scale, outputs.shape)


def _labels(y: np.ndarray) -> np.ndarray:
    if y.dtype.kind not in "biu":
        if not np.array_equal(y, np.round(y)):
            raise TypeError(f"y must be whole-number labels for a classification, got dtype {y.dtype} with fractions")
        raise TypeError(f"y must be whole-number labels for a classification, got dtype {y.dtype}; use y.astype(int)")
    if y.min() < 0:
        raise ValueError(f"y has the label {y.min()}, but labels start at 0")
    return np.minimum(y, 2**31 - 1).astype(np.int32)  # a huge label must not wrap around into the range


def _check_shape(what: str, y: np.ndarray, shape: tuple[int, ...]) -> None:
    if y.shape[1:] != tuple(shape[1:]):
        raise ValueError(
            f"y has {what} of shape {y.shape[1:]} per example, but the network's outputs ask for {shape[1:]}"
        )


def _sum_per_example(values: jax.Array) -> jax.Array:
    return values.reshape(values.shape[0], -1).sum(axis=1)


def _at_least_float32(outputs: jax.Array) -> jax.Array:
    return outputs.astype(jnp.promote_types(outputs.dtype, jnp.float32))
