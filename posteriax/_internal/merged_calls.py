"""Equal calls in a traced program, made as one.

A network of equal layers draws noise of the same few shapes again and again, and XLA compiles each draw by itself. A
function marked as :func:`mergeable` stays a call in the traced program; `merge_equal_calls` then replaces all calls of
it with equal settings by a single call of the vectorised function. A key gives the same numbers either way.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax.extend.core import JaxprEqn, Literal, jaxpr_as_fun
from jax.extend.core.primitives import jit_p

PREFIX = "mergeable_"  # of the names of these calls in a traced program


def mergeable(*settings: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator of functions (key, *conditions, **settings) whose equal calls may become one.

    Merged calls have all their keys, and share a condition: that of all of them.

    Args:
        settings: the names of the function's other arguments, which are static.

    >>> double = mergeable()(lambda key: 2 * key)
    >>> int(double(3))
    6
    """

    def marked(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **values: Any) -> Any:
            return function(*args, **values)

        call.__name__ = PREFIX + function.__name__
        return jax.jit(call, static_argnames=settings)

    return marked


def merge_equal_calls(eqns: Sequence[JaxprEqn]) -> Sequence[JaxprEqn]:
    """The operations of a program with equal calls of mergeable functions made as one, or the same object without any.

    Calls that depend on one another stay as they are.
    """
    groups: dict[int, list[int]] = defaultdict(list)
    for i, eqn in enumerate(eqns):
        if eqn.primitive is jit_p and eqn.params["name"].startswith(PREFIX):
            groups[id(eqn.params["jaxpr"])].append(i)  # JAX keeps one for equal arguments and settings
    merged = {i: tuple(group) for group in groups.values() if len(group) > 1 for i in group}
    order = _in_order(eqns, merged) if merged else None
    if order is None:
        return eqns
    return [eqns[part[0]] if len(part) == 1 else _merged([eqns[i] for i in part]) for part in order]


def _in_order(eqns: Sequence[JaxprEqn], merged: dict[int, tuple[int, ...]]) -> list[tuple[int, ...]] | None:
    """The numbers of operations, merged ones together and after all that they need; None if that is impossible."""
    maker = {out: i for i, eqn in enumerate(eqns) for out in eqn.outvars}
    order: list[tuple[int, ...]] = []
    done: set[int] = set()
    for first in range(len(eqns)):
        stack = [(merged.get(first, (first,)), False)]
        begun: set[tuple[int, ...]] = set()
        while stack:
            part, ready = stack.pop()
            if part[0] in done:
                continue
            if ready:
                order.append(part)
                done.update(part)
                continue
            if part in begun:
                return None  # it needs itself
            begun.add(part)
            stack.append((part, True))
            needed = {maker[v] for i in part for v in eqns[i].invars if not isinstance(v, Literal) and v in maker}
            stack += [(merged.get(i, (i,)), False) for i in sorted(needed - done, reverse=True)]
    return order


def _merged(calls: Sequence[JaxprEqn]) -> JaxprEqn:
    """One operation that makes several calls of a function."""
    first, count = calls[0], len(calls)
    function = jaxpr_as_fun(first.params["jaxpr"])
    operands = [v for call in calls for v in call.invars]

    def all_calls(*args: jax.Array) -> list[jax.Array]:
        keys, *conditions = (args[i :: len(args) // count] for i in range(len(args) // count))
        shared = [reduce(jnp.logical_and, values) for values in conditions]
        outs = jax.vmap(function, (0, *[None] * len(shared)))(jnp.stack(keys), *shared)
        return [out[i] for i in range(count) for out in outs]

    with first.ctx.manager:
        call = jax.make_jaxpr(jax.jit(all_calls))(*(cast(Any, v).aval for v in operands)).jaxpr.eqns[0]
    return call.replace(
        invars=operands,
        outvars=[v for eqn in calls for v in eqn.outvars],
        source_info=first.source_info,
        ctx=first.ctx,
    )
