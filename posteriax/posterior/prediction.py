"""Prediction: a network over draws and examples, in chunks that fit the working memory."""

from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import quax

from posteriax._internal import cpu_tuning
from posteriax._internal.memory import Plan, needed_bytes, plan
from posteriax.posterior.spreading import Spread
from posteriax.problem import Latents, Problem

# program(problem, draws, inputs, count): over the first `count` draws, for inputs with an axis of examples
Program = Callable[[Problem, Latents, Any, Any], Any]

PROGRAMS_PER_PROBLEM = 16
_compiled: WeakKeyDictionary[Problem, dict[Any, tuple[Any, int]]] = WeakKeyDictionary()  # freed with the problem


def plan_program(
    program: Program,
    problem: Problem,
    inputs: Any,
    draws: int,
    template: Latents,
    *,
    x: Any = None,
    spread: Spread | None = None,
) -> Plan:
    """The program, compiled for as many draws and examples at once as the working memory allows.

    Args:
        program: what is computed from draws and examples; the plan's `run` takes its last three arguments.
        problem: whose network it applies.
        inputs: its per-example inputs, arrays with a leading axis of examples.
        draws: the total number of draws.
        template: shapes and dtypes of one draw.
        x: the network's own inputs, if `inputs` holds more.
        spread: over which devices, if over several; the working memory is then that of each.
    """
    over = spread or Spread()
    leaves, treedef = jax.tree.flatten(inputs)
    specs, kind = jax.tree.flatten(template)
    one_example = tuple((leaf.shape[1:], jax.dtypes.canonicalize_dtype(leaf.dtype)) for leaf in leaves)
    one_draw = tuple((spec.shape, spec.dtype) for spec in specs)

    def compiled(draws: int, rows: int) -> tuple[Any, int]:
        known = _compiled.setdefault(problem, {})
        asked = (program, kind, one_draw, treedef, one_example, draws, rows, spread)
        draws, rows = draws * over.of_draws, rows * over.of_rows
        if asked not in known:
            while len(known) >= PROGRAMS_PER_PROBLEM:
                del known[next(iter(known))]
            stacked = jax.tree.unflatten(kind, [jax.ShapeDtypeStruct((draws, *s), dtype) for s, dtype in one_draw])
            rows_of = jax.tree.unflatten(treedef, [jax.ShapeDtypeStruct((rows, *s), dtype) for s, dtype in one_example])
            count = jax.ShapeDtypeStruct((), jnp.int32)
            fast = cpu_tuning.with_fast_operations(partial(program, problem))
            options = cpu_tuning.options_for_steps(cpu_tuning.default_platform())
            lowered = jax.jit(over.spread(fast), compiler_options=options).lower(*over.specs(stacked, rows_of, count))
            run = lowered.compile()
            known[asked] = over.placing(run), needed_bytes(run)
        return known[asked]

    planned = plan(
        compiled,
        draws=-(-draws // over.of_draws),
        examples=-(-leaves[0].shape[0] // over.of_rows),
        draw_bytes=sum(spec.size * spec.dtype.itemsize for spec in specs),
        couples_examples=lambda: problem.couples_examples(inputs if x is None else x),
    )
    return planned._replace(draws=planned.draws * over.of_draws, rows=planned.rows * over.of_rows)


def apply_draws(problem: Problem, draws: Latents, x: Any, count: Any) -> jax.Array:
    """The outputs of every draw, (draws, rows, ...)."""
    # one draw after another: vmapped draws would need the working memory of all of them at once
    x = _once_for_all_draws(problem, x)
    return jax.lax.map(lambda params: outputs_of(problem, params, x), draws.network)


def sum_draws(problem: Problem, draws: Latents, x: Any, count: Any) -> Any:
    """The likelihood's sums over the first `count` draws."""
    x = _once_for_all_draws(problem, x)

    def of(index: Any) -> Any:
        one: Latents = jax.tree.map(lambda leaf: leaf[index], draws)
        return problem.likelihood.sums(one.likelihood, outputs_of(problem, one.network, x))

    return jax.lax.fori_loop(1, count, lambda i, sums: sums.join(of(i)), of(0))


def _once_for_all_draws(problem: Problem, x: Any) -> Any:
    """The inputs, or what a fixed part of the network computes from them, which is the same for all draws."""
    part = problem.fixed_part(x)
    return x if part is None else part.features(x)


def outputs_of(problem: Problem, params: Any, x: Any) -> Any:
    apply = problem.network.apply
    if any(
        isinstance(leaf, quax.Value) for leaf in jax.tree.leaves(params, is_leaf=lambda a: isinstance(a, quax.Value))
    ):
        apply = quax.quaxify(apply)
    return apply(params, x)
