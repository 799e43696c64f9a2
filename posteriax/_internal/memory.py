"""Memory: every byte budget of the package in one place, and how work is cut to fit one.

A budget bounds what is held at once besides inputs and results. Each is far below the memory of a laptop, and large
enough that the time to start a chunk is negligible.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

Compiled = jax.stages.Compiled
Inputs = Any  # an array, or a pytree of arrays, with a leading axis of examples

MB = 2**20

WORKING_BYTES = 256 * MB  # of a compiled program over draws and examples: predictions, attacks
EXAMPLES_AT_ONCE = 1024  # in such a program
IN_MEMORY_BYTES = 256 * MB  # draws beyond this stay on disk if a checkpoint holds them
BLOCK_BYTES = 32 * MB  # of draws read from disk at once
DERIVED_BYTES = 16 * MB  # of outputs from which something is derived at once
PREDICTION_BYTES = 64 * MB  # of predictions held at once to compare chains
DENSITY_VALUES = 2**22  # of a mixture's density at once
CHUNK_BYTES = 64 * MB  # of draws, or of batches from the host, that a run holds on the device
UNSAVED_BYTES = 64 * MB  # of draws in memory that a checkpoint does not have yet
RESIDENT_BYTES = 2048 * MB  # of a data set on the device; larger ones are streamed from the host
IMAGE_VALUES = 2**21  # corrupted at once: 8 MB an array, and programs hold about ten
SCANNED_VALUES = 2**22  # of a data set, possibly a memory map, read at once
PATCH_VALUES = 2**22  # of a convolution's patches, many times larger than the inputs they are cut from
CURVATURE_BYTES = 256 * MB  # of a layer's patches and pushed vectors
COVARIANCE_BYTES = 64 * MB  # of draws added to a covariance at once
PRODUCT_MATRIX_BYTES = 2048 * MB  # of all draws' product matrices; beyond it, an error
MATRIX_BYTES = 2048 * MB  # of one covariance or correlation matrix; beyond it, an error


def fitting(budget: int, item_size: int, most: int | None = None) -> int:
    """How many items of that size fit into a budget: at least one, and at most `most`.

    >>> fitting(100, 30), fitting(100, 1000), fitting(100, 1, most=5)
    (3, 1, 5)
    """
    count = max(1, budget // max(item_size, 1))
    return count if most is None else max(1, min(count, most))


class ChunkPlan(NamedTuple):
    """A compiled program over `draws` draws and `rows` examples at once."""

    run: Compiled
    draws: int
    rows: int

    def chunks(self, inputs: Inputs) -> Iterator[tuple[int, Inputs]]:
        """Chunks of examples and where each starts; the last repeats its last example to fill the shape."""
        n = jax.tree.leaves(inputs)[0].shape[0]
        for start in range(0, n, self.rows):
            index = np.minimum(np.arange(start, start + self.rows), n - 1)
            yield start, jax.tree.map(lambda a, index=index: np.asarray(a[index]), inputs)

    def chosen(self, first: int, total: int) -> tuple[np.ndarray, int]:
        """The numbers of a chunk's draws, and how many of them count: the last chunk repeats its last draw."""
        return np.minimum(np.arange(first, first + self.draws), total - 1), min(self.draws, total - first)


def plan_chunks(
    compiled: Callable[[int, int], tuple[Compiled, int]],
    *,
    draws: int,
    examples: int,
    draw_bytes: int,
    couples_examples: Callable[[], bool],
) -> ChunkPlan:
    """A plan for as many draws and examples at once as fit into the working memory, by the compiler's own account.

    Args:
        compiled: returns the program for so many draws and examples, and the bytes that it needs besides its inputs.
        draws, examples: how many there are in all.
        draw_bytes: of one draw.
        couples_examples: whether the network couples the examples of a batch; it then gets all of them at once,
            whatever the memory. Called only if the examples would be split.
    """
    coupled = examples > EXAMPLES_AT_ONCE and couples_examples()
    rows = examples if coupled else min(examples, EXAMPLES_AT_ONCE)
    draws = fitting(WORKING_BYTES, 8 * draw_bytes, draws)  # drawing needs a few copies
    while True:
        run, needed = compiled(draws, rows)
        if needed <= WORKING_BYTES // 2 or (draws == 1 and (rows == 1 or coupled)):
            return ChunkPlan(run, draws, rows)
        coupled = coupled or (rows == examples and couples_examples())
        if rows > 1 and not coupled:
            rows = -(-rows // 2)
        else:
            draws = -(-draws // 2)


def needed_bytes(run: Compiled) -> int:
    """The memory that a compiled program needs besides its inputs; 0 if the compiler does not say."""
    analysis = run.memory_analysis()
    return 0 if analysis is None else analysis.temp_size_in_bytes + analysis.output_size_in_bytes


def as_bytes(count: float) -> str:
    """A size in bytes, for people.

    >>> as_bytes(8 * 313_600**2)
    '787 GB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.0f} TB"


def check_size(what: str, entries: int, instead: str, *, limit: int = MATRIX_BYTES) -> None:
    """Refuse to form an entries x entries matrix that is too large.

    Raises:
        ValueError: stating the size it would need.
    """
    needed = 8 * int(entries) ** 2
    if needed > limit:
        raise ValueError(
            f"{what} would be a {int(entries):,} x {int(entries):,} matrix of {as_bytes(needed)} (limit "
            f"{as_bytes(limit)}): {instead}"
        )
