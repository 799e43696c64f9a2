"""The cost of a VI step relative to a deterministic one: MLP 784-400-400-10, batch 1024, Adam."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import posteriax as px
from posteriax import families as q
from posteriax import priors as p
from posteriax._internal.compiler import jit
from posteriax.cli.bench.mlp import mlp, mlp_weights
from posteriax.cli.bench.timing import interleave, ratio_table
from posteriax.data import Minibatches
from posteriax.methods import Ensemble, Task
from posteriax.run import Program, Streams, members_mesh

BATCH, BATCHES, STEPS = 1024, 10, 10
DETERMINISTIC = "deterministic, hand-written"


def run_step(rounds: int = 15) -> dict[str, np.ndarray]:
    """Time a step of each method, all in turn."""
    return interleave(cases(), rounds)


def cases() -> dict[str, Callable[[], float]]:
    """Compile each case; what is returned runs some steps and returns the seconds of one."""
    x, y = random_data()
    weight = px.VI(q.Normal(), estimator="weight", optimizer=optax.adam(1e-3))
    return {
        DETERMINISTIC: hand_written(x, y, mean_field=False),
        "mean-field, hand-written": hand_written(x, y, mean_field=True),
        "MAP": timed(driver_program(x, y, px.MAP(optax.adam(1e-3))), x, y),
        "mean-field, weight": timed(driver_program(x, y, weight), x, y),
    }


def table(times: dict[str, np.ndarray]) -> Any:
    title = f"One step of MLP 784-400-400-10, batch {BATCH}, Adam"
    return ratio_table(times, DETERMINISTIC, unit=1e-3, unit_name="ms", title=title)


def random_data() -> tuple[jax.Array, jax.Array]:
    rng = np.random.default_rng(0)
    n = BATCH * BATCHES
    return jnp.asarray(rng.normal(size=(n, 784)), jnp.float32), jnp.asarray(rng.integers(0, 10, n), jnp.int32)


class DriverProgram(NamedTuple):
    """The program that `px.fit` runs, compiled, with the bytes it needs and the parameters it trains."""

    run: Any
    keys: Streams
    states: Any
    bytes: int
    parameters: int


def driver_program(
    x: jax.Array, y: jax.Array, method: Any, *, batch_size: int = BATCH, prior: Any = None, network: Any = None
) -> DriverProgram:
    """Compile the steps of a method for a network, by default the MLP 784-400-400-10."""
    network = network or (mlp, mlp_weights((784, 400, 400, 10)))
    problem = px.Problem(network, px.Categorical(), prior or p.Normal(scale=0.3))
    example = jax.ShapeDtypeStruct(x.shape[1:], x.dtype)
    task = Task(problem=problem, example=example, num_examples=len(y), steps=10**6)
    batches, mesh = Minibatches.of(len(y), batch_size), members_mesh(1, None)
    program = Program(Ensemble(method, 1).bind(task), batches, mesh)
    keys, states = program.begin(jax.random.key(0), (x, y))
    run = program.chunk.lower(keys, states, (x, y), jnp.int32(0), jnp.int32(STEPS)).compile()
    held = states.variational if hasattr(states, "variational") else states.unknowns
    parameters = sum(leaf.size for leaf in jax.tree.leaves(held))
    memory = run.memory_analysis()
    data = x.nbytes + y.nbytes
    needed = 0 if memory is None else memory.temp_size_in_bytes + memory.argument_size_in_bytes - data
    return DriverProgram(run, keys, states, needed, parameters)


def timed(program: DriverProgram, x: jax.Array, y: jax.Array, steps: int = STEPS) -> Callable[[], float]:
    """Seconds per step."""
    box = {"states": program.states, "step": 0}

    def seconds() -> float:
        first = box["step"]
        began = time.perf_counter()
        out = program.run(program.keys, box["states"], (x, y), jnp.int32(first), jnp.int32(first + steps))
        jax.block_until_ready(out)
        took = time.perf_counter() - began
        box["states"], box["step"] = out[0], first + steps
        return took / steps

    return seconds


def hand_written(x: jax.Array, y: jax.Array, *, mean_field: bool) -> Callable[[], float]:
    """The same work in plain, straightforward JAX: the baseline."""
    weights = mlp_weights((784, 400, 400, 10))
    params = {"mean": weights}
    if mean_field:
        params["log_scale"] = jax.tree.map(lambda w: jnp.full_like(w, np.log(0.01)), weights)
    optimizer = optax.adam(1e-3)

    def loss(params: Any, key: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        w = params["mean"]
        kl: Any = 0.0
        if mean_field:
            leaves, treedef = jax.tree.flatten(w)
            rhos = jax.tree.leaves(params["log_scale"])
            noisy = [
                m + jnp.exp(r) * jax.random.normal(jax.random.fold_in(key, i), m.shape)
                for i, (m, r) in enumerate(zip(leaves, rhos, strict=True))
            ]
            kl = sum((0.5 * (m**2 + jnp.exp(2 * r)) / 0.09 - r).sum() for m, r in zip(leaves, rhos, strict=True))
            w = jax.tree.unflatten(treedef, noisy)
        log_probs = jnp.take_along_axis(jax.nn.log_softmax(mlp(w, x)), y[:, None], axis=1)
        return kl - BATCHES * log_probs.sum()

    def step(carry: Any, i: jax.Array) -> tuple[Any, None]:
        params, state, key = carry
        rows = jax.lax.dynamic_slice_in_dim(order, (i % BATCHES) * BATCH, BATCH)
        gradient = jax.grad(loss)(params, jax.random.fold_in(key, i), x[rows], y[rows])
        updates, state = optimizer.update(gradient, state)
        return (optax.apply_updates(params, updates), state, key), None

    order = jax.random.permutation(jax.random.key(1), len(y))
    run = jit(lambda carry: jax.lax.scan(step, carry, jnp.arange(STEPS))[0], donate_argnums=0)
    box = {"carry": (params, optimizer.init(params), jax.random.key(2))}

    def seconds() -> float:
        began = time.perf_counter()
        box["carry"] = jax.block_until_ready(run(box["carry"]))
        return (time.perf_counter() - began) / STEPS

    return seconds
