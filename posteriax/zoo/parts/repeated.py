"""Equal blocks in a row, as one block with stacked parameters."""

from collections.abc import Callable

import equinox as eqx
import jax

Block = Callable[[jax.Array], jax.Array]  # a module: a pytree that is called with its input


class Repeated(eqx.Module):
    """`count` equal blocks, one after the other; each array of `block` has a leading axis of blocks.

    They are applied by a loop (`jax.lax.scan`), so that one block is compiled instead of `count`, which is most of the
    time to the first step of a deep network. What the stacked axis means to a posterior is in docs/zoo.md.

    Args:
        make: builds one block, from a key.
        count: how many.
        remat: in training, keep only the input of each block for the backward pass and run the block again there
            (`jax.checkpoint`): memory for one block instead of `count`, for one more forward pass.

    >>> blocks = Repeated(lambda key: eqx.nn.Linear(3, 3, key=key), 4, key=jax.random.key(0))
    >>> blocks.block.weight.shape, blocks(jax.numpy.ones(3)).shape
    ((4, 3, 3), (3,))
    """

    block: Block
    remat: bool = eqx.field(static=True)

    def __init__(self, make: Callable[[jax.Array], Block], count: int, *, key: jax.Array, remat: bool = False):
        self.block = eqx.filter_vmap(make)(jax.random.split(key, count))
        self.remat = remat

    def __call__(self, x: jax.Array) -> jax.Array:
        stacked, static = eqx.partition(self.block, eqx.is_array)

        def advance(x: jax.Array, arrays: Block) -> tuple[jax.Array, None]:
            return eqx.combine(arrays, static)(x), None

        return jax.lax.scan(jax.checkpoint(advance) if self.remat else advance, x, stacked)[0]
