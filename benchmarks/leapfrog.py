"""The cost of an HMC leapfrog relative to a hand-written loop, and the gain from a second chain on a second core."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.table import Table

import posteriax as px
from benchmarks.driver import Driver
from benchmarks.mlp import mlp, mlp_weights
from benchmarks.timing import interleave, ratio_table, timed

LEAPFROGS, TRANSITIONS, STEP_SIZE = 100, 10, 1e-3
SIZES = (2, 29, 29, 2)  # 1,017 weights
HAND_WRITTEN = "hand-written loop"


def report(rounds: int) -> list[Table]:
    return [table(interleave(cases(), rounds))]


def cases() -> dict[str, Callable[[], float]]:
    """Compile each case; what is returned takes some leapfrogs and returns the seconds of one."""
    (x, y), _ = px.data.two_moons(train=500, test=1)
    made = {HAND_WRITTEN: hand_written(x, y), "HMC, one chain": through_driver(x, y, 1)}
    if len(jax.devices()) > 1:
        made["HMC, two chains on two devices (per chain)"] = through_driver(x, y, 2)
    return made


def table(times: dict[str, np.ndarray]) -> Table:
    title = "One leapfrog step, MLP 2-29-29-2 on 500 points"
    return ratio_table(times, HAND_WRITTEN, unit="µs", title=title)


def through_driver(x: Any, y: Any, chains: int) -> Callable[[], float]:
    """Seconds per leapfrog and chain, in the program that `px.fit` runs."""
    problem = px.Problem((mlp, mlp_weights(SIZES)), px.Categorical())
    method = px.HMC(
        step_size=STEP_SIZE, trajectory=STEP_SIZE * (LEAPFROGS - 0.5), jitter=0.0, start="network", warmup=1
    )
    driver = Driver(problem, method, (x, y), members=chains)
    return lambda: driver.advance(TRANSITIONS)[2] / (LEAPFROGS * TRANSITIONS * chains)


def hand_written(x: Any, y: Any) -> Callable[[], float]:
    """Bare leapfrog steps on the same log joint: no momentum draws, no accept step, no records."""
    x, y = jnp.asarray(x), jnp.asarray(y)
    weights = mlp_weights(SIZES)

    def log_joint(weights: Any) -> jax.Array:
        log_probs = jnp.take_along_axis(jax.nn.log_softmax(mlp(weights, x)), y[:, None], axis=1)
        return log_probs.sum() - 0.5 * sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(weights))

    gradient = jax.grad(log_joint)

    def leapfrog(_: Any, carry: Any) -> Any:
        w, m, g = carry
        m = jax.tree.map(lambda a, b: a + 0.5 * STEP_SIZE * b, m, g)
        w = jax.tree.map(lambda a, b: a + STEP_SIZE * b, w, m)
        g = gradient(w)
        return w, jax.tree.map(lambda a, b: a + 0.5 * STEP_SIZE * b, m, g), g

    count = LEAPFROGS * TRANSITIONS
    run = jax.jit(lambda carry: jax.lax.fori_loop(0, count, leapfrog, carry))
    start = (weights, jax.tree.map(jnp.zeros_like, weights), gradient(weights))

    return lambda: timed(lambda: run(start))[1] / count
