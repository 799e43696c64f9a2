"""Where a chain starts: in the typical set, reached by a short L-BFGS climb that also estimates the posterior's width.

A chain that starts at a draw from a wide prior may be a million posterior widths from the typical set. L-BFGS gets
there in tens of gradients, whatever the scales of the weights. The last steps s of the climb and the changes y of the
gradient over them also give every weight's scale, before anything has been sampled:

    v_i = sqrt( sum s_i^2 / sum y_i^2 )          for a Gaussian with independent weights, exactly their variances
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from posteriax.problem import Latents

ROUNDS = 3
CLIMB_STEPS = 100  # at most, per round
LINE_SEARCH_STEPS = 30  # at most, per step of the climb
NEGLIGIBLE = 1e-3  # nats: five smaller changes in a row end the climb
CONSTANT_NOISE = 0.1  # how far apart chains start where a leaf's initial values are all the same
NOISE_SHARE = 0.3  # the same for random initial weights, as a fraction of their own spread


class TypicalPoint(NamedTuple):
    """A point in the typical set of a density over a vector, and a first guess at the variance of every entry."""

    position: jax.Array
    variances: jax.Array


def jitter_start(key: jax.Array, start: Latents, scales: Sequence[float]) -> Latents:
    """Add noise to every starting value, so that no two chains start alike; never more than the priors' scales.

    Initialised weights get a fraction of their own spread, which preserves the size of a deep network's outputs.
    """
    leaves, treedef = jax.tree.flatten(start)
    keys = jax.random.split(key, len(leaves))

    def noisy(leaf: jax.Array, scale: float, key: jax.Array) -> jax.Array:
        spread = jnp.std(leaf)
        amount = jnp.where(spread > 0, NOISE_SHARE * spread, min(CONSTANT_NOISE, scale))
        return leaf + (amount * jax.random.normal(key, leaf.shape)).astype(leaf.dtype)

    return jax.tree.unflatten(treedef, list(map(noisy, leaves, scales, keys)))


def find_typical_set(log_density: Callable[[jax.Array], jax.Array], start: jax.Array) -> TypicalPoint:
    """Climb from `start` until the log density hardly changes; then repeat, in the units found so far.

    Args:
        log_density: of a vector, in units in which the variances of interest are at most 1.
        start: where to begin; returned unchanged if no step leads uphill.
    """

    def again(_: int, point: TypicalPoint) -> TypicalPoint:
        units = jnp.sqrt(point.variances)
        climbed = _climb(lambda moved: log_density(point.position + units * moved), jnp.zeros_like(start))
        variances = jnp.minimum(point.variances * climbed.variances, 1.0)
        return TypicalPoint(point.position + units * climbed.position, variances)

    return jax.lax.fori_loop(0, ROUNDS, again, TypicalPoint(start, jnp.ones_like(start)))


def _climb(log_density: Callable[[jax.Array], jax.Array], start: jax.Array) -> TypicalPoint:
    def loss(vector: jax.Array) -> jax.Array:
        return -log_density(vector).astype(vector.dtype)  # in double precision, data may be wider than the weights

    search = optax.scale_by_zoom_linesearch(LINE_SEARCH_STEPS, initial_guess_strategy="one")
    optimizer = optax.lbfgs(linesearch=search)
    value_and_grad = optax.value_and_grad_from_state(loss)

    def advance(climb: _Climb) -> _Climb:
        value, gradient = value_and_grad(climb.position, state=climb.optimizer)
        updates, state = optimizer.update(
            gradient, climb.optimizer, climb.position, value=value, grad=gradient, value_fn=loss
        )
        position, reached = climb.position + updates, optax.tree_utils.tree_get(state, "value")
        better = (reached < climb.lowest) & jnp.isfinite(position).all()
        return _Climb(
            position,
            state,
            climb.step + 1,
            idle=jnp.where(jnp.abs(value - reached) > NEGLIGIBLE, 0, climb.idle + 1),
            best=jnp.where(better, position, climb.best),
            lowest=jnp.where(better, reached, climb.lowest),
        )

    def climbing(climb: _Climb) -> jax.Array:
        return (climb.step < CLIMB_STEPS) & (climb.idle < 5)

    none = jnp.int32(0)
    first = _Climb(start, optimizer.init(start), none, none, best=start, lowest=loss(start))
    last = jax.lax.while_loop(climbing, advance, first)
    memory = last.optimizer[0]
    squares = [jnp.square(pairs).sum(axis=0) for pairs in (memory.diff_params_memory, memory.diff_updates_memory)]
    variances = jnp.sqrt(squares[0]) / jnp.sqrt(squares[1])
    usable = jnp.isfinite(variances) & (variances > 0)
    return TypicalPoint(last.best, jnp.where(usable, variances, 1.0).astype(start.dtype))


class _Climb(NamedTuple):
    position: jax.Array
    optimizer: optax.OptState
    step: jax.Array
    idle: jax.Array  # consecutive steps with a negligible change
    best: jax.Array  # a line search that runs out of steps may end higher than it began, and the climb recovers
    lowest: jax.Array
