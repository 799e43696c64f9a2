"""The scale of every weight under the posterior, learned during warm-up from draws and gradients.

    v_i = sqrt( Var[w_i] / Var[g_i] )           g: gradient of the log joint

For a Gaussian, Var[g_i] is one over the variance of w_i given all others, so v_i is the geometric mean of its marginal
and its conditional variance: the diagonal that makes the density closest to a standard normal in Fisher divergence, as
nutpie uses it. Gradients are as informative about scale as draws, so a dozen states already give usable values, and
nothing has to be shrunk towards a constant that may be far too large for a posterior much narrower than its prior.

Both variances are averages that count state t with the weight t^3: early states, far from the bulk, are soon forgotten.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from posteriax._internal.running_moments import add_value

POWER = 3.0
FEWEST = 10  # states before the estimate replaces the first guess


class Diagonal(NamedTuple):
    """Running moments of draws and gradients, each with the weights' shape, and the variances in use."""

    variances: Any
    states: jax.Array  # how many
    mean: Any
    variance: Any
    gradient_mean: Any
    gradient_variance: Any


def start_diagonal(variances: Any) -> Diagonal:
    """No state seen yet; `variances` are a first guess."""
    zeros = jax.tree.map(jnp.zeros_like, variances)
    return Diagonal(variances, jnp.zeros((), jnp.float32), zeros, zeros, zeros, zeros)


def learn(diagonal: Diagonal, position: Any, gradient: Any) -> Diagonal:
    """Update the moments with one more state of the warm-up."""
    count = diagonal.states + 1
    share = (POWER + 1) / (count + POWER)
    mean, variance = add_value(diagonal.mean, diagonal.variance, position, share)
    gradient_mean, gradient_variance = add_value(diagonal.gradient_mean, diagonal.gradient_variance, gradient, share)
    estimate = partial(_estimate, count >= FEWEST)
    variances = jax.tree.map(estimate, diagonal.variances, variance, gradient_variance)
    return Diagonal(variances, count, mean, variance, gradient_mean, gradient_variance)


def stretch(diagonal: Diagonal) -> jax.Array:
    """How much wider than its scales the posterior is because of correlations: 1 for independent weights, else more.

        sqrt( sum r_i^2 / sum r_i ),    r_i = Var[w_i] / v_i

    A trajectory has to be longer by about this to cross the posterior.
    """
    ratios = jax.tree.leaves(jax.tree.map(jnp.divide, diagonal.variance, diagonal.variances))
    squares, total = (sum(jnp.sum(ratio**power) for ratio in ratios) for power in (2, 1))
    known = (diagonal.states >= FEWEST) & (total > 0)
    return jnp.where(known, jnp.sqrt(jnp.maximum(squares / jnp.where(known, total, 1.0), 1.0)), 1.0)


def _estimate(enough: jax.Array, current: jax.Array, of_draws: jax.Array, of_gradients: jax.Array) -> jax.Array:
    """The estimate where there is one; a weight that never moved, or whose gradient never changed, keeps its scale."""
    usable = enough & (of_draws > 0) & (of_gradients > 0)
    estimate = jnp.sqrt(of_draws) / jnp.sqrt(jnp.where(usable, of_gradients, 1.0))  # a ratio could overflow
    usable &= jnp.isfinite(estimate) & (estimate > 0)
    return jnp.where(usable, estimate, current).astype(current.dtype)
