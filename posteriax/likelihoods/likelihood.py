"""The contract of a likelihood."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from posteriax._internal.settings import Savable
from posteriax.likelihoods.predictive import Predictive, Sums

LikelihoodLatents = dict[str, jax.Array]  # a likelihood's own latent variables by name, such as a learned noise scale


class Likelihood(Savable, ABC, namespace="likelihoods"):
    """What a network's outputs say about the targets, as a frozen dataclass of plain settings.

    Outputs and targets have a leading axis of examples. Most likelihoods derive from
    :class:`px.likelihoods.ClassLikelihood` (a finite set of outcomes) or :class:`px.likelihoods.NumberLikelihood` (any
    NumPyro distribution), which need only one function.
    """

    predicts_classes: ClassVar[bool] = False  # whether `log_probs` gives the probability of every outcome

    def latents(self) -> LikelihoodLatents:
        """Starting values of the likelihood's own latents: by default numbers, at the means of their priors."""
        return {name: jnp.asarray(prior.mean, float) for name, prior in self.priors().items()}

    def priors(self) -> dict[str, dist.Distribution]:
        """The priors of its own latent variables; empty if it has none."""
        return {}

    @property
    def needs_target_scale(self) -> bool:
        """Whether a prior of its own latents depends on the scale of the targets, which it does not know yet."""
        return False

    def for_target_scale(self, scale: float) -> "Likelihood":
        """The same likelihood for targets of this standard deviation, which it then keeps as a plain setting.

        :func:`px.fit` calls it once, before anything is inferred, if `needs_target_scale`.
        """
        return self

    @property
    def outputs_per_target(self) -> int:
        """How many outputs of the network each number that is predicted needs."""
        return 1

    @property
    def log_noise(self) -> str | None:
        """The latent that is the logarithm of the standard deviation of Gaussian noise, if there is one.

        :func:`posteriax.priors.tune` then chooses it, and gives it to `with_noise`.
        """
        return None

    @property
    def noise(self) -> float | None:
        """The standard deviation of Gaussian noise, in the network's units, if it is given and not inferred."""
        return None

    def with_noise(self, scale: float) -> "Likelihood":
        """The same likelihood with Gaussian noise of this standard deviation, for those that have `log_noise`."""
        raise TypeError(f"{self!r} has no Gaussian noise to fix")

    @abstractmethod
    def check(self, outputs: jax.ShapeDtypeStruct, y: np.ndarray) -> np.ndarray:
        """The targets in the shape and dtype that `log_prob` takes; raises if they do not match the outputs."""

    @abstractmethod
    def log_prob(self, latents: LikelihoodLatents, outputs: jax.Array, y: jax.Array) -> jax.Array:
        """log p(y_i | outputs_i) of every example, (N,): summed over whatever axes one example has."""

    @abstractmethod
    def predictive(self, outputs: np.ndarray, latents: dict[str, Any]) -> Predictive:
        """Predictions from the outputs of every draw, (S, N, ...), and the latents of every draw, (S, ...) each."""

    @abstractmethod
    def sums(self, latents: LikelihoodLatents, outputs: jax.Array) -> Sums:
        """The sums of a single draw, for ``predict(..., reduce=True)``."""

    @abstractmethod
    def reduced_predictive(self, sums: Any, output_shape: tuple[int, ...]) -> Predictive:
        """Predictions from the sums over all draws."""

    def summary(self, latents: LikelihoodLatents, outputs: jax.Array, levels: Sequence[float]) -> dict[str, jax.Array]:
        """What the predictive says of every example, by name, as a function that JAX can trace and export.

        Args:
            latents: the likelihood's own latents of every draw, (S, ...) each.
            outputs: the network's outputs of every draw, (S, N, ...).
            levels: of the quantiles.
        """
        raise TypeError(f"{self!r} has no summary() of its predictions, so they cannot be exported")

    def log_probs(self, latents: LikelihoodLatents, outputs: jax.Array) -> jax.Array:
        """The log probability of every outcome, in a last axis, if there is a finite set of them."""
        raise TypeError(f"{self!r} does not predict classes")


def check_shape(what: str, y: np.ndarray, shape: tuple[int, ...]) -> None:
    if y.shape[1:] != tuple(shape[1:]):
        raise ValueError(f"y has {what} of shape {y.shape[1:]} per example, but the network's outputs need {shape[1:]}")


def sum_per_example(values: jax.Array) -> jax.Array:
    return values.reshape(values.shape[0], -1).sum(axis=1)


def at_least_float32(outputs: jax.Array) -> jax.Array:
    return outputs.astype(jnp.promote_types(outputs.dtype, jnp.float32))
