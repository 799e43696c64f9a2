"""Grades with an order: a cumulative logit."""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from posteriax.likelihoods.classes import ClassLikelihood, check_labels
from posteriax.likelihoods.likelihood import LikelihoodLatents, at_least_float32

FIRST_WIDTH, GAP_WIDTH = 3.0, 1.0  # of the priors of the first cut point, and of the logarithm of a gap
FARTHEST = 30.0  # beyond, a probability is below float32's smallest step from 1


@dataclass(frozen=True)
class Ordinal(ClassLikelihood):
    """One of C grades with an order, labelled 0 to C - 1; the network has a single output f.

        P(y <= k | f) = sigmoid(c_k - f)        c_0 < c_1 < ... < c_{C-2}: cut points, inferred with the weights

    A larger output makes higher grades more probable. It has one output where :class:`px.Categorical` has C, and needs
    fewer rows where grades have an order (McCullagh 1980). The first cut point has the prior N(log(1 / (C - 1)), 3^2),
    the logarithms of the gaps N(0, 1).

    Args:
        grades: C, at least 3.

    >>> cuts = {"first_cut": jnp.array(-1.0), "log_gaps": jnp.array([jnp.log(2.0)])}
    >>> jnp.exp(Ordinal(3).log_probs(cuts, jnp.array([[0.0]]))).round(3).tolist()  # sigmoid(-1), ..., sigmoid(-1)
    [[0.269..., 0.462..., 0.269...]]
    """

    grades: int = 3

    def __post_init__(self) -> None:
        if not isinstance(self.grades, int | np.integer) or self.grades < 3:
            raise ValueError(
                f"grades must be a whole number of at least 3, got {self.grades!r}; for 2 use px.Bernoulli()"
            )

    def priors(self) -> dict[str, dist.Distribution]:
        gaps = dist.Normal(jnp.zeros(self.grades - 2), GAP_WIDTH)
        return {"first_cut": dist.Normal(-math.log(self.grades - 1), FIRST_WIDTH), "log_gaps": gaps}

    def check(self, outputs: jax.ShapeDtypeStruct, y: np.ndarray) -> np.ndarray:
        if len(outputs.shape) != 2 or outputs.shape[-1] != 1:
            raise ValueError(
                f"Ordinal needs one output per example, but the network has outputs of shape {outputs.shape[1:]}"
            )
        return check_labels(y, (*outputs.shape[:-1], self.grades), f"Ordinal has {self.grades} grades")

    def log_probs(self, latents: LikelihoodLatents, outputs: jax.Array) -> jax.Array:
        gaps = jnp.concatenate([jnp.atleast_1d(latents["first_cut"]), jnp.exp(latents["log_gaps"])])
        at = jnp.clip(jnp.cumsum(gaps) - at_least_float32(outputs), -FARTHEST, FARTHEST)  # (N, C - 1)
        below, above = jax.nn.log_sigmoid(at), jax.nn.log_sigmoid(-at)
        # log [sigmoid(b) - sigmoid(a)] = log sigmoid(b) + log sigmoid(-a) + log(1 - exp(a - b)), without cancellation
        between = below[:, 1:] + above[:, :-1] + jnp.log(-jnp.expm1(jnp.minimum(at[:, :-1] - at[:, 1:], -1e-6)))
        return jnp.concatenate([below[:, :1], between, above[:, -1:]], axis=1)
