"""Chains on UCI regressions: R-hat and effective draws of the predictions, in the same time, beside NumPyro's NUTS.

    python -m benchmarks uci_sampling --seconds 120 --set boston --set energy       # by default all sets

One hidden layer of 50 units, learned noise, He-scaled normal prior; first of the standard splits, standardised; four
chains from different weights on two devices. Every sampler has the same time, compilation and warm-up included, and
stops earlier once R-hat is below 1.01 with 400 effective draws at every test point. R-hat (rank-normalised, split) and
bulk effective draws are of the predicted means at up to 200 test inputs: the worst of them. Needs the UCI data
(docs/data.md), in the folder that POSTERIAX_DATA names.
"""

import math
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.sharding import NamedSharding, PartitionSpec
from rich.table import Table

import posteriax as px
from benchmarks.timing import make_table
from posteriax import priors as p
from posteriax.data.batches import full_batch
from posteriax.diagnostics import ess_bulk, rhat
from posteriax.run.layout import members_mesh

SETS = ("boston", "concrete", "energy", "wine", "yacht", "naval", "power")
CHAINS, HIDDEN, WARMUP, POINTS = 4, 50, 200, 200
CHUNK = 10  # transitions of NumPyro between two looks at the clock


class Outcome(NamedTuple):
    means: np.ndarray  # (chains, draws, points)
    gradients: int
    seconds: float


def regression(name: str) -> tuple[px.Problem, Any, np.ndarray]:
    data = px.data.load(f"uci/{name}", split=0)
    (x, y), (x_test, _) = data.train, data.test
    net = px.zoo.uci_mlp(inputs=x.shape[1], hidden=(HIDDEN,), outputs=1, key=jax.random.key(0))
    problem = px.Problem(net, px.Normal("learned"), prior=p.HeNormal()).for_data((x, y))
    return problem, (x, y), x_test[np.linspace(0, len(x_test) - 1, min(POINTS, len(x_test))).astype(int)]


def run_posteriax(method: Any, problem: px.Problem, data: Any, x_test: np.ndarray, seconds: float) -> Outcome:
    began = time.perf_counter()
    stop = px.run.UntilMixed(x_test, seconds=seconds)
    posterior = px.fit(problem, data, method, draws=20_000, chains=CHAINS, key=0, stop=stop, progress=False)
    took = time.perf_counter() - began
    means = posterior.predict(x_test).per_draw().reshape(CHAINS, -1, len(x_test))
    names = posterior.trace.keys()
    steps = np.sum(posterior.trace["leapfrogs"]) if "leapfrogs" in names else 2 * posterior.trace["step_size"].size
    return Outcome(means, int(steps), took)


def run_numpyro(problem: px.Problem, data: Any, x_test: np.ndarray, seconds: float) -> Outcome:
    """NUTS with a dense mass matrix, two chains to a device, in chunks until the time is over."""
    from numpyro.infer import NUTS

    began = time.perf_counter()
    batch = jax.tree.map(jnp.asarray, full_batch(problem.check(data)))
    start, unravel = ravel_pytree(problem.latents)
    kernel = NUTS(potential_fn=lambda vector: -problem.log_joint(unravel(vector), batch), dense_mass=True)
    keys = jax.random.split(jax.random.key(1), CHAINS)
    starts = [jax.random.uniform(key, (start.size,), minval=-2.0, maxval=2.0) for key in keys]
    states = [kernel.init(key, WARMUP, at, (), {}) for key, at in zip(keys, starts, strict=True)]

    def transitions(state: Any) -> Any:
        def transition(state: Any, _: None) -> Any:
            state = kernel.sample(state, (), {})
            return state, (state.z, state.num_steps)

        return jax.lax.scan(transition, state, length=CHUNK)

    mesh, split = members_mesh(CHAINS, None), PartitionSpec("members")
    # in turn: with jaxlib 0.10, LAPACK in batches on two devices at once can wait for ever (docs/decisions, compiler)
    in_turn = lambda states: jax.lax.map(transitions, states)  # noqa: E731
    run = jax.jit(jax.shard_map(in_turn, mesh=mesh, in_specs=split, out_specs=split, check_vma=False))
    state = jax.device_put(jax.tree.map(lambda *leaves: jnp.stack(leaves), *states), NamedSharding(mesh, split))
    drawn, gradients = [], 0
    while time.perf_counter() - began < seconds:
        state, (draws, steps) = jax.block_until_ready(run(state))
        gradients += int(steps.sum())
        drawn.append(np.asarray(draws))
    took = time.perf_counter() - began
    # if the time was over during the warm-up, what there is of it
    vectors = np.concatenate(drawn[min(WARMUP // CHUNK, len(drawn) - 1) :], axis=1)
    predict = jax.jit(jax.vmap(jax.vmap(lambda vector: problem.outputs(unravel(vector).network, x_test)[..., 0])))
    return Outcome(np.asarray(predict(vectors)), gradients, took)


SAMPLERS = {
    "HMC, a mass each": px.HMC(masses="adapted", warmup=WARMUP),
    "HMC, the default": px.HMC(warmup=WARMUP),
    "HMC, four times as long": px.HMC(masses="dense", trajectory=2 * math.pi, warmup=WARMUP),
    "NUTS, the default": px.NUTS(warmup=WARMUP),
    "MCLMC, the default": px.MCLMC(),
    "MCLMC, large steps": px.MCLMC(masses="prior", energy_variance=5e-4, thin=50),
}


def report(sets: Sequence[str], samplers: Sequence[str], seconds: float) -> list[Table]:
    jax.config.update("jax_num_cpu_devices", 2)
    columns = ("sampler", "R-hat", "effective draws", "a minute", "draws of a chain", "gradients", "seconds")
    table = make_table(f"UCI, one hidden layer of {HIDDEN}: at most {seconds:g} s for each run", columns)
    for name in sets or SETS:
        problem, data, x_test = regression(name)
        for sampler in samplers or [*SAMPLERS, "NumPyro NUTS, dense"]:
            try:
                if sampler in SAMPLERS:
                    outcome = run_posteriax(SAMPLERS[sampler], problem, data, x_test, seconds)
                else:
                    outcome = run_numpyro(problem, data, x_test, seconds)
            except RuntimeError as error:
                row = (sampler, *["-"] * 6)
                print(name, sampler, str(error).splitlines()[0], file=sys.stderr, flush=True)
            else:
                worst, least = np.max(rhat(outcome.means)), np.min(ess_bulk(outcome.means))
                row = (
                    sampler,
                    f"{worst:.3f}",
                    f"{least:.0f}",
                    f"{60 * least / outcome.seconds:.0f}",
                    str(outcome.means.shape[1]),
                    f"{outcome.gradients:,}",
                    f"{outcome.seconds:.0f}",
                )
                print(name, *row, file=sys.stderr, flush=True)  # it takes long
            table.add_row(name, *row)
    return [table]
