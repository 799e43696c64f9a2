"""The cost of a VI step relative to a deterministic one: MLP 784-400-400-10, batch 1024, Adam."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from rich.table import Table

import posteriax as px
from benchmarks.driver import Driver
from benchmarks.mlp import mlp, mlp_weights
from benchmarks.timing import interleave, ratio_table, timed
from posteriax import families as q
from posteriax import priors as p

BATCH, BATCHES, STEPS = 1024, 10, 10
DETERMINISTIC = "deterministic, hand-written"


def report(rounds: int) -> list[Table]:
    return [table(interleave(cases(), rounds))]


def cases() -> dict[str, Callable[[], float]]:
    """Compile each case; what is returned runs some steps and returns the seconds of one."""
    x, y = random_data()
    weight = px.VI(q.Normal(), estimator="weight", optimizer=optax.adam(1e-3))
    return {
        DETERMINISTIC: hand_written(x, y, mean_field=False),
        "mean-field, hand-written": hand_written(x, y, mean_field=True),
        "MAP": driver(x, y, px.MAP(optax.adam(1e-3))).seconds_per_step(STEPS),
        "mean-field, weight": driver(x, y, weight).seconds_per_step(STEPS),
    }


def table(times: dict[str, np.ndarray]) -> Table:
    title = f"One step of MLP 784-400-400-10, batch {BATCH}, Adam"
    return ratio_table(times, DETERMINISTIC, unit="ms", title=title)


def random_data() -> tuple[jax.Array, jax.Array]:
    rng = np.random.default_rng(0)
    n = BATCH * BATCHES
    return jnp.asarray(rng.normal(size=(n, 784)), jnp.float32), jnp.asarray(rng.integers(0, 10, n), jnp.int32)


def driver(x: jax.Array, y: jax.Array, method: Any, *, batch_size: int = BATCH, prior: Any = None) -> Driver:
    """The steps of a method for the MLP 784-400-400-10."""
    problem = px.Problem((mlp, mlp_weights((784, 400, 400, 10))), px.Categorical(), prior or p.Normal(scale=0.3))
    return Driver(problem, method, (x, y), batch_size=batch_size)


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
    run = jax.jit(lambda carry: jax.lax.scan(step, carry, jnp.arange(STEPS))[0], donate_argnums=0)
    box = {"carry": (params, optimizer.init(params), jax.random.key(2))}

    def seconds() -> float:
        box["carry"], seconds = timed(lambda: run(box["carry"]))
        return seconds / STEPS

    return seconds
