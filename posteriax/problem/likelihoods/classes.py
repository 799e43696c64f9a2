"""Likelihoods over a finite set of outcomes."""

from abc import abstractmethod
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from posteriax.problem.likelihoods.likelihood import Likelihood, LikelihoodLatents, check_shape, sum_per_example
from posteriax.problem.predictive.classes import ClassPredictive, ClassSums, ReducedClassPredictive, sum_classes


class ClassLikelihood(Likelihood, namespace="likelihoods"):
    """One of C outcomes, labelled 0 to C - 1: a subclass defines the probability of each.

    Scores, calibration, attacks, recalibration and reports follow from :meth:`log_probs`.

    >>> from dataclasses import dataclass
    >>> import posteriax as px
    >>> @dataclass(frozen=True)
    ... class Softened(px.ClassLikelihood):
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

    def predictive(self, outputs: np.ndarray, latents: dict[str, Any]) -> ClassPredictive:
        return ClassPredictive(self, outputs, latents)

    def sums(self, latents: LikelihoodLatents, outputs: jax.Array) -> ClassSums:
        return sum_classes(self.log_probs(latents, outputs))

    def reduced_predictive(self, sums: ClassSums, output_shape: tuple[int, ...]) -> ReducedClassPredictive:
        return ReducedClassPredictive(self, sums, output_shape)


def check_labels(y: np.ndarray, shape: tuple[int, ...], outcomes: str) -> np.ndarray:
    """Labels that match log probabilities of this shape; `outcomes` says in words how many there are."""
    labels = as_labels(y)
    if labels.max() >= shape[-1]:
        raise ValueError(
            f"y has labels up to {labels.max()}, but {outcomes} (labels 0 to {shape[-1] - 1}). Did you mean "
            f"{int(labels.max()) + 1} classes?"
        )
    if labels.ndim == len(shape) and labels.shape[-1] == 1:
        labels = labels[..., 0]
    check_shape("labels", labels, shape[:-1])
    return labels


def as_labels(y: np.ndarray) -> np.ndarray:
    if y.dtype.kind not in "biu":
        if not np.array_equal(y, np.round(y)):
            raise TypeError(f"y must be whole-number labels for a classification, got dtype {y.dtype} with fractions")
        raise TypeError(f"y must be whole-number labels for a classification, got dtype {y.dtype}; use y.astype(int)")
    if y.min() < 0:
        raise ValueError(f"y has the label {y.min()}, but labels start at 0")
    return np.minimum(y, 2**31 - 1).astype(np.int32)  # a huge label must not wrap around into the valid range
