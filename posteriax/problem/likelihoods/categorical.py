"""Several classes."""

from dataclasses import dataclass

import jax
import numpy as np

from posteriax.problem.likelihoods.classes import ClassLikelihood, check_labels
from posteriax.problem.likelihoods.likelihood import LikelihoodLatents, at_least_float32


@dataclass(frozen=True)
class Categorical(ClassLikelihood):
    """One of C classes; the network's last axis holds C logits.

        log p(y | f) = f_y - logsumexp(f)

    Targets are labels 0 to C - 1 in the shape of the outputs without the last axis: one per example, or one per token.

    >>> import jax.numpy as jnp
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
