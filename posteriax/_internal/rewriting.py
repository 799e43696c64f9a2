"""Rewriting traced programs: chosen operations are replaced by others that compute the same."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Primitive, jaxpr_as_fun

# the function to call in place of an operation; None to keep it
Rule = Callable[[JaxprEqn], Callable[..., Any] | None]


def rewritten(fun: Callable[..., Any], rules: Mapping[Primitive, Rule]) -> Callable[..., Any]:
    """`fun` with some of its operations replaced, also inside its loops, branches and inner functions.

    The program is rewritten as it will be compiled, after differentiation and vectorisation.

    Args:
        fun: a function of arrays; call the result inside `jit`.
        rules: what to replace each primitive by; its replacement takes the same operands.

    >>> import jax.numpy as jnp
    >>> from jax.extend.core.primitives import sin_p
    >>> rewritten(lambda x: 2 * jnp.sin(x), {sin_p: lambda eqn: jnp.cos})(0.0)
    Array(2., dtype=float32, weak_type=True)
    """

    def faster(*args: Any) -> Any:
        program, spec = jax.make_jaxpr(fun, return_shape=True)(*args)
        outputs = jaxpr_as_fun(_Rewriting(rules).closed(program))(*jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(spec), outputs)

    return faster


class _Rewriting:
    """One pass over a program. Whatever holds nothing to replace is returned as the same object."""

    def __init__(self, rules: Mapping[Primitive, Rule]):
        self.rules = rules
        self.known: dict[int, tuple[Jaxpr, Jaxpr]] = {}  # by id of the first, which is kept alive: often shared

    def closed(self, program: ClosedJaxpr) -> ClosedJaxpr:
        inner = self.jaxpr(program.jaxpr)
        return program if inner is program.jaxpr else program.replace(jaxpr=inner)

    def jaxpr(self, jaxpr: Jaxpr) -> Jaxpr:
        if id(jaxpr) not in self.known:
            eqns = [self.eqn(eqn) for eqn in jaxpr.eqns]
            changed = any(new is not old for new, old in zip(eqns, jaxpr.eqns, strict=True))
            self.known[id(jaxpr)] = jaxpr, jaxpr.replace(eqns=eqns) if changed else jaxpr
        return self.known[id(jaxpr)][1]

    def eqn(self, eqn: JaxprEqn) -> JaxprEqn:
        rule = self.rules.get(eqn.primitive)
        replacement = rule(eqn) if rule else None
        if replacement is not None:
            return _call(replacement, eqn)
        params = {name: self.param(value) for name, value in eqn.params.items()}
        changed = any(value is not eqn.params[name] for name, value in params.items())
        return eqn.replace(params=params) if changed else eqn

    def param(self, value: Any) -> Any:
        if isinstance(value, ClosedJaxpr):
            return self.closed(value)
        if isinstance(value, Jaxpr):
            return self.jaxpr(value)
        if isinstance(value, tuple) and any(isinstance(part, ClosedJaxpr) for part in value):  # branches
            parts = tuple(self.param(part) for part in value)
            return value if all(new is old for new, old in zip(parts, value, strict=True)) else parts
        return value


def _call(function: Callable[..., Any], eqn: JaxprEqn) -> JaxprEqn:
    """An equation that calls the function with the operands of another."""
    with eqn.ctx.manager:
        call = jax.make_jaxpr(jax.jit(function))(*(v.aval for v in eqn.invars)).jaxpr.eqns[0]
    return call.replace(invars=eqn.invars, outvars=eqn.outvars, source_info=eqn.source_info, ctx=eqn.ctx)
