"""Mixed precision: a network that computes in bfloat16, between params, inputs and outputs in float32.

Params and inputs are rounded on their way into the network and outputs are widened on their way out, so that draws,
gradients, optimiser, prior, KL and likelihood stay in float32.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from posteriax.networks.adapters.adapter import BatchStatistics

LOW = jnp.dtype(jnp.bfloat16)


def check_compute(compute: DTypeLike | None) -> str | None:
    """The name of a compute dtype: "bfloat16", or None for the params' own.

    >>> check_compute(jnp.bfloat16), check_compute("float32")
    ('bfloat16', None)
    """
    if compute is None:
        return None
    try:
        dtype = jnp.dtype(compute)
    except TypeError:
        dtype = None
    if dtype not in (LOW, jnp.dtype(jnp.float32)):
        raise ValueError(f'compute must be "bfloat16" or "float32", got {compute!r} (float16 would need loss scaling)')
    return "bfloat16" if dtype == LOW else None


def rounded(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of trees of arrays that computes in bfloat16 and returns float32.

    >>> rounded(lambda a: a + 0.001)(jnp.ones(())), rounded(lambda n: n + 1)(jnp.int32(1000))
    (Array(1., dtype=float32), Array(1001, dtype=int32))
    """

    def apply(*args: Any, **keywords: Any) -> Any:
        low = jax.tree.map(lambda a: _convert(a, LOW), args)
        return jax.tree.map(lambda a: _convert(a, jnp.float32), function(*low, **keywords))

    return apply


def rounded_statistics(known: BatchStatistics | None) -> BatchStatistics | None:
    """Measuring and applying batch statistics, in bfloat16."""
    return known and known._replace(measure=rounded(known.measure), apply=rounded(known.apply))


def _convert(a: Any, dtype: DTypeLike) -> Any:
    # a random array, inside Quax, takes part in this as an array of its own dtype
    floating = jnp.issubdtype(jnp.result_type(a), jnp.floating)
    return jax.lax.convert_element_type(a, dtype) if floating else a
