"""Programs whose work the compiler divides over devices, and what it should not divide."""

import jax
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P


def divided() -> bool:
    """Whether what is being traced will be divided by the compiler.

    >>> divided()
    False
    """
    return AxisType.Auto in jax.sharding.get_abstract_mesh().axis_types


def whole_everywhere(array: jax.Array) -> jax.Array:
    """The same array; in a divided program, computed in full on every device."""
    return jax.lax.with_sharding_constraint(array, P()) if divided() else array
