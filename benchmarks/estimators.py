"""What the estimators of mean-field VI are worth: the variance of a minibatch's gradient, and what it costs.

    python -m benchmarks estimators                          # LeNet-5, a small CNN, ResNet-20-FRN and an MLP
    python -m benchmarks estimators --network lenet5         # one of them; repeatable

A network is trained with `auto`. At the start, in the middle and at the end, gradients are computed for many
minibatches under each choice of estimators, with fresh noise for each. Their variance is that of the noise *and* of the
choice of examples, which is what an optimiser sees. It is summed over all weights, in the posterior's own units.

In the same time, a gradient that costs c times as much has to have 1/c of the variance: the best choice is the one with
the least variance x cost.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from rich.table import Table

import posteriax as px
from benchmarks.driver import Driver
from benchmarks.timing import interleave, make_table, timed
from posteriax import families as q
from posteriax import priors as p
from posteriax._internal.cpu_tuning import options_for_steps, with_fast_operations
from posteriax.data.batches import Batch
from posteriax.families.arrays import estimators
from posteriax.methods.method import Task
from posteriax.methods.optimizers import whiten
from posteriax.methods.vi import VIKernel, block_keys, objective
from posteriax.zoo.layers import he_normal
from posteriax.zoo.lenet import LeNet

GRADIENTS = 48  # of which a variance is estimated; as a sum over many weights, it is known to a few per cent
PHASES = {"start": 0.02, "middle": 0.3, "end": 1.0}  # of the steps of training
REFERENCE = "flipout", "local"  # the least noisy exact ones


class Training(NamedTuple):
    """A network, its data, and a run of variational inference."""

    build: Callable[..., Any]
    data: str
    examples: int
    batch: int
    steps: int
    choices: tuple[tuple[str, str], ...]  # of estimators for convolutions and for matrices


def small_cnn(*, key: jax.Array) -> LeNet:
    return LeNet((28, 28, 1), (16, 32), 64, 10, padding="SAME", init=he_normal, key=key)


IMAGES = (REFERENCE, ("weight", "local"), ("weight", "flipout"), ("weight", "weight"), ("local", "local"))
NETWORKS = {
    "lenet5": Training(px.zoo.lenet5, "mnist", 20_000, 128, 500, IMAGES),
    "small_cnn": Training(small_cnn, "fashion_mnist", 5_000, 64, 500, IMAGES),
    "resnet20": Training(px.zoo.resnet20, "cifar10", 5_000, 32, 200, IMAGES[:2]),
    "mlp": Training(px.zoo.mlp, "mnist", 20_000, 256, 600, (REFERENCE, ("weight", "weight"), ("weight", "flipout"))),
}


def report(names: Sequence[str], rounds: int) -> list[Table]:
    """One table for each network."""
    return [_table(name, rounds) for name in names or NETWORKS]


def _table(name: str, rounds: int) -> Table:
    case = NETWORKS[name]
    x, y = (np.asarray(part)[: case.examples] for part in px.data.load(case.data).train)
    x = x.reshape(len(x), -1) if name == "mlp" else x
    problem = px.Problem(case.build(key=jax.random.key(0)), px.Categorical(), p.Normal(scale=0.3))
    task = Task(
        problem=problem,
        example=jax.ShapeDtypeStruct(x.shape[1:], x.dtype),
        num_examples=len(y),
        steps=case.steps,
    )
    gradients = {
        choice: _gradients(_with_estimators(task, *choice), jnp.asarray(x), jnp.asarray(y), case.batch)
        for choice in case.choices
    }
    training = Driver(problem, px.VI(q.Normal()), (x, y), batch_size=case.batch)
    table = make_table(
        f"{name}: gradients of {case.batch} examples, relative to (convolutions, matrices) = {REFERENCE}",
        ("variance: means", "log scales", "both", "cost", "both x cost"),
    )
    for phase, share in PHASES.items():
        training.advance(max(1, round(share * case.steps)) - training.step)
        learned = jax.tree.map(lambda leaf: leaf[0], training.states.variational)
        variances = {choice: run(learned) for choice, run in gradients.items()}
        cases: dict[str, Callable[[], float]] = {
            str(choice): partial(_seconds, run, learned) for choice, run in gradients.items()
        }
        times = interleave(cases, rounds)
        base, seconds = variances[REFERENCE], times[str(REFERENCE)]
        for choice, (means, scales) in variances.items():
            cost = float(np.median(times[str(choice)] / seconds))
            both = float((means + scales) / sum(base))
            cells = float(means / base[0]), float(scales / base[1]), both, cost, both * cost
            table.add_row(f"{phase}: {', '.join(choice)}", *(f"{cell:.2f}" for cell in cells))
    return table


def _seconds(run: Callable[[Any], Any], learned: Any) -> float:
    return timed(lambda: run(learned))[1]


def _with_estimators(task: Task, convolutions: str, matrices: str) -> VIKernel:
    """Mean-field VI with these estimators for the leaves whose noise can differ between examples."""

    def chosen(use: Any, has_mean: bool) -> str:
        return convolutions if use.primitive == "conv_general_dilated" else matrices

    with mock.patch.object(estimators, "_cheapest", chosen):
        return px.VI(q.Normal()).bind(task)


def _gradients(kernel: VIKernel, x: jax.Array, y: jax.Array, size: int) -> Callable[[Any], tuple[Any, Any]]:
    """A function that takes variational parameters and returns the variance of the whitened gradient of a random
    minibatch, summed over weights: that of means and that of log scales."""

    def whitened(learned: Any, key: jax.Array) -> Any:
        rows = jax.random.choice(jax.random.fold_in(key, 0), len(y), (size,), replace=False)
        batch = Batch(x[rows], y[rows], jnp.full(size, len(y) / size))
        keys = block_keys(jax.random.fold_in(key, 1), kernel.blocks)
        gradient = jax.grad(lambda v: objective(kernel.problem, kernel.blocks, 1.0, v, keys, batch)[0])(learned)
        return {name: whiten(kernel.families[name], learned[name], gradient[name]) for name in gradient}

    def variance(learned: Any) -> tuple[jax.Array, jax.Array]:
        def advance(sums: Any, key: jax.Array) -> tuple[Any, None]:
            gradient = whitened(learned, key)
            first, second = sums
            return (jax.tree.map(jnp.add, first, gradient), jax.tree.map(lambda s, g: s + g**2, second, gradient)), None

        shapes = jax.eval_shape(whitened, learned, jax.random.key(0))
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), shapes)
        (first, second), _ = jax.lax.scan(advance, (zeros, zeros), jax.random.split(jax.random.key(7), GRADIENTS))
        by_entry = jax.tree.map(lambda s, squares: (squares - s**2 / GRADIENTS) / (GRADIENTS - 1), first, second)
        means, scales = (sum(leaf[name].sum() for leaf in by_entry.values()) for name in ("mean", "log_scale"))
        return means, scales

    return jax.jit(with_fast_operations(variance), compiler_options=options_for_steps("cpu"))
