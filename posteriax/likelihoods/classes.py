"""Classes, or any finite set of outcomes: likelihoods, and the predictions they make.

    p(class | x, D) ~ 1/S sum_s p(class | x, w_s)

A likelihood of classes defines the log probability of every outcome; scores, calibration, attacks and recalibration
follow from it.
"""

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial, reduce
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp, xlogy
from numpy.typing import ArrayLike
from scipy.special import entr

from posteriax._internal.memory import DERIVED_BYTES, fitting
from posteriax.likelihoods.likelihood import (
    Likelihood,
    LikelihoodLatents,
    at_least_float32,
    check_shape,
    sum_per_example,
)
from posteriax.likelihoods.predictive import Predictive, Reduced, check_against, log_mean, mean_per_example

MOST_CLASSES = 10_000  # more, far above those of the network, are codes and not classes


class ClassLikelihood(Likelihood, namespace="likelihoods"):
    """One of C outcomes, labelled 0 to C - 1: a subclass defines the probability of each.

    Scores, calibration, attacks, recalibration and reports follow from :meth:`log_probs`.

    >>> from dataclasses import dataclass
    >>> import posteriax as px
    >>> @dataclass(frozen=True)
    ... class Softened(px.likelihoods.ClassLikelihood):
    ...     '''A softmax at a fixed temperature.'''
    ...     temperature: float = 2.0
    ...     def log_probs(self, latents, outputs):
    ...         return jax.nn.log_softmax(outputs / self.temperature)
    >>> Softened().predictive(np.float32([[[2.0, 0.0]]]), {}).probs.round(3).tolist()
    [[0.731..., 0.268...]]
    """

    predicts_classes: ClassVar[bool] = True

    @abstractmethod
    def log_probs(self, latents: LikelihoodLatents, outputs: jax.Array) -> jax.Array:
        """The log probability of every outcome: (N, ...) outputs give (N, C), or (N, ..., C) with several labels."""

    def check(self, outputs: jax.ShapeDtypeStruct, y: np.ndarray) -> np.ndarray:
        shape = jax.eval_shape(self.log_probs, self.latents(), outputs).shape
        return check_labels(y, shape, f"{type(self).__name__} has {shape[-1]} outcomes")

    def log_prob(self, latents: LikelihoodLatents, outputs: jax.Array, y: jax.Array) -> jax.Array:
        log_probs = self.log_probs(latents, outputs)
        return sum_per_example(jnp.take_along_axis(log_probs, y[..., None], axis=-1)[..., 0])

    def predictive(self, outputs: np.ndarray, latents: dict[str, Any]) -> "ClassPredictive":
        return ClassPredictive(self, outputs, latents)

    def sums(self, latents: LikelihoodLatents, outputs: jax.Array) -> "ClassSums":
        return ClassSums.from_draw(self.log_probs(latents, outputs))

    def reduced_predictive(self, sums: "ClassSums", output_shape: tuple[int, ...]) -> "ReducedClassPredictive":
        return ReducedClassPredictive(self, sums, output_shape)

    def summary(self, latents: LikelihoodLatents, outputs: jax.Array, levels: Sequence[float]) -> dict[str, jax.Array]:
        """Probabilities, (N, C), their standard deviation and quantiles over draws, and the entropy in nats, (N,): the
        sum of `noise`, the mean entropy of a draw, and `knowledge`, the mutual information."""
        log_probs = jax.vmap(self.log_probs)(latents, outputs)
        draws, probs = log_probs.shape[0], jnp.exp(log_probs)
        mean = jnp.exp(logsumexp(log_probs, axis=0) - math.log(draws))
        entropy, noise = _entropy(mean), _entropy(probs).mean(axis=0)
        return {
            "probs": mean,
            "std": jnp.sqrt(jnp.square(probs - probs.mean(axis=0)).mean(axis=0)),
            "quantiles": quantiles_of_draws(probs, levels),
            "entropy": entropy,
            "noise": noise,
            "knowledge": jnp.maximum(entropy - noise, 0.0) if draws > 1 else jnp.zeros_like(entropy),
        }


@dataclass(frozen=True)
class Categorical(ClassLikelihood):
    """One of C classes; the network's last axis holds C logits.

        log p(y | f) = f_y - logsumexp(f)

    Targets are labels 0 to C - 1 in the shape of the outputs without the last axis: one per example, or one per token.

    >>> Categorical().log_prob({}, jnp.array([[0.0, 0.0]]), jnp.array([1])).round(3).tolist()
    [-0.693...]
    """

    def check(self, outputs: jax.ShapeDtypeStruct, y: np.ndarray) -> np.ndarray:
        if len(outputs.shape) < 2 or outputs.shape[-1] < 2:
            raise ValueError(
                f"Categorical needs at least two outputs (logits) per example, but the network's output shape is "
                f"{outputs.shape[1:]}. For one logit use px.Bernoulli()."
            )
        return check_labels(y, outputs.shape, f"the network has {outputs.shape[-1]} outputs")

    def log_probs(self, latents: LikelihoodLatents, outputs: jax.Array) -> jax.Array:
        return jax.nn.log_softmax(at_least_float32(outputs))


@dataclass(frozen=True)
class Bernoulli(ClassLikelihood):
    """A binary target; the network outputs one logit per target, in shape (N,) or (N, 1).

        log p(y | f) = y log sigmoid(f) + (1 - y) log sigmoid(-f)

    Predictions have two classes, 0 and 1, in their last axis, as in scikit-learn.

    >>> Bernoulli().log_prob({}, jnp.array([0.0]), jnp.array([1])).round(3).tolist()
    [-0.693...]
    """

    def check(self, outputs: jax.ShapeDtypeStruct, y: np.ndarray) -> np.ndarray:
        if math.prod(outputs.shape[1:]) != 1:
            raise ValueError(
                f"Bernoulli needs one output (logit) per example, but the network's output shape is "
                f"{outputs.shape[1:]}. For several classes use px.Categorical()."
            )
        _refuse_one_hot(y, (outputs.shape[0], 2))
        labels = as_labels(y)
        if labels.max() > 1:
            raise ValueError(f"y has labels up to {labels.max()}, but Bernoulli needs labels 0 and 1")
        if labels.size != labels.shape[0]:
            raise ValueError(f"y has shape {labels.shape}, but Bernoulli needs one label per example")
        return labels.reshape(-1)

    def log_prob(self, latents: LikelihoodLatents, outputs: jax.Array, y: jax.Array) -> jax.Array:
        logit = at_least_float32(outputs).reshape(y.shape)
        return jax.nn.log_sigmoid(jnp.where(y == 1, logit, -logit))

    def log_probs(self, latents: LikelihoodLatents, outputs: jax.Array) -> jax.Array:
        logit = at_least_float32(outputs).reshape(outputs.shape[0])
        return jax.nn.log_sigmoid(jnp.stack([-logit, logit], axis=-1))


def check_labels(y: np.ndarray, shape: tuple[int, ...], outcomes: str) -> np.ndarray:
    """Labels that match log probabilities of this shape; `outcomes` says in words how many there are."""
    _refuse_one_hot(y, shape)
    labels = as_labels(y)
    if labels.max() >= shape[-1]:
        classes = int(labels.max()) + 1
        hint = (
            f"Did you mean {classes} classes?"
            if classes <= max(MOST_CLASSES, 10 * shape[-1])
            else "To number the classes from 0: classes, y = np.unique(y, return_inverse=True)"
        )
        raise ValueError(f"y has labels up to {y.max()}, but {outcomes} (labels 0 to {shape[-1] - 1}). {hint}")
    if labels.ndim == len(shape) and labels.shape[-1] == 1:
        labels = labels[..., 0]
    check_shape("labels", labels, shape[:-1])
    return labels


def _refuse_one_hot(y: np.ndarray, shape: tuple[int, ...]) -> None:
    if y.shape == shape and shape[-1] > 1 and np.isin(y, (0, 1)).all() and (y.sum(axis=-1) == 1).all():
        raise ValueError(
            f"y has labels of shape {y.shape[1:]} per example, and they look one-hot; give whole-number labels: "
            f"y.argmax(axis={y.ndim - 1})"
        )


def as_labels(y: np.ndarray) -> np.ndarray:
    """Whole numbers of at least 0, as int32."""
    if y.dtype.kind not in "biu":
        if not np.array_equal(y, np.round(y)):
            raise TypeError(f"y must be whole-number labels for a classification, got dtype {y.dtype} with fractions")
        raise TypeError(f"y must be whole-number labels for a classification, got dtype {y.dtype}; use y.astype(int)")
    if y.min() < 0:
        raise ValueError(f"y has the label {y.min()}, but labels start at 0")
    return np.minimum(y, 2**31 - 1).astype(np.int32)  # a huge label must not wrap around into the valid range


class ClassSums(NamedTuple):
    """Sums over any number of draws, from which predictions of classes follow."""

    count: Any
    log_probs: Any  # log sum_s p_s, (N, C)
    mean: Any  # of p_s, (N, C): kept as well, to form deviations before squaring
    squares: Any  # sum_s (p_s - mean)^2, (N, C)
    entropy: Any  # sum_s H[p_s], (N,)

    @classmethod
    def from_draw(cls, log_probs: jax.Array) -> "ClassSums":
        """The sums of a single draw, with log probabilities (N, C)."""
        probs = jnp.exp(log_probs)
        return cls(jnp.ones(()), log_probs, probs, jnp.zeros_like(probs), _entropy(probs))

    def join(self, other: "ClassSums") -> "ClassSums":
        """The sums over both sets of draws; deviations are combined as in Chan, Golub and LeVeque (1979)."""
        count = self.count + other.count
        share, difference = other.count / count, other.mean - self.mean
        return ClassSums(
            count,
            jnp.logaddexp(self.log_probs, other.log_probs),
            self.mean + share * difference,
            self.squares + other.squares + self.count * share * jnp.square(difference),
            self.entropy + other.entropy,
        )


class FromClassSums(Predictive):
    """What follows from the sums over draws alone."""

    scores: ClassVar[tuple[str, ...]] = ("accuracy", "nll", "ece", "brier")
    reported_uncertainty: ClassVar[str] = "entropy"

    likelihood: ClassLikelihood
    sums: Any  # ClassSums, kept or computed

    @property
    def probs(self) -> np.ndarray:
        """p(class | x, D), (N, C): the mean of the draws' probabilities."""
        return np.exp(self._log_probs())

    @property
    def mean(self) -> np.ndarray:
        """The same as `probs`: the mean of the one-hot label."""
        return self.probs

    @property
    def std(self) -> np.ndarray:
        """Standard deviation over draws of every class's probability, (N, C): their disagreement."""
        return np.sqrt(np.asarray(self.sums.squares) / np.asarray(self.sums.count))

    def entropy(self) -> np.ndarray:
        """Entropy of `probs` in nats, (N,): the total uncertainty about the label."""
        return entr(self.probs).sum(axis=-1)

    def mutual_information(self) -> np.ndarray:
        """Between label and weights, in nats, (N,): the part of the entropy that more data could remove.

        I(y; w | x) = H[mean_s p_s] - mean_s H[p_s]
        """
        information = np.maximum(self.entropy() - np.asarray(self.sums.entropy / self.sums.count), 0.0)
        return information * (np.asarray(self.sums.count) > 1)  # exactly 0 for a single draw, whatever rounding says

    def log_prob(self, y: ArrayLike) -> np.ndarray:
        """log p(y_i | x_i, D) of every example, (N,): the log of the mean over draws, formed in the log domain."""
        labels = self.check(y)
        per_label = np.take_along_axis(self._log_probs(), labels[..., None], axis=-1)[..., 0]
        return per_label.reshape(len(labels), -1).sum(axis=1)

    def point(self) -> np.ndarray:
        """The most probable label, (N,)."""
        return self.probs.argmax(axis=-1)

    def confidence(self) -> np.ndarray:
        """The probability of the most probable label, (N,)."""
        return self.probs.max(axis=-1)

    def uncertainties(self) -> dict[str, np.ndarray]:
        """Values of "max_probability" (1 - max p), "entropy" and "mutual_information"; averaged over several labels."""
        entropy, information = self.entropy(), self.mutual_information()
        return {
            # the sum of the others: 1 - max p would round to 0 for all confident predictions, and not rank them
            "max_probability": mean_per_example(np.sort(self.probs, axis=-1)[..., :-1].sum(axis=-1)),
            "entropy": mean_per_example(entropy),
            # a difference of entropies: rounding alone, as for a single draw, must not rank examples
            "mutual_information": mean_per_example(np.where(information > 1e-6 * entropy + 5e-7, information, 0.0)),
        }

    def tempered(self, temperature: float) -> "ReducedClassPredictive":
        """Probabilities proportional to probs^(1 / temperature), as those of a single draw."""
        log_probs = jnp.asarray(np.log(np.maximum(self.probs, 1e-30)) / temperature)
        sums = ClassSums.from_draw(jax.nn.log_softmax(log_probs.astype(jnp.float32)))
        return ReducedClassPredictive(self.likelihood, sums, self.shape_of_outputs())

    def _log_probs(self) -> np.ndarray:
        # NumPy: every operation outside a program would be compiled for every new shape
        return np.asarray(self.sums.log_probs) - np.log(np.asarray(self.sums.count))

    @abstractmethod
    def shape_of_outputs(self) -> tuple[int, ...]:
        """The shape of one draw's outputs, (N, ...)."""

    def check(self, y: ArrayLike) -> np.ndarray:
        """The labels, checked against the predictions."""
        return check_against(self.likelihood, self.shape_of_outputs(), y)


@dataclass(frozen=True, eq=False)
class ClassPredictive(FromClassSums):
    """Predictions of classes, with the outputs of every draw.

    Args:
        likelihood: what the outputs mean.
        outputs: the network's outputs for every draw, (S, N, ...).
        latents: the likelihood's own latent variables for every draw, if it has any.

    >>> from posteriax.likelihoods import Categorical, ClassPredictive
    >>> predictive = ClassPredictive(Categorical(), np.zeros((5, 4, 2)))  # 5 draws, 4 examples, 2 classes
    >>> predictive.probs.shape, predictive.entropy().round(3)[0].item()
    ((4, 2), 0.693...)
    """

    likelihood: ClassLikelihood
    outputs: np.ndarray
    latents: dict[str, Any] = field(default_factory=dict)

    def shape_of_outputs(self) -> tuple[int, ...]:
        return self.outputs.shape[1:]

    @property
    def log_probs_per_draw(self) -> jax.Array:
        """log p(class | x, w_s), (S, N, C)."""
        return jax.vmap(self.likelihood.log_probs)(self.latents, jnp.asarray(self.outputs))

    @cached_property
    def sums(self) -> ClassSums:
        return reduce(ClassSums.join, (_sum_draws(self.likelihood, *part) for part in self._parts()))

    def quantile(self, q: ArrayLike) -> np.ndarray:
        """Quantiles over draws of every class's probability, (len(q), N, C), or (N, C) for one q."""
        return np.asarray(jnp.quantile(jnp.exp(self.log_probs_per_draw), jnp.asarray(q), axis=0))

    def log_prob(self, y: ArrayLike) -> np.ndarray:
        """log p(y_i | x_i, D) of every example, (N,): the log of the mean over draws, formed in the log domain."""
        labels = self.check(y)
        parts = [np.asarray(_log_prob_per_draw(self.likelihood, *part, labels)) for part in self._parts()]
        return np.asarray(log_mean(np.concatenate(parts)))

    def per_draw(self) -> np.ndarray:
        """The probabilities of every draw, (S, N, C); of two classes only the second, which determines the first."""
        probs = np.exp(np.asarray(self.log_probs_per_draw))
        return (probs[..., 1:] if probs.shape[-1] == 2 else probs).reshape(*probs.shape[:2], -1)

    def _parts(self) -> Iterator[tuple[dict[str, Any], np.ndarray]]:
        """The draws in parts of a few megabytes, so that what is derived from them needs little memory."""
        size = fitting(DERIVED_BYTES, self.outputs[:1].nbytes)
        for first in range(0, len(self.outputs), size):
            part = slice(first, first + size)
            yield jax.tree.map(lambda leaf, part=part: leaf[part], self.latents), self.outputs[part]


class ReducedClassPredictive(Reduced, FromClassSums):
    """Predictions of classes for which only sums over the draws were kept: no quantiles, no single draws.

    With several labels per example (tokens), `log_prob` treats them as independent.
    """


@partial(jax.jit, static_argnums=0)
def _sum_draws(likelihood: ClassLikelihood, latents: LikelihoodLatents, outputs: jax.Array) -> ClassSums:
    log_probs = jax.vmap(likelihood.log_probs)(latents, outputs)
    probs = jnp.exp(log_probs)
    count, mean = jnp.asarray(len(outputs), jnp.float32), probs.mean(axis=0)
    squares = jnp.square(probs - mean).sum(axis=0)
    return ClassSums(count, logsumexp(log_probs, axis=0), mean, squares, _entropy(probs).sum(axis=0))


@partial(jax.jit, static_argnums=0)
def _log_prob_per_draw(
    likelihood: ClassLikelihood, latents: LikelihoodLatents, outputs: jax.Array, y: jax.Array
) -> jax.Array:
    return jax.vmap(lambda draw_latents, draw_outputs: likelihood.log_prob(draw_latents, draw_outputs, y))(
        latents, outputs
    )


def quantiles_of_draws(values: jax.Array, levels: Sequence[float]) -> jax.Array:
    """Quantiles over the first axis, (levels, ...), as :func:`jnp.quantile` interpolates them.

    >>> quantiles_of_draws(jnp.array([3.0, 1.0, 2.0]), (0.5, 0.75)).tolist()
    [2.0, 2.5]
    """
    ascending, last = jnp.sort(values, axis=0), values.shape[0] - 1
    below = [min(int(level * last), max(last - 1, 0)) for level in levels]
    shares = [level * last - index for level, index in zip(levels, below, strict=True)]
    return jnp.stack(
        [
            (1 - share) * ascending[index] + share * ascending[min(index + 1, last)]
            for index, share in zip(below, shares, strict=True)
        ]
    )


def _entropy(probs: jax.Array) -> jax.Array:
    return -xlogy(probs, probs).sum(axis=-1)
