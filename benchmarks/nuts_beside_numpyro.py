"""Effective draws per gradient and per second: posteriax's HMC, NUTS and MCLMC beside NumPyro's NUTS.

    python -m benchmarks nuts_beside_numpyro            # every problem; NAME ... for some of them

Every sampler runs with its default settings, two chains on two devices, 500 warm-up transitions for NUTS and the
default for the others, then 1,000 draws per chain. The samplers take turns, problem by problem. NumPyro gets the same
log density over the untransformed weights, and its own default start, uniform on (-2, 2). Effective draws are the
smallest bulk ESS over all latent variables, or for the network over class probabilities at 100 points.
Seconds are those of the draws after warm-up, without compilation; a gradient is a leapfrog, or half a step of MCLMC.
"""

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import NamedSharding, PartitionSpec
from rich.table import Table

import posteriax as px
from posteriax.data.batches import full_batch
from posteriax.diagnostics import ess_bulk, rhat
from posteriax.methods.ensemble import Ensemble
from posteriax.methods.method import Task
from posteriax.networks.tracing.program import spec_of_example
from posteriax.run.layout import members_mesh
from posteriax.run.program import Program, over_members

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import regressions

CHAINS, WARMUP, DRAWS = 2, 500, 1000  # the default warm-up of px.NUTS()
METHODS = {"HMC": px.HMC(), "NUTS": px.NUTS(), "AdjustedMCLMC": px.AdjustedMCLMC(), "MCLMC": px.MCLMC()}


class SamplingTask(NamedTuple):
    problem: px.Problem
    data: Any
    watched: Callable[[Any], np.ndarray]  # draws with axes (chains, draws) -> columns


class Result(NamedTuple):
    columns: np.ndarray
    gradients: int
    seconds: float


def regression(name: str) -> SamplingTask:
    made = regressions.REGRESSIONS[name]()

    def columns(draws: Any) -> np.ndarray:
        return np.concatenate([np.reshape(leaf, (CHAINS, DRAWS, -1)) for leaf in jax.tree.leaves(draws)], axis=-1)

    return SamplingTask(made.problem.for_data(made.data), made.data, columns)


def two_moons() -> SamplingTask:
    import equinox as eqx

    data, (x_test, _) = px.data.two_moons(train=200, test=100)
    net = eqx.nn.MLP(2, 2, 16, 1, activation=jnp.tanh, key=jax.random.key(0))
    problem = px.Problem(net, px.Categorical())

    def probabilities(draws: Any) -> np.ndarray:
        def first_class(params: Any) -> jax.Array:
            return jax.nn.softmax(problem.network.apply(params, jnp.asarray(x_test)))[:, 0]

        return np.asarray(jax.jit(jax.vmap(jax.vmap(first_class)))(jax.tree.map(jnp.asarray, draws.network)))

    return SamplingTask(problem, data, probabilities)


TASKS = {"two moons": two_moons} | {name: partial(regression, name) for name in regressions.REGRESSIONS}


def run_posteriax(task: SamplingTask, method: Any) -> Result:
    """The program that `px.fit` runs: its warm-up, then the draws, in chunks."""
    x, y = task.problem.check(task.data)
    bound = Task(
        problem=task.problem,
        example=spec_of_example(x),
        num_examples=len(y),
        steps=10**6,
        warmup=method.warmup,
        thin=method.thin,
    )
    program = Program(Ensemble(method, CHAINS).bind(bound), None, members_mesh(CHAINS, None))
    data = program.place(jax.tree.map(jnp.asarray, full_batch((x, y))))
    keys, states = program.begin(jax.random.key(0), data)
    draws, gradients, began = [], 0, 0.0
    step, last = 0, method.warmup + DRAWS * method.thin
    while step < last:
        if step == method.warmup:
            began = time.perf_counter()
        end = min(step + program.capacity, last if step >= method.warmup else method.warmup)
        states, _, _, infos, drawn = program.chunk(keys, states, data, np.int32(step), np.int32(end))
        if step >= method.warmup:
            kept = program.draws_until(end) - program.draws_until(step)
            draws.append(jax.tree.map(lambda leaf, kept=kept: np.swapaxes(leaf[:kept], 0, 1), jax.device_get(drawn)))
            per_step = (
                infos.leapfrogs[: end - step] if hasattr(infos, "leapfrogs") else np.full((end - step, CHAINS), 2)
            )
            gradients += int(np.sum(per_step))
        step = end
    seconds = time.perf_counter() - began
    return Result(task.watched(jax.tree.map(lambda *parts: np.concatenate(parts, 1), *draws)), gradients, seconds)


def numpyro_nuts(task: SamplingTask) -> Result:
    """NumPyro's transitions in a compiled loop, each chain on a device of its own."""
    from numpyro.infer import NUTS

    problem = task.problem
    batch = jax.tree.map(jnp.asarray, full_batch(problem.check(task.data)))
    start, unravel = ravel_pytree(problem.latents)
    kernel = NUTS(potential_fn=lambda vector: -problem.log_joint(unravel(vector), batch))
    keys = jax.random.split(jax.random.key(1), CHAINS)
    starts = [jax.random.uniform(key, (start.size,), minval=-2.0, maxval=2.0) for key in keys]
    states = [kernel.init(key, WARMUP, start, (), {}) for key, start in zip(keys, starts, strict=True)]

    def transitions(state: Any, count: int) -> Any:
        def transition(state: Any, _: None) -> Any:
            state = kernel.sample(state, (), {})
            return state, (state.z, state.num_steps)

        return jax.lax.scan(transition, state, length=count)

    mesh, split = members_mesh(CHAINS, None), PartitionSpec("members")

    def on_devices(count: int) -> Any:
        loop = over_members(lambda state: transitions(state, count), shared=0)
        return jax.jit(jax.shard_map(loop, mesh=mesh, in_specs=split, out_specs=split, check_vma=False))

    stacked = jax.device_put(jax.tree.map(lambda *leaves: jnp.stack(leaves), *states), NamedSharding(mesh, split))
    warm = on_devices(WARMUP)(stacked)[0]
    run = on_devices(DRAWS).lower(warm).compile()
    began = time.perf_counter()
    _, (draws, leapfrogs) = jax.block_until_ready(run(warm))
    seconds = time.perf_counter() - began
    return Result(task.watched(jax.vmap(jax.vmap(unravel))(draws)), int(leapfrogs.sum()), seconds)


def report(names: Sequence[str]) -> list[Table]:
    jax.config.update("jax_num_cpu_devices", CHAINS)
    table = Table("problem", "sampler", "R-hat", "least ESS", "gradients", "ESS/1000 grad.", "ESS/s")
    samplers = {"NumPyro NUTS": numpyro_nuts} | {
        f"posteriax {kind}": partial(run_posteriax, method=method) for kind, method in METHODS.items()
    }
    for name in names or TASKS:
        task = TASKS[name]()
        for sampler, run in samplers.items():
            columns, gradients, seconds = run(task)
            least = ess_bulk(columns).min()
            numbers = f"{rhat(columns).max():.3f}", f"{least:.0f}", str(gradients), f"{1000 * least / gradients:.2f}"
            table.add_row(name, sampler, *numbers, f"{least / seconds:.0f}")
            print(name, sampler, *numbers, f"{least / seconds:.0f}", file=sys.stderr, flush=True)  # it takes long
    return [table]
