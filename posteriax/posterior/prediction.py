"""Prediction: a network over draws and examples, in chunks that fit the working memory.

Over several devices, each computes its draws for its examples, and nothing is exchanged.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
import quax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from posteriax import distributed
from posteriax._internal import cpu_tuning
from posteriax._internal.memory import ChunkPlan, needed_bytes, plan_chunks
from posteriax.likelihoods.predictive import Sums
from posteriax.networks.network import Params
from posteriax.problem import Inputs, Latents, Problem

Arrays = Any  # a pytree of arrays, or of their shapes
# program(problem, draws, inputs, count): over the first `count` draws, for inputs with an axis of examples
DrawsProgram = Callable[[Problem, Latents, Inputs, jax.Array], Arrays]


@dataclass(frozen=True)
class Spread:
    """How a program over draws and examples is spread over a mesh. By default it runs on one device.

    Args:
        mesh: the devices.
        draws: the axes over which draws are split.
        rows: the axes over which examples are split.
        reduces: whether the program sums over its draws.
    """

    mesh: Mesh | None = None
    draws: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    reduces: bool = False

    @classmethod
    def over(cls, mesh: Mesh | None, *, reduces: bool, couples_examples: Callable[[], bool]) -> "Spread | None":
        """How to spread predictions over a mesh; None for a single device.

        Args:
            mesh: with the axes "members" and "data" or one of them.
            reduces: whether the program sums over its draws, which a device must then do for all of them.
            couples_examples: whether the network couples the examples of a batch, which must then be on one device.
        """
        if mesh is None or mesh.size == 1:
            return None
        axes = tuple(mesh.axis_names)
        if couples_examples():
            return None if reduces else cls(mesh, draws=axes)
        if reduces:
            return cls(mesh, rows=axes, reduces=True)
        draws, rows = ((name,) if name in axes else () for name in (distributed.MEMBERS, distributed.DATA))
        return cls(mesh, draws, rows)

    @property
    def draw_devices(self) -> int:
        """Over how many devices draws are split."""
        return prod(self.mesh.shape[axis] for axis in self.draws) if self.mesh is not None else 1

    @property
    def row_devices(self) -> int:
        """Over how many devices examples are split."""
        return prod(self.mesh.shape[axis] for axis in self.rows) if self.mesh is not None else 1

    def spread(self, program: Callable[..., Any]) -> Callable[..., Any]:
        """The program (draws, inputs, count) on all devices."""
        if self.mesh is None:
            return program
        mesh, specs = self.mesh, (P(self.draws), P(self.rows), P())

        def device_shapes(tree: Arrays, devices: int) -> Arrays:
            return jax.tree.map(lambda a: jax.ShapeDtypeStruct((a.shape[0] // devices, *a.shape[1:]), a.dtype), tree)

        def on_all(draws: Latents, inputs: Inputs, count: jax.Array) -> Arrays:
            result = jax.eval_shape(
                program, device_shapes(draws, self.draw_devices), device_shapes(inputs, self.row_devices), count
            )
            if self.reduces:  # per example, or one number
                out = jax.tree.map(lambda leaf: P(self.rows) if leaf.ndim else P(), result)
            else:
                out = P(self.draws, self.rows)
            return jax.shard_map(program, mesh=mesh, in_specs=specs, out_specs=out, check_vma=False)(
                draws, inputs, count
            )

        return on_all

    def specs(self, draws: Latents, inputs: Inputs, count: jax.ShapeDtypeStruct) -> tuple[Arrays, Arrays, Arrays]:
        """The shapes of the arguments, with how they are placed."""
        if self.mesh is None:
            return draws, inputs, count

        def placed(tree: Arrays, *axes: tuple[str, ...]) -> Arrays:
            where = NamedSharding(self.mesh, P(*axes))  # type: ignore[arg-type]
            return jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=where), tree)

        return placed(draws, self.draws), placed(inputs, self.rows), placed(count)

    def placing(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """The compiled program for arguments in host memory or on any device; all processes can read its results."""
        if self.mesh is None:
            return run
        mesh = self.mesh

        def placed(draws: Latents, inputs: Inputs, count: int) -> Arrays:
            return distributed.gathered(
                run(
                    distributed.place(draws, mesh, P(self.draws)),
                    distributed.place(inputs, mesh, P(self.rows)),
                    distributed.place(np.int32(count), mesh, P()),
                )
            )

        return placed


PROGRAMS_PER_PROBLEM = 16
_compiled: WeakKeyDictionary[Problem, dict[Any, tuple[Any, int]]] = WeakKeyDictionary()  # freed with the problem


def plan_program(
    program: DrawsProgram,
    problem: Problem,
    inputs: Inputs,
    draws: int,
    template: Latents,
    *,
    x: Inputs | None = None,
    spread: Spread | None = None,
) -> ChunkPlan:
    """The program, compiled for as many draws and examples at once as the working memory allows.

    Args:
        program: what is computed from draws and examples; the plan's `run` takes its last three arguments.
        problem: whose network it applies.
        inputs: its per-example inputs, arrays with a leading axis of examples.
        draws: the total number of draws.
        template: shapes and dtypes of one draw.
        x: the network's inputs, if `inputs` holds more.
        spread: over which devices, if over several; the working memory is then that of each.
    """
    over = spread or Spread()
    leaves, treedef = jax.tree.flatten(inputs)
    specs, kind = jax.tree.flatten(template)
    example_spec = tuple((leaf.shape[1:], jax.dtypes.canonicalize_dtype(leaf.dtype)) for leaf in leaves)
    draw_spec = tuple((spec.shape, spec.dtype) for spec in specs)

    def compiled(draws: int, rows: int) -> tuple[Any, int]:
        known = _compiled.setdefault(problem, {})
        asked = (program, kind, draw_spec, treedef, example_spec, draws, rows, spread)
        draws, rows = draws * over.draw_devices, rows * over.row_devices
        if asked not in known:
            while len(known) >= PROGRAMS_PER_PROBLEM:
                del known[next(iter(known))]
            stacked = jax.tree.unflatten(kind, [jax.ShapeDtypeStruct((draws, *s), dtype) for s, dtype in draw_spec])
            examples = [jax.ShapeDtypeStruct((rows, *s), dtype) for s, dtype in example_spec]
            batch = jax.tree.unflatten(treedef, examples)
            count = jax.ShapeDtypeStruct((), jnp.int32)
            fast = cpu_tuning.with_fast_operations(partial(program, problem))
            options = cpu_tuning.options_for_steps(cpu_tuning.default_platform())
            lowered = jax.jit(over.spread(fast), compiler_options=options).lower(*over.specs(stacked, batch, count))
            run = lowered.compile()
            known[asked] = over.placing(run), needed_bytes(run)
        return known[asked]

    planned = plan_chunks(
        compiled,
        draws=-(-draws // over.draw_devices),
        examples=-(-leaves[0].shape[0] // over.row_devices),
        draw_bytes=sum(spec.size * spec.dtype.itemsize for spec in specs),
        couples_examples=lambda: problem.couples_examples(inputs if x is None else x),
    )
    return planned._replace(draws=planned.draws * over.draw_devices, rows=planned.rows * over.row_devices)


def apply_draws(problem: Problem, draws: Latents, x: Inputs, count: jax.Array) -> jax.Array:
    """The outputs of every draw, (draws, rows, ...)."""
    # one draw after another: vmapped draws would need the working memory of all of them at once
    x = _once_for_all_draws(problem, x)
    return jax.lax.map(lambda params: outputs_of(problem, params, x), draws.network)


def sum_draws(problem: Problem, draws: Latents, x: Inputs, count: jax.Array) -> Sums:
    """The likelihood's sums over the first `count` draws."""
    x = _once_for_all_draws(problem, x)

    def sums(index: int | jax.Array) -> Sums:
        draw: Latents = jax.tree.map(lambda leaf: leaf[index], draws)
        return problem.likelihood.sums(draw.likelihood, outputs_of(problem, draw.network, x))

    return jax.lax.fori_loop(1, count, lambda i, so_far: so_far.join(sums(i)), sums(0))


def _once_for_all_draws(problem: Problem, x: Inputs) -> Inputs:
    """The inputs, or what a fixed part of the network computes from them, which is the same for all draws."""
    part = problem.fixed_part(x)
    return x if part is None else part.features(x)


def outputs_of(problem: Problem, params: Params, x: Inputs) -> jax.Array:
    """The outputs for params that may hold array types other than JAX's, such as random arrays."""
    apply = problem.network.apply
    if any(
        isinstance(leaf, quax.Value) for leaf in jax.tree.leaves(params, is_leaf=lambda a: isinstance(a, quax.Value))
    ):
        apply = quax.quaxify(apply)
    return apply(params, x)
