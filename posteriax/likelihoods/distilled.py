"""What the outputs of a distilled network say: the mean of a whole posterior's predictions, noise and knowledge.

classes   p ~ Dirichlet(exp(f)): its mean is softmax(f), and its precision alpha_0 = sum_k exp(f_k) says how much the
          draws agree. Entropy, noise (the mean entropy of a draw) and knowledge (the mutual information) follow:

              noise = psi(alpha_0 + 1) - sum_k p_k psi(alpha_k + 1),      knowledge = H[p] - noise

numbers   y ~ N(m, noise^2 + knowledge^2), from three outputs per target: m, log noise, log knowledge

A teacher's predictions determine both: the Dirichlet has the teacher's mean and mutual information.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpy.typing import ArrayLike
from scipy.special import betaincinv, digamma, entr

from posteriax.likelihoods.classes import ClassLikelihood, ClassPredictive, ClassSums
from posteriax.likelihoods.likelihood import Likelihood, LikelihoodLatents, at_least_float32
from posteriax.likelihoods.normal import Normal, NormalPredictive
from posteriax.likelihoods.predictive import Predictive, Sums

SMALLEST_PRECISION, LARGEST_PRECISION = 1e-2, 1e4  # of a Dirichlet; more is certainty
PRECISION_WEIGHT = 0.1  # of the squared error of log alpha_0, beside a divergence in nats
SMALLEST_SPREAD = 1e-3  # of noise and of knowledge, in standard deviations of the targets


@dataclass(frozen=True)
class DirichletClasses(ClassLikelihood):
    """The outputs are the log concentrations of a Dirichlet distribution of the probabilities of C classes.

    >>> predictive = DirichletClasses().predictive(np.log(np.float32([[[1.0, 1.0]]])), {})
    >>> predictive.probs.tolist(), predictive.mutual_information().round(3).tolist()  # log 2 - 1 / 2
    ([[0.5, 0.5]], [0.193...])
    """

    def log_probs(self, latents: LikelihoodLatents, outputs: jax.Array) -> jax.Array:
        return jax.nn.log_softmax(at_least_float32(outputs))

    def predictive(self, outputs: np.ndarray, latents: dict[str, Any]) -> "DirichletPredictive":
        return DirichletPredictive(self, outputs, latents)

    def sums(self, latents: LikelihoodLatents, outputs: jax.Array) -> ClassSums:
        # those of two draws with this mean, spread and mean entropy: a single draw has no spread
        parts = self._parts(outputs)
        log_probs = self.log_probs(latents, outputs) + math.log(2)
        return ClassSums(2 * jnp.ones(()), log_probs, parts["probs"], 2 * parts["std"] ** 2, 2 * parts["noise"])

    def summary(self, latents: LikelihoodLatents, outputs: jax.Array, levels: Sequence[float]) -> dict[str, jax.Array]:
        """As for classes, without quantiles."""
        return self._parts(outputs[0])

    def _parts(self, outputs: jax.Array) -> dict[str, jax.Array]:
        log_probs = self.log_probs({}, outputs)
        probs, concentrations = jnp.exp(log_probs), jnp.exp(at_least_float32(outputs))
        total = concentrations.sum(axis=-1)
        entropy = -(probs * log_probs).sum(axis=-1)
        noise = _digamma(total + 1) - (probs * _digamma(concentrations + 1)).sum(axis=-1)
        noise = jnp.minimum(jnp.maximum(noise, 0.0), entropy)
        return {
            "probs": probs,
            "std": jnp.sqrt(probs * (1 - probs) / (total[..., None] + 1)),
            "entropy": entropy,
            "noise": noise,
            "knowledge": entropy - noise,
        }


@dataclass(frozen=True, eq=False)
class DirichletPredictive(ClassPredictive):
    """Predictions of classes by a Dirichlet distribution of their probabilities.

    Arguments are those of :class:`ClassPredictive`, with a single draw.
    """

    @cached_property
    def sums(self) -> ClassSums:
        return jax.device_get(self.likelihood.sums({}, jnp.asarray(self.outputs[0])))

    def quantile(self, q: ArrayLike) -> np.ndarray:
        """Quantiles of every class's probability, (len(q), N, C): of a Beta distribution, its marginal."""
        concentrations = np.exp(self.outputs[0].astype(np.float64))
        others = concentrations.sum(axis=-1, keepdims=True) - concentrations
        levels = np.asarray(q, np.float64)
        return betaincinv(concentrations, others, levels.reshape(*levels.shape, *[1] * concentrations.ndim))


@dataclass(frozen=True)
class NormalParts(Normal):
    """Three outputs for every number: its mean, log noise and log knowledge. Noise and knowledge are standard
    deviations, and their squares add up.

    >>> predictive = NormalParts().predictive(np.log(np.float32([[[1.0, 4.0, 3.0]]])), {})
    >>> predictive.std.round(4).tolist(), predictive.noise.round(4).tolist(), predictive.knowledge.round(4).tolist()
    ([[5.0]], [[4.0]], [[3.0]])
    """

    scale: Any = 1.0  # in the outputs

    @property
    def outputs_per_target(self) -> int:
        return 3

    @property
    def noise(self) -> float | None:
        return None

    def check(self, outputs: jax.ShapeDtypeStruct, y: np.ndarray) -> np.ndarray:
        if len(outputs.shape) != 2 or outputs.shape[-1] % 3:
            raise ValueError(f"NormalParts needs three outputs per target, but the network has {outputs.shape[1:]}")
        return super().check(outputs, y)

    def distribution(self, latents: LikelihoodLatents, outputs: jax.Array) -> dist.Normal:
        mean, noise, knowledge = self.parts(outputs)
        return dist.Normal(mean, jnp.sqrt(noise**2 + knowledge**2))

    def parts(self, outputs: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Mean, noise and knowledge."""
        mean, log_noise, log_knowledge = jnp.split(at_least_float32(outputs), 3, axis=-1)
        return mean, jnp.exp(log_noise), jnp.exp(log_knowledge)

    def predictive(self, outputs: np.ndarray, latents: dict[str, Any]) -> "NormalPartsPredictive":
        return NormalPartsPredictive(self, outputs, latents)

    def summary(self, latents: LikelihoodLatents, outputs: jax.Array, levels: Sequence[float]) -> dict[str, jax.Array]:
        _, noise, knowledge = self.parts(outputs[0])
        information = 0.5 * jnp.log1p(jnp.square(knowledge / noise))
        summary = super().summary(latents, outputs, levels)
        return summary | {"noise": noise, "knowledge": knowledge, "mutual_information": information}


@dataclass(frozen=True, eq=False)
class NormalPartsPredictive(NormalPredictive):
    """Predictions of numbers by one Gaussian, whose variance is that of noise and that of knowledge."""

    @property
    def noise(self) -> np.ndarray:
        return self.likelihood.units.restore_spread(self._spreads()[0])

    @property
    def knowledge(self) -> np.ndarray:
        return self.likelihood.units.restore_spread(self._spreads()[1])

    def mutual_information(self) -> np.ndarray:
        """Between each target and the weights, in nats, (N, D): log(std / noise)."""
        noise, knowledge = self._spreads()
        return 0.5 * np.log1p(np.square(knowledge / noise))

    def _spreads(self) -> tuple[np.ndarray, np.ndarray]:
        _, log_noise, log_knowledge = np.split(np.asarray(self.outputs[0], np.float32), 3, axis=-1)
        return np.exp(log_noise), np.exp(log_knowledge)


class FromTeacher(Likelihood, namespace="likelihoods"):
    """How far outputs are from what a teacher predicts, as a log probability that :func:`px.fit` can train on."""

    def check(self, outputs: jax.ShapeDtypeStruct, y: np.ndarray) -> np.ndarray:
        return np.asarray(y, np.float32)

    def predictive(self, outputs: np.ndarray, latents: dict[str, Any]) -> Predictive:
        raise TypeError("a likelihood that trains on a teacher's predictions makes none of its own")

    def sums(self, latents: LikelihoodLatents, outputs: jax.Array) -> Sums:
        raise TypeError("a likelihood that trains on a teacher's predictions makes none of its own")

    def reduced_predictive(self, sums: Any, output_shape: tuple[int, ...]) -> Predictive:
        raise TypeError("a likelihood that trains on a teacher's predictions makes none of its own")


@dataclass(frozen=True)
class FromTeacherOfClasses(FromTeacher):
    """-KL(teacher's mean || softmax(f)) - weight (log alpha_0 - teacher's)^2 / 2, from targets (N, C + 1)."""

    weight: float = PRECISION_WEIGHT

    def log_prob(self, latents: LikelihoodLatents, outputs: jax.Array, y: jax.Array) -> jax.Array:
        probs, log_precision = y[:, :-1], y[:, -1]
        cross_entropy = -(probs * jax.nn.log_softmax(outputs)).sum(axis=-1)
        entropy = -jax.scipy.special.xlogy(probs, probs).sum(axis=-1)
        error = jax.nn.logsumexp(outputs, axis=-1) - log_precision
        return -(cross_entropy - entropy) - 0.5 * self.weight * jnp.square(error)


@dataclass(frozen=True)
class FromTeacherOfNumbers(FromTeacher):
    """Squared errors of the mean, in the teacher's standard deviations, and of log noise and log knowledge."""

    def log_prob(self, latents: LikelihoodLatents, outputs: jax.Array, y: jax.Array) -> jax.Array:
        errors = outputs - y
        mean, noise, knowledge = jnp.split(errors, 3, axis=-1)
        _, log_noise, log_knowledge = jnp.split(y, 3, axis=-1)
        variance = jnp.exp(2 * log_noise) + jnp.exp(2 * log_knowledge)
        squares = mean**2 / variance + noise**2 + knowledge**2
        return -0.5 * squares.sum(axis=-1)


def targets_of_classes(probs: np.ndarray, information: np.ndarray) -> np.ndarray:
    """Probabilities, and the log precision of the Dirichlet with this mean and mutual information, (N, C + 1).

    >>> half = np.array([[0.5, 0.5]])
    >>> targets_of_classes(half, np.array([np.log(2) - 0.5])).round(3).tolist()  # alpha = (1, 1)
    [[0.5, 0.5, 0.693...]]
    """
    probs = np.asarray(probs, np.float64)
    probs = probs / probs.sum(axis=-1, keepdims=True)
    low = np.full(len(probs), math.log(SMALLEST_PRECISION))
    high = np.full(len(probs), math.log(LARGEST_PRECISION))
    entropy = entr(probs).sum(axis=-1)
    for _ in range(40):
        middle = (low + high) / 2
        total = np.exp(middle)
        noise = digamma(total + 1) - (probs * digamma(probs * total[:, None] + 1)).sum(axis=-1)
        agrees_more = entropy - noise < information  # a larger precision has less information
        low, high = np.where(agrees_more, low, middle), np.where(agrees_more, middle, high)
    return np.column_stack([probs, (low + high) / 2]).astype(np.float32)


def targets_of_numbers(mean: np.ndarray, noise: np.ndarray, knowledge: np.ndarray) -> np.ndarray:
    """Mean, log noise and log knowledge, (N, 3 D), in standardised units."""
    logs = [np.log(np.maximum(spread, SMALLEST_SPREAD)) for spread in (noise, knowledge)]
    return np.concatenate([mean, *logs], axis=-1).astype(np.float32)


def _digamma(x: jax.Array) -> jax.Array:
    """For x >= 1, by elementary operations, which every format of an export has."""
    shift = sum(1 / (x + i) for i in range(6))
    y = x + 6
    inverse = 1 / (y * y)
    series = inverse * (1 / 12 - inverse * (1 / 120 - inverse * (1 / 252 - inverse / 240)))
    return jnp.log(y) - 0.5 / y - series - shift
