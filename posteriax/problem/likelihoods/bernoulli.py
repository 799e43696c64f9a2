"""Binary targets."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from posteriax.problem.likelihoods.classes import ClassLikelihood, as_labels
from posteriax.problem.likelihoods.likelihood import LikelihoodLatents, at_least_float32


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
                f"{outputs.shape[1:]}. "
                f"For several classes use px.Categorical()."
            )
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
