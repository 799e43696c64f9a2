"""How predictions are cut into chunks of draws and examples, so that they fit a byte budget."""

from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import quax

from posteriax._internal.compiler import jit
from posteriax.posterior.predictive.classes import sum_classes
from posteriax.posterior.predictive.normals import sum_normals
from posteriax.problem import Normal, Problem, Unknowns, couples_examples

BYTE_BUDGET = 256 * 2**20  # of working memory, beside what predictions return
EXAMPLES_AT_ONCE = 1024


class PredictionPlan(NamedTuple):
    """A compiled program, and for how many draws and examples at once.

    `run(draws, x, count)` gives the outputs of every draw, (draws, rows, ...), or the sums over the first `count`.
    """

    run: Any
    draws: int
    rows: int

    def chunks(self, x: Any) -> Iterator[tuple[int, Any]]:
        """Chunks of examples and where each starts; the last one repeats its last example to fill the shape."""
        n = jax.tree.leaves(x)[0].shape[0]
        for start in range(0, n, self.rows):
            index = np.minimum(np.arange(start, start + self.rows), n - 1)
            yield start, jax.tree.map(lambda a, index=index: np.asarray(a[index]), x)


def plan_prediction(problem: Problem, x: Any, total: int, template: Unknowns, *, reduce: bool) -> PredictionPlan:
    """So many draws and examples at once that the budget holds: by what the compiler says the program needs."""
    leaves, treedef = jax.tree.flatten(x)
    n = leaves[0].shape[0]
    # a network that looks at its whole batch must get all examples at once, whatever the memory
    whole = n > EXAMPLES_AT_ONCE and couples_examples(problem.network, x)
    rows = n if whole else min(n, EXAMPLES_AT_ONCE)
    specs, kind = jax.tree.flatten(template)
    one_draw = (kind, tuple((spec.shape, spec.dtype) for spec in specs))
    draw_bytes = sum(spec.size * spec.dtype.itemsize for spec in specs)
    draws = int(np.clip(BYTE_BUDGET // (8 * draw_bytes), 1, total))  # drawing needs a few copies
    shapes = tuple((leaf.shape[1:], jax.dtypes.canonicalize_dtype(leaf.dtype)) for leaf in leaves)
    while True:
        run, needed = _compiled(problem, one_draw, treedef, shapes, draws, rows, reduce)
        if needed <= BYTE_BUDGET // 2 or (draws == 1 and (rows == 1 or whole)):
            return PredictionPlan(run, draws, rows)
        whole = whole or (rows == n and couples_examples(problem.network, x))
        if rows > 1 and not whole:
            rows = -(-rows // 2)
        else:
            draws = -(-draws // 2)


@lru_cache(maxsize=32)
def _compiled(
    problem: Problem, one_draw: Any, treedef: Any, shapes: Any, draws: int, rows: int, reduce: bool
) -> tuple[Any, int]:
    """The network over draws and examples, compiled, and the bytes it needs beside its inputs."""
    kind, specs = one_draw
    stacked = jax.tree.unflatten(kind, [jax.ShapeDtypeStruct((draws, *shape), dtype) for shape, dtype in specs])
    x = jax.tree.unflatten(treedef, [jax.ShapeDtypeStruct((rows, *shape), dtype) for shape, dtype in shapes])
    count = jax.ShapeDtypeStruct((), jnp.int32)
    run = jit(partial(_reduce if reduce else _apply, problem)).lower(stacked, x, count).compile()
    analysis = run.memory_analysis()
    needed = 0 if analysis is None else analysis.temp_size_in_bytes + analysis.output_size_in_bytes
    return run, needed


def _apply(problem: Problem, draws: Unknowns, x: Any, count: Any) -> jax.Array:
    # one draw after another: vmapped draws would need the working memory of all of them at once
    return jax.lax.map(lambda params: outputs_of(problem, params, x), draws.network)


def outputs_of(problem: Problem, params: Any, x: Any) -> Any:
    apply = problem.network.apply
    if any(
        isinstance(leaf, quax.Value) for leaf in jax.tree.leaves(params, is_leaf=lambda a: isinstance(a, quax.Value))
    ):
        apply = quax.quaxify(apply)
    return apply(params, x)


def _reduce(problem: Problem, draws: Unknowns, x: Any, count: Any) -> Any:
    """The sums over the first `count` draws."""
    sum_one = sum_normals if isinstance(problem.likelihood, Normal) else sum_classes

    def of(index: Any) -> Any:
        one: Unknowns = jax.tree.map(lambda leaf: leaf[index], draws)
        return sum_one(problem.likelihood, one.likelihood, outputs_of(problem, one.network, x))  # type: ignore[arg-type]

    return jax.lax.fori_loop(1, count, lambda i, sums: sums.plus(of(i)), of(0))
