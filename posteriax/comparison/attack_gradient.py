"""The gradient that an attack follows: of the predictive p(y | x, D) = 1/S sum_s p(y | x, w_s) with respect to x.

It is the gradient of the mean over draws, not of one draw's log probability (expectation over draws, Athalye et al.
2018):

    d p(y | x, D) / dx = 1/S sum_s p_s (1 - p_s) d log[p_s / (1 - p_s)] / dx        p_s = p(y | x, w_s)

Log-odds have a gradient even where softmax is saturated, and the weights p_s (1 - p_s) are kept in the log domain: a
network whose probabilities are 1 in float32 gets its true gradient, not a zero that would look like robustness.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import entr, logsumexp

from posteriax.posterior import outputs_of
from posteriax.problem import Latents, Problem


class Slope(NamedTuple):
    """The predictive at x and its gradient, from any number of draws."""

    log_probs: Any  # log sum_s p_s of every class, (N, C)
    log_weight: Any  # the largest log[p_s (1 - p_s)] of the label, (N,)
    of_x: Any  # d sum_s p_s / dx of the label, divided by the largest p_s (1 - p_s); like x


def join(a: Slope, b: Slope) -> Slope:
    """Combine two sets of draws."""
    largest = jnp.maximum(a.log_weight, b.log_weight)
    ours, theirs = jnp.exp(a.log_weight - largest), jnp.exp(b.log_weight - largest)
    of_x = jax.tree.map(lambda u, v: _per_example(ours, u) + _per_example(theirs, v), a.of_x, b.of_x)
    return Slope(jnp.logaddexp(a.log_probs, b.log_probs), largest, of_x)


def slope_of_draws(problem: Problem, draws: Latents, inputs: tuple[Any, jax.Array], count: Any) -> Slope:
    """The slope at inputs (x, label) over the first `count` draws, one after another to need the memory of one."""
    x, label = inputs

    def of(index: Any) -> Slope:
        one: Latents = jax.tree.map(lambda leaf: leaf[index], draws)
        _, pull_back, (log_probs, log_weight) = jax.vjp(partial(_log_odds, problem, one, label), x, has_aux=True)
        (of_x,) = pull_back(jnp.ones_like(log_weight))
        return Slope(log_probs, log_weight, jax.tree.map(_at_least_float32, of_x))

    log_probs, log_weight, of_x = jax.eval_shape(of, 0)
    none = Slope(_full(log_probs, -jnp.inf), _full(log_weight, -jnp.inf), jax.tree.map(lambda a: _full(a, 0.0), of_x))
    return jax.lax.fori_loop(0, count, lambda i, slope: join(slope, of(i)), none)


def _log_odds(problem: Problem, draw: Latents, label: jax.Array, x: Any) -> tuple[jax.Array, Any]:
    log_probs = problem.likelihood.log_probs(draw.likelihood, outputs_of(problem, draw.network, x))
    is_label = jnp.arange(log_probs.shape[-1]) == label[:, None]
    own = logsumexp(log_probs, axis=-1, where=is_label)
    others = logsumexp(log_probs, axis=-1, where=~is_label)
    return own - others, (log_probs, own + others)


@jax.jit
def predicted(log_sums: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Labels and entropies, from log probabilities up to an additive constant."""
    return log_sums.argmax(axis=-1), entr(jax.nn.softmax(log_sums)).sum(axis=-1)


def _full(spec: Any, value: float) -> jax.Array:
    return jnp.full(spec.shape, value, spec.dtype)


def _per_example(factor: jax.Array, values: jax.Array) -> jax.Array:
    return factor.reshape(-1, *[1] * (values.ndim - 1)) * values


def _at_least_float32(values: jax.Array) -> jax.Array:
    return values.astype(jnp.promote_types(values.dtype, jnp.float32))
