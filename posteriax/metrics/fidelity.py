"""Fidelity: how close a posterior's predictions are to a reference posterior's, usually HMC's. Labels play no part."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from posteriax.diagnostics.chains import rhat as split_rhat
from posteriax.likelihoods.predictive import mean_per_example
from posteriax.metrics.arrays import (
    AnyArray,
    Values,
    as_numbers,
    as_probs,
    fraction_true,
    keeps_precision,
    probs_by_example,
)
from posteriax.metrics.score import Score


@keeps_precision
def agreement(probs: ArrayLike, reference: ArrayLike) -> Values:
    """The fraction of examples for which both predict the same class; best is 1.

    Args:
        probs, reference: of the same shape, with a last axis of classes.

    >>> agreement([[0.9, 0.1], [0.4, 0.6]], [[0.6, 0.4], [0.7, 0.3]]).item()
    0.5
    """
    probs, reference = (as_numbers(n, v, infinite=True) for n, v in (("probs", probs), ("reference", reference)))
    _check_shapes(probs, reference)
    return fraction_true(same_class(probs, reference).reshape(-1))


def same_class(probs: AnyArray, reference: AnyArray) -> AnyArray:
    """Whether both predict the same class. NumPy or JAX arrays."""
    return probs.argmax(axis=-1) == reference.argmax(axis=-1)


AGREEMENT = Score(
    name="agreement",
    meaning="How often the most probable label is the same as the reference's.",
    better="higher",
    per_example=lambda predictive, reference: same_class(probs_by_example(predictive), probs_by_example(reference)),
    needs=("probs",),
    against_reference=True,
)


@keeps_precision
def total_variation(probs: ArrayLike, reference: ArrayLike) -> Values:
    """Mean total variation distance, 1/2 sum_c |p_c - q_c|: 0 for the same predictions, 1 for disjoint ones.

    Args:
        probs, reference: of the same shape, with a last axis of classes.

    >>> total_variation([[0.9, 0.1]], [[0.6, 0.4]]).round(3).item()
    0.3...
    """
    probs, reference = as_probs("probs", probs), as_probs("reference", reference)
    _check_shapes(probs, reference)
    return total_variation_by_example(probs, reference).mean()


def total_variation_by_example(probs: AnyArray, reference: AnyArray) -> AnyArray:
    """The total variation distance of each example. NumPy or JAX arrays."""
    return 0.5 * abs(probs - reference).sum(axis=-1)


TOTAL_VARIATION = Score(
    name="total_variation",
    meaning="How far the predicted probabilities are from the reference's: the share of probability that would have to "
    "move to other labels.",
    better="lower",
    per_example=lambda predictive, reference: total_variation_by_example(
        probs_by_example(predictive).astype(np.float64), probs_by_example(reference).astype(np.float64)
    ),
    needs=("probs",),
    against_reference=True,
    quantity="share of the probability that would have to move to other labels",
    percent=True,
)


@keeps_precision
def wasserstein(draws: ArrayLike, reference: ArrayLike) -> Values:
    """Mean 1-Wasserstein distance of predicted real numbers, in their units, point by point; best is 0.

        W1 = int_0^1 |F^-1(u) - G^-1(u)| du

    exactly, for the distributions that put equal weight on every draw. Evenly spaced quantiles, at the levels
    (2 k - 1) / (2 K), serve as K good draws.

    Args:
        draws: (S, ...), one distribution for every entry of the other axes.
        reference: (T, ...); T may differ from S.

    >>> wasserstein([[0.0], [1.0]], [[1.0], [2.0]]).item()
    1.0
    """
    draws, reference = as_numbers("draws", draws), as_numbers("reference", reference)
    _check_draws(draws, reference)
    return _wasserstein(draws, reference)


WASSERSTEIN = Score(
    name="wasserstein",
    meaning="How far the predicted distribution is from the reference's: the mean distance that probability would have "
    "to move, in the unit of the target.",
    better="lower",
    per_example=lambda predictive, reference: mean_per_example(predictive.distance(reference)),
    needs=("distance",),
    against_reference=True,
    quantity="mean distance, in the unit of the target",
)


def rhat_to_reference(
    draws: ArrayLike, reference: ArrayLike, rhat: Callable[[np.ndarray], np.ndarray] = split_rhat
) -> np.ndarray:
    """R-hat of two posteriors' outputs, as if their draws were two chains: 1 if both have the same distribution.

    With many draws it rises above 1.01 wherever location or scale differ noticeably. A NumPy function: no gradients, no
    ``jax.jit``.

    Args:
        draws: (S, N, ...), such as every draw's probabilities, at least four draws.
        reference: (T, N, ...). The longer of the two is thinned evenly to the length of the shorter.
        rhat: which form: :func:`posteriax.diagnostics.rhat` by default, or
            :func:`posteriax.diagnostics.rhat_between`, the classical one (Izmailov et al. 2021).

    Returns:
        (N, ...). NaN if neither varies.

    >>> rng = np.random.default_rng(0)
    >>> ours, theirs = rng.normal(size=(500, 2)), rng.normal([0.0, 2.0], size=(800, 2))
    >>> rhat_to_reference(ours, theirs).round(1)
    array([1. , 1.5])
    """
    draws, reference = np.asarray(draws), np.asarray(reference)
    _check_draws(draws, reference)
    count = min(len(draws), len(reference))
    return rhat(np.stack([_thinned(array, count) for array in (draws, reference)]))


def _thinned(array: np.ndarray, count: int) -> np.ndarray:
    return array[np.arange(count) * len(array) // max(count, 1)]


@jax.jit
def _wasserstein(draws: jax.Array, reference: jax.Array) -> jax.Array:
    ours, theirs, weight = _coupling(len(draws), len(reference))
    gaps = jnp.abs(jnp.sort(draws, axis=0)[ours] - jnp.sort(reference, axis=0)[theirs])
    return jnp.tensordot(jnp.asarray(weight, gaps.dtype), gaps, axes=1).mean()


def _coupling(s: int, t: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which order statistics of s and of t draws are paired, and with what weights, from both quantile functions."""
    ends = np.union1d(np.arange(1, s + 1) * t, np.arange(1, t + 1) * s)  # in units of 1 / (s t), so whole numbers
    starts = np.concatenate([[0], ends[:-1]])
    return starts // t, starts // s, (ends - starts) / (s * t)


def _check_draws(draws: Values, reference: Values) -> None:
    if draws.ndim == 0 or reference.ndim == 0 or draws.shape[1:] != reference.shape[1:]:
        raise ValueError(
            f"draws and reference must have a first axis of draws and then the same shape, got {draws.shape} and "
            f"{reference.shape}"
        )


def _check_shapes(probs: jax.Array, reference: jax.Array) -> None:
    if probs.shape != reference.shape or probs.ndim == 0:
        raise ValueError(f"both predictions must have the same shape, got {probs.shape} and {reference.shape}")
