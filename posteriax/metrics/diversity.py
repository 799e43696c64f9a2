"""Diversity: how much the members of an ensemble, or the draws of a posterior, differ.

For classes, functions take the members' probabilities, (K, N, C), and give one number per member: its mean over the
K - 1 others. The mean of these is the mean over all pairs, which papers report (Fort, Hu and Lakshminarayanan 2019).
For real numbers, the variance of y is split into noise and the disagreement of the draws. (Entropy and mutual
information are methods of every predictive.)
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from numpy.typing import ArrayLike

from posteriax.metrics.arrays import Values, as_numbers, as_probs, fraction_true, keeps_precision, scales_like
from posteriax.metrics.classification import accuracy


@keeps_precision
def disagreement(probs: ArrayLike) -> Values:
    """The fraction of examples for which two members predict different classes, (K,): 0 if all predict the same.

    Args:
        probs: (K, N, C), at least two members.

    >>> members = [[[0.9, 0.1], [0.9, 0.1]], [[0.8, 0.2], [0.3, 0.7]]]
    >>> disagreement(members).tolist()
    [0.5, 0.5]
    """
    return _disagreement(_members(probs).argmax(axis=-1))


@keeps_precision
def disagreement_over_error(probs: ArrayLike, y: ArrayLike) -> Values:
    """Disagreement divided by the error rate of the mean prediction, (K,): bad members also differ, by being wrong.

    Infinite if the mean prediction makes no error but members disagree; NaN if they agree too.

    Args:
        probs: (K, N, C), at least two members.
        y: labels, (N,).

    >>> members = [[[0.9, 0.1], [0.9, 0.1]], [[0.8, 0.2], [0.3, 0.7]]]
    >>> disagreement_over_error(members, [0, 1]).tolist()
    [1.0, 1.0]
    """
    probs = _members(probs)
    return _disagreement(probs.argmax(axis=-1)) / (1.0 - accuracy(probs.mean(axis=0), y))


@keeps_precision
def pairwise_kl(probs: ArrayLike) -> Values:
    """KL(p_k || p_j) of a member k from the others j in nats, mean over examples and others, (K,); 0 if all are equal.

    Both directions of every pair are in the mean over members, so that it does not depend on the members' order.

    Args:
        probs: (K, N, C), at least two members. Infinite if a member gives 0 to what another does not.

    >>> pairwise_kl([[[0.9, 0.1]], [[0.5, 0.5]]]).tolist()
    [0.368..., 0.510...]
    """
    return _pairwise_kl(_members(probs))


class VarianceParts(NamedTuple):
    """The two parts of :func:`variance_parts`; their sum is the variance of y.

    Args:
        noise: what would remain if the weights were known.
        weights: the disagreement of the draws, which more data could remove.

    >>> VarianceParts(noise=jnp.ones(2), weights=jnp.zeros(2)).noise.tolist()
    [1.0, 1.0]
    """

    noise: Values
    weights: Values


@keeps_precision
def variance_parts(mean: ArrayLike, scale: ArrayLike) -> VarianceParts:
    """The variance of y as noise and disagreement of the draws, by the law of total variance, (N, ...) each.

        Var[y] = mean_s sigma_s^2 + Var_s[mu_s]

    For a predictive of real numbers, ``variance_parts(*predictive.moments_per_draw)``. For classes, the one-hot label
    has ``mean=probs`` and ``scale=sqrt(probs * (1 - probs))``, (S, N, C).

    Args:
        mean: of every draw, (S, N, ...).
        scale: standard deviation of the noise, of the same shape or one that broadcasts to it.

    >>> parts = variance_parts(mean=[[0.0], [2.0]], scale=3.0)
    >>> parts.noise.item(), parts.weights.item()
    (9.0, 1.0)
    """
    mean, scale = as_numbers("mean", mean), as_numbers("scale", scale)
    if mean.ndim == 0:
        raise ValueError("mean must have a first axis of draws, got a number")
    return VarianceParts(jnp.square(scales_like(mean, scale)).mean(axis=0), mean.var(axis=0))


@jax.jit
def _disagreement(predicted: jax.Array) -> jax.Array:
    differs = jax.lax.map(lambda member: fraction_true(member != predicted).sum(), predicted)
    return differs / (len(predicted) - 1)


@jax.jit
def _pairwise_kl(probs: jax.Array) -> jax.Array:
    from_all = lambda member: _relative_entropy(member, probs).sum(axis=-1).mean(axis=-1).sum()  # noqa: E731
    # one member after another: all pairs at once would hold K copies of all predictions
    return jax.lax.map(from_all, probs) / (len(probs) - 1)


def _relative_entropy(p: jax.Array, q: jax.Array) -> jax.Array:
    # exactly 0 for equal members; a fused p log p - p log q (JAX's rel_entr) rounds one of its products only
    return jnp.where(p > 0, p * (jnp.log(p) - jnp.log(q)), 0.0)


def _members(probs: ArrayLike) -> jax.Array:
    probs = as_probs("probs", probs)
    if probs.ndim < 3 or len(probs) < 2:
        raise ValueError(f"probs must be (members, examples, classes) with at least two members, got {probs.shape}")
    return probs.reshape(len(probs), -1, probs.shape[-1])
