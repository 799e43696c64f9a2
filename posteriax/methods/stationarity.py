"""Has variational inference converged? Gradients of its last steps, in the posterior's own units.

Of the last fifth of the steps, the first half sums whitened gradients g (see :mod:`posteriax.methods.whitened`),
and each step of the second half is compared with their mean:

    stationarity_t = g_t . mean(g before) / size,   on average |E g|^2 / size: the squared distance to the optimum in sd

The noise of g_t is independent of that of the mean, so the product averages to 0 at the optimum. A learning rate that
has decayed to 0 stops the parameters but not their gradients, so it cannot hide that they are off.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from posteriax.families import Family
from posteriax.methods.ensemble import same_for_all_members
from posteriax.methods.whitened import count, whiten

PARTS = 10  # of a run: the second to last sums gradients, the last one compares with them


def no_gradients(families: Mapping[str, Family], variational: Mapping[str, Any]) -> dict[str, Any]:
    """A sum of no gradients."""

    def none(own: Mapping[str, Any]) -> dict[str, Any]:
        return {name: whiten(families[name], leaf, leaf) for name, leaf in own.items()}

    shapes = jax.eval_shape(none, variational)
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def track_stationarity(
    families: Mapping[str, Family],
    step: jax.Array,
    steps: int,
    variational: Mapping[str, Any],
    gradient: Mapping[str, Any],
    total: dict[str, Any],
) -> tuple[dict[str, Any], jax.Array]:
    """The new sum, and the step's stationarity: 0 before the last part of the run."""
    part = steps // PARTS
    size = sum(count(families[name], leaf) for name, leaf in variational.items())
    if part == 0 or size == 0:
        return total, jnp.zeros(())

    def own() -> dict[str, Any]:
        return {name: whiten(families[name], leaf, gradient[name]) for name, leaf in variational.items()}

    def compare() -> tuple[dict[str, Any], jax.Array]:
        products = jax.tree.map(lambda a, b: jnp.vdot(a, b).astype(jnp.float32), own(), total)
        return total, sum(jax.tree.leaves(products), jnp.zeros(())) / (float(part) * size)

    place = same_for_all_members(step - (steps - 2 * part))
    return jax.lax.switch(
        (place >= 0).astype(int) + (place >= part),
        [lambda: (total, jnp.zeros(())), lambda: (jax.tree.map(jnp.add, total, own()), jnp.zeros(())), compare],
    )
