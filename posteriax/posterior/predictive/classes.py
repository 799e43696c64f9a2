"""Predictions of classes."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp, xlogy

from posteriax._internal.compiler import jit
from posteriax.posterior.predictive.protocol import check_against, log_mean, needs_draws
from posteriax.problem import Likelihood

PART_BYTES = 16 * 2**20


class ClassSums(NamedTuple):
    """What predictions of classes need to know of any number of draws: sums over them."""

    count: Any
    log_probs: Any  # log sum_s p_s, (N, C)
    mean: Any  # of p_s, (N, C): the same as above, for deviations that are formed before they are squared
    squares: Any  # sum_s (p_s - mean)^2, (N, C)
    entropy: Any  # sum_s H[p_s], (N,)

    def plus(self, other: "ClassSums") -> "ClassSums":
        """The sums over both sets of draws; of deviations as Chan, Golub and LeVeque (1979) do."""
        count = self.count + other.count
        share, difference = other.count / count, other.mean - self.mean
        return ClassSums(
            count,
            jnp.logaddexp(self.log_probs, other.log_probs),
            self.mean + share * difference,
            self.squares + other.squares + self.count * share * jnp.square(difference),
            self.entropy + other.entropy,
        )


def sum_classes(likelihood: Any, unknowns: Any, outputs: jax.Array) -> ClassSums:
    """The sums of one draw."""
    log_probs = likelihood.log_probs(outputs)
    probs = jnp.exp(log_probs)
    return ClassSums(jnp.ones(()), log_probs, probs, jnp.zeros_like(probs), _entropy(probs))


class FromClassSums:
    """What follows from the sums over draws alone."""

    scores: ClassVar[tuple[str, ...]] = ("accuracy", "nll", "ece", "brier")
    likelihood: Likelihood
    sums: Any  # ClassSums, kept or computed

    @property
    def probs(self) -> np.ndarray:
        """p(class | x, D), (N, C): the mean of the draws' probabilities."""
        return np.asarray(jnp.exp(self.sums.log_probs - jnp.log(self.sums.count)))

    @property
    def mean(self) -> np.ndarray:
        """The same as `probs`: the mean of the one-hot label."""
        return self.probs

    @property
    def std(self) -> np.ndarray:
        """Standard deviation over draws of every class's probability, (N, C): what the draws disagree about."""
        return np.sqrt(np.asarray(self.sums.squares) / np.asarray(self.sums.count))

    def entropy(self) -> np.ndarray:
        """Entropy of `probs` in nats, (N,): all of the uncertainty about the label."""
        return np.asarray(_entropy(jnp.asarray(self.probs)))

    def mutual_information(self) -> np.ndarray:
        """Between label and weights, in nats, (N,): the part of the entropy that more data could remove.

        I(y; w | x) = H[mean_s p_s] - mean_s H[p_s]
        """
        return np.maximum(self.entropy() - np.asarray(self.sums.entropy / self.sums.count), 0.0)

    def log_prob(self, y: Any) -> np.ndarray:
        """log p(y_i | x_i, D) of every example, (N,): the log of the mean over draws, formed in the log domain."""
        labels = self.check(y)
        log_probs = np.asarray(self.sums.log_probs - jnp.log(self.sums.count))
        per_label = np.take_along_axis(log_probs, labels[..., None], axis=-1)[..., 0]
        return per_label.reshape(len(labels), -1).sum(axis=1)

    @abstractmethod
    def check(self, y: Any) -> np.ndarray:
        """The labels, checked against the predictions."""


@dataclass(frozen=True, eq=False)
class ClassPredictive(FromClassSums):
    """Predictions of classes, with the outputs of every draw.

    Args:
        likelihood: what the outputs mean.
        outputs: the network's outputs for every draw, (S, N, ...).

    >>> import posteriax as px
    >>> predictive = px.ClassPredictive(px.Categorical(), np.zeros((5, 4, 2)))  # 5 draws, 4 examples, 2 classes
    >>> predictive.probs.shape, predictive.entropy().round(3)[0].item()
    ((4, 2), 0.693...)
    """

    likelihood: Likelihood
    outputs: np.ndarray

    @property
    def log_probs_per_draw(self) -> jax.Array:
        """log p(class | x, w_s), (S, N, C)."""
        return jax.vmap(self.likelihood.log_probs)(jnp.asarray(self.outputs))  # type: ignore[attr-defined]

    @cached_property
    def sums(self) -> ClassSums:
        return reduce(ClassSums.plus, (_class_sums(self.likelihood, part) for part in _parts(self.outputs)))

    def quantile(self, q: Any) -> np.ndarray:
        """Quantiles over draws of every class's probability, (len(q), N, C), or (N, C) for one q."""
        return np.asarray(jnp.quantile(jnp.exp(self.log_probs_per_draw), jnp.asarray(q), axis=0))

    def log_prob(self, y: Any) -> np.ndarray:
        """log p(y_i | x_i, D) of every example, (N,): the log of the mean over draws, formed in the log domain."""
        labels = jnp.asarray(self.check(y))
        each = jit(jax.vmap(lambda outputs: self.likelihood.log_prob({}, outputs, labels)))
        return np.asarray(log_mean(jnp.concatenate([each(part) for part in _parts(self.outputs)])))

    def check(self, y: Any) -> np.ndarray:
        return check_against(self.likelihood, self.outputs.shape[1:], y)


@dataclass(frozen=True, eq=False)
class ReducedClassPredictive(FromClassSums):
    """Predictions of classes of which only sums over the draws were kept: no quantiles, no single draws.

    With several labels per example (tokens), `log_prob` treats them as independent.
    """

    likelihood: Likelihood
    sums: ClassSums
    output_shape: tuple[int, ...]

    def quantile(self, q: Any) -> np.ndarray:
        raise needs_draws("quantile")

    def check(self, y: Any) -> np.ndarray:
        return check_against(self.likelihood, self.output_shape, y)


def _parts(outputs: np.ndarray) -> Iterator[np.ndarray]:
    """The draws in parts of some megabytes: what is derived from all of them should not hold them several times."""
    size = max(1, PART_BYTES // max(outputs[:1].nbytes, 1))
    return (outputs[first : first + size] for first in range(0, len(outputs), size))


@partial(jit, static_argnums=0)
def _class_sums(likelihood: Any, outputs: jax.Array) -> ClassSums:
    log_probs = jax.vmap(likelihood.log_probs)(outputs)
    probs = jnp.exp(log_probs)
    count, mean = jnp.asarray(len(outputs), jnp.float32), probs.mean(axis=0)
    squares = jnp.square(probs - mean).sum(axis=0)
    return ClassSums(count, logsumexp(log_probs, axis=0), mean, squares, _entropy(probs).sum(axis=0))


def _entropy(probs: jax.Array) -> jax.Array:
    return -xlogy(probs, probs).sum(axis=-1)
