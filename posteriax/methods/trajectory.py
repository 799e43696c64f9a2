"""How long a trajectory of HMC lasts, and by how much its length varies."""

import math

import jax
import jax.numpy as jnp

from posteriax.methods.mass import reference_scale
from posteriax.problem import Problem

JITTER = 0.1  # of a trajectory that correlations have not stretched


def prior_trajectory(given: float | None, problem: Problem) -> float:
    """The time of a trajectory with masses from the priors, unless it is given."""
    if given is not None:
        return given
    return math.pi / 2 * reference_scale(problem) * math.sqrt(problem.temperature)


def spread(length: jax.Array) -> jax.Array:
    """The jitter of a trajectory that was stretched from pi / 2 to `length`, as a fraction of it.

    A trajectory that is long enough for correlated weights can be a whole number of periods of the others: with a
    stretch of 4, whose trajectory lasts 2 pi, and a tenth of it as jitter, log sigma of a linear regression had 160
    effective draws in 4,000. Lengths that differ by a period in all average its return away, and none is shorter
    than a quarter of a period.
    """
    return jnp.clip(length - math.pi / 2, JITTER * length, math.pi) / length


def refuse_cut_trajectories(wanted: float, allowed: int) -> None:
    """Raise if more than half of every trajectory would be left out."""
    if wanted > 2 * allowed:
        raise RuntimeError(
            f"HMC needs {math.ceil(wanted):,} leapfrogs for one trajectory, but max_leapfrogs={allowed:,} allows less "
            f'than half of them: chains would hardly move. Try px.NUTS(), masses="adapted", inputs of comparable '
            f"scales, or max_leapfrogs={math.ceil(wanted)} if you can afford it."
        )
