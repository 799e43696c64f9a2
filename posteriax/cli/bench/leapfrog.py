"""The cost of an HMC leapfrog relative to a hand-written loop, and the gain from a second chain on a second core."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import posteriax as px
from posteriax._internal.compiler import jit
from posteriax.cli.bench.mlp import mlp, mlp_weights
from posteriax.cli.bench.timing import interleave, ratio_table
from posteriax.data import full_batch
from posteriax.methods import Ensemble, Task
from posteriax.run import Program, members_mesh

LEAPFROGS, TRANSITIONS, STEP_SIZE = 100, 10, 1e-3
SIZES = (2, 29, 29, 2)  # 1,017 weights
HAND_WRITTEN = "hand-written loop"


def run_leapfrog(rounds: int = 15) -> dict[str, np.ndarray]:
    """Time one leapfrog of a ~1,000-weight network on 500 points; for two chains, per chain."""
    return interleave(cases(), rounds)


def cases() -> dict[str, Callable[[], float]]:
    """Compile each case; what is returned takes some leapfrogs and returns the seconds of one."""
    (x, y), _ = px.data.two_moons(train=500, test=1)
    made = {HAND_WRITTEN: hand_written(x, y), "HMC, one chain": through_driver(x, y, 1)}
    if len(jax.devices()) > 1:
        made["HMC, two chains on two devices (per chain)"] = through_driver(x, y, 2)
    return made


def table(times: dict[str, np.ndarray]) -> Any:
    title = "One leapfrog step, MLP 2-29-29-2 on 500 points"
    return ratio_table(times, HAND_WRITTEN, unit=1e-6, unit_name="µs", title=title)


def through_driver(x: Any, y: Any, chains: int) -> Callable[[], float]:
    """Seconds per leapfrog and chain, in the program that `px.fit` runs."""
    problem = px.Problem((mlp, mlp_weights(SIZES)), px.Categorical())
    method = px.HMC(
        step_size=STEP_SIZE, trajectory=STEP_SIZE * (LEAPFROGS - 0.5), jitter=0.0, start="network", warmup=1
    )
    example = jax.ShapeDtypeStruct((2,), jnp.float32)
    task = Task(problem=problem, example=example, num_examples=len(y), steps=10**6)
    program = Program(Ensemble(method, chains).bind(task), None, members_mesh(chains, None))
    data = program.place(jax.tree.map(jnp.asarray, full_batch((x, y))))
    keys, states = program.begin(jax.random.key(0), data)
    box = {"states": states}

    def seconds() -> float:
        began = time.perf_counter()
        out = program.chunk(keys, box["states"], data, jnp.int32(0), jnp.int32(TRANSITIONS))
        jax.block_until_ready(out)
        took = time.perf_counter() - began
        box["states"] = out[0]
        return took / (LEAPFROGS * TRANSITIONS * chains)

    return seconds


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
    run = jit(lambda carry: jax.lax.fori_loop(0, count, leapfrog, carry))
    start = (weights, jax.tree.map(jnp.zeros_like, weights), gradient(weights))

    def seconds() -> float:
        began = time.perf_counter()
        jax.block_until_ready(run(start))
        return (time.perf_counter() - began) / count

    return seconds
