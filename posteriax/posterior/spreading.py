"""Predictions over several devices: each computes its draws for its examples, and nothing is exchanged."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from posteriax import distributed


@dataclass(frozen=True)
class Spread:
    """How a program over draws and examples is spread over a mesh; by default it runs on one device.

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
        """For predictions on a mesh; None for one device.

        Args:
            mesh: with the axes "members" and "data" or one of them.
            reduces: whether the program sums over its draws, which a device must then do for all of them.
            couples_examples: whether the network looks at its whole batch, which must then be on one device.
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
    def of_draws(self) -> int:
        """Over how many devices draws are split."""
        return prod(self.mesh.shape[axis] for axis in self.draws) if self.mesh is not None else 1

    @property
    def of_rows(self) -> int:
        """Over how many devices examples are split."""
        return prod(self.mesh.shape[axis] for axis in self.rows) if self.mesh is not None else 1

    def spread(self, program: Callable[..., Any]) -> Callable[..., Any]:
        """The program (draws, inputs, count) on all devices."""
        if self.mesh is None:
            return program
        mesh, specs = self.mesh, (P(self.draws), P(self.rows), P())

        def of_one(tree: Any, devices: int) -> Any:
            return jax.tree.map(lambda a: jax.ShapeDtypeStruct((a.shape[0] // devices, *a.shape[1:]), a.dtype), tree)

        def on_all(draws: Any, inputs: Any, count: Any) -> Any:
            result = jax.eval_shape(program, of_one(draws, self.of_draws), of_one(inputs, self.of_rows), count)
            if self.reduces:  # per example, or one number
                out = jax.tree.map(lambda leaf: P(self.rows) if leaf.ndim else P(), result)
            else:
                out = P(self.draws, self.rows)
            return jax.shard_map(program, mesh=mesh, in_specs=specs, out_specs=out, check_vma=False)(
                draws, inputs, count
            )

        return on_all

    def specs(self, draws: Any, inputs: Any, count: Any) -> tuple[Any, Any, Any]:
        """The shapes of the arguments, with how they are placed."""
        if self.mesh is None:
            return draws, inputs, count

        def placed(tree: Any, *axes: tuple[str, ...]) -> Any:
            where = NamedSharding(self.mesh, P(*axes))  # type: ignore[arg-type]
            return jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=where), tree)

        return placed(draws, self.draws), placed(inputs, self.rows), placed(count)

    def placing(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """The compiled program, for arguments in host memory or on any device; results can be read by all processes."""
        if self.mesh is None:
            return run
        mesh = self.mesh

        def placed(draws: Any, inputs: Any, count: Any) -> Any:
            return distributed.gathered(
                run(
                    distributed.place(draws, mesh, P(self.draws)),
                    distributed.place(inputs, mesh, P(self.rows)),
                    distributed.place(np.int32(count), mesh, P()),
                )
            )

        return placed
