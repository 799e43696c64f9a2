"""Several classes."""

from dataclasses import dataclass

import jax
import numpy as np

from posteriax.problem.likelihoods.classes import ClassLikelihood, as_labels
from posteriax.problem.likelihoods.likelihood import Unknown, at_least_float32, check_shape


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
        labels = as_labels(y)
        classes = outputs.shape[-1]
        if labels.max() >= classes:
            raise ValueError(
                f"y has labels up to {labels.max()}, but the network has {classes} outputs (labels 0 to "
                f"{classes - 1}). Did you mean {int(labels.max()) + 1} classes?"
            )
        if labels.ndim == len(outputs.shape) and labels.shape[-1] == 1:
            labels = labels[..., 0]
        check_shape("labels", labels, outputs.shape[:-1])
        return labels

    def log_probs(self, unknowns: Unknown, outputs: jax.Array) -> jax.Array:
        return jax.nn.log_softmax(at_least_float32(outputs))
