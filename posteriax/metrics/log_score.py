"""The log score: minus the log probability, or density, of what happened. In nats."""

import jax
import jax.numpy as jnp
from jax.scipy.stats import norm
from numpy.typing import ArrayLike

from posteriax.likelihoods.predictive import log_mean
from posteriax.metrics.arrays import Values, as_gaussians, as_probs, keeps_precision, score_classes
from posteriax.metrics.score import Score

NLL = Score(
    name="nll",
    meaning="Negative log likelihood: minus the logarithm of the probability given to what really happened, per "
    "example (nats). Being sure and wrong costs most.",
    better="lower",
    per_example=lambda predictive, y: -predictive.log_prob(y),
    needs=("log_prob",),
    quantity="negative log likelihood (nll)",
    proper=True,
)


@keeps_precision
def nll(probs: ArrayLike, y: ArrayLike) -> Values:
    """The mean negative log probability of the label, in nats; best is 0.

        -1/N sum_i log p_i[y_i]

    For a posterior's predictions prefer ``px.evaluate``, which averages over draws in the log domain: a probability
    that has underflowed to 0 scores infinity here.

    Args:
        probs: (N, C), or (S, N, C) for one value per draw.
        y: labels, (N,).

    >>> nll([[0.5, 0.5]], [1]).round(3).item()
    0.693...
    """
    return score_classes(_nll, as_probs("probs", probs), y)


@keeps_precision
def normal_nll(mean: ArrayLike, scale: ArrayLike, y: ArrayLike) -> Values:
    """Mean negative log density of y under a Gaussian, or a mixture of one Gaussian per draw, in nats per example.

        -1/N sum_i log 1/S sum_s prod_d N(y_id; mu_sid, sigma_sid^2)

    Lower is better; a density has no best value, and it changes with the units of y. This is the "nll" of
    ``px.evaluate`` for a predictive of real numbers.

    Args:
        mean: (N, ...) for one Gaussian, (S, N, ...) for a mixture.
        scale: standard deviations, of the same shape or one that broadcasts to it.
        y: (N, ...).

    >>> normal_nll(mean=[0.0, 0.0], scale=1.0, y=[0.0, 0.0]).round(3).item()
    0.919...
    """
    mean, scale, y = as_gaussians(mean, scale, y)
    log_density = norm.logpdf(y, mean, scale)
    return -log_mean(log_density.reshape(*log_density.shape[:2], -1).sum(axis=-1)).mean()


@jax.jit
def _nll(probs: jax.Array, y: jax.Array) -> jax.Array:
    return -jnp.log(jnp.take_along_axis(probs, y[:, None], axis=1)).mean()
