"""Which side of its kink each activation of a piecewise-linear network is on, read off the network's own program.

ReLU and its relatives compile to comparisons: a maximum or minimum with a constant, a select, an absolute value, a
clamp. The program is evaluated one operation at a time, and the outcome of every such comparison is recorded, including
those inside smooth functions (softplus). Max-pooling and comparisons inside loops are not recorded.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core

_CALLS = ("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call", "checkpoint", "remat2")
_INNER = ("call_jaxpr", "fun_jaxpr", "jaxpr")  # where they keep their inner program


def activation_pattern(function: Callable[[Any], Any], x: Any) -> jax.Array:
    """One boolean for each comparison that `function` makes at `x`.

    >>> pattern = activation_pattern(lambda x: jax.nn.relu(x - 1.0).sum(), jnp.array([0.0, 2.0, 3.0]))
    >>> pattern.tolist()
    [False, True, True]
    """
    program = jax.make_jaxpr(function)(x)
    seen: list[jax.Array] = []
    _run(program.jaxpr, program.consts, jax.tree.leaves(x), seen)
    return jnp.concatenate([flags.reshape(-1) for flags in seen]) if seen else jnp.zeros(0, bool)


def _run(jaxpr: Any, consts: Any, args: Any, seen: list[jax.Array]) -> list[Any]:
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True)) | dict(
        zip(jaxpr.invars, args, strict=True)
    )

    def read(variable: Any) -> Any:
        return variable.val if isinstance(variable, core.Literal) else values[variable]

    for eqn in jaxpr.eqns:
        own, name = [read(v) for v in eqn.invars], eqn.primitive.name
        _compare(name, own, seen)
        inner = next((eqn.params[key] for key in _INNER if key in eqn.params), None) if name in _CALLS else None
        if inner is not None:
            results = _run(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), own, seen)
        else:
            made = eqn.primitive.bind(*own, **eqn.params)
            results = made if eqn.primitive.multiple_results else [made]
        values |= dict(zip(eqn.outvars, results, strict=True))
    return [read(v) for v in jaxpr.outvars]


def _compare(name: str, values: list[Any], seen: list[jax.Array]) -> None:
    scalar = [jnp.ndim(value) == 0 for value in values]
    if name == "max" and sum(scalar) == 1:
        inner, bound = values if scalar[1] else values[::-1]
        seen.append(inner > bound)
    elif name == "min" and sum(scalar) == 1:
        inner, bound = values if scalar[1] else values[::-1]
        seen.append(inner < bound)
    elif name == "select_n" and values[0].dtype == bool and values[0].ndim > 0:
        seen.append(values[0])
    elif name == "abs" and jnp.issubdtype(values[0].dtype, jnp.floating):
        seen.append(values[0] > 0)
    elif name == "clamp":
        seen.append((values[1] > values[0]) & (values[1] < values[2]))
