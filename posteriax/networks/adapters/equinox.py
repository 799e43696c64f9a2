"""Equinox: a module, or the ``(module, state)`` pair of ``eqx.nn.make_with_state``. It takes one example."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from posteriax.networks.adapters.adapter import (
    KEYS,
    TRAINING_FLAGS,
    Adapted,
    BatchStatistics,
    Call,
    Inputs,
    OptionalKey,
    Outputs,
    Params,
    Statistics,
)

ACCEPTS = "an Equinox module or its (module, state) pair"


def adapt(obj: Any, call: Mapping[str, Any]) -> Adapted | None:
    if isinstance(obj, eqx.Module) and not isinstance(obj, eqx.nn.State):
        return _stateless(obj, call)
    if isinstance(obj, tuple) and len(obj) == 2 and isinstance(obj[0], eqx.Module) and isinstance(obj[1], eqx.nn.State):
        return _stateful(*obj, call)
    return None


def _stateless(module: eqx.Module, call: Mapping[str, Any]) -> Adapted:
    params, static = eqx.partition(module, eqx.is_inexact_array)
    calling = Call.of(_call_of(module), call)
    if "state" in calling.parameters and _norms(module):
        raise TypeError(
            "the Equinox module has BatchNorm layers, which keep their statistics in a state: pass the pair "
            "(module, state) that eqx.nn.make_with_state returns"
        )
    takes_key = calling.takes("key", by_keywords=True)

    def apply(params: Params, x: Inputs, *, key: OptionalKey = None) -> Outputs:
        filled: Any = eqx.combine(params, static)
        inputs, keywords = calling.arguments(x, training=key is not None)
        keywords |= {"key": key} if takes_key else {}
        return (eqx.nn.inference_mode(filled) if key is None else filled)(*inputs, **keywords)

    return Adapted(apply, params, batched=False, out_axis=0)


def _stateful(module: eqx.Module, state: Any, call: Mapping[str, Any]) -> Adapted:
    params, static = eqx.partition(module, eqx.is_inexact_array)
    state_name = _name_of_state(module)
    calling = Call.of(_call_of(module), call, without=(state_name,))
    takes_key = calling.takes("key", by_keywords=True)
    names = _axis_names(module)
    held, rest = eqx.partition(state, eqx.is_inexact_array)
    # a training flag only affects dropout: batch normalisation stays as in the module, or as the user fixed it
    running, fixed = calling, {}
    if _norms(module) and calling.has_training_flag:
        running = calling.without_fixed_flags
        fixed = {} if running.fixed == calling.fixed else {"inference": not calling.trains_by_default()}

    def run(module: Any, state: Any, x: Inputs, key: OptionalKey) -> tuple[Any, Any]:
        if key is None:
            module = _without_noise(module)
        inputs, keywords = running.arguments(x, training=key is not None)
        keywords |= {"key": key} if takes_key else {}
        return module(*inputs, **{state_name: state}, **keywords)

    def apply(params: Params, x: Inputs, *, key: OptionalKey = None) -> Outputs:
        module = _with_norms(eqx.combine(params, static), **fixed)
        return run(module, _fresh_state(held, rest, x), x, key)[0]

    def run_batch(params: Params, statistics: Statistics, x: Inputs, **settings: Any) -> tuple[Any, Any]:
        module = _with_norms(eqx.combine(params, static), **settings)

        def run_example(x: Inputs) -> tuple[Outputs, Any]:
            return run(module, _fresh_state(statistics, rest, x), x, None)

        return jax.vmap(run_example, out_axes=(0, None), axis_name=names)(x)

    def measure(params: Params, x: Inputs) -> Statistics:
        _, changed = run_batch(params, held, x, inference=False, momentum=0.0)
        return eqx.filter(changed, eqx.is_inexact_array)

    # with zero momentum, stored averages are used as they are
    statistics = BatchStatistics(
        _corrected(module, eqx.combine(held, rest)),
        measure,
        lambda params, statistics, x: run_batch(params, statistics, x, inference=True, momentum=0.0)[0],
        "eqx.nn.inference_mode(module), for the module of the pair (module, state)",
    )
    return Adapted(apply, params, False, 0, statistics if _norms(module) else None, names)


def _call_of(module: eqx.Module) -> Any:
    if not callable(module):
        raise TypeError(f"the Equinox module {type(module).__name__} has no __call__")
    return type(module).__call__


def _name_of_state(module: eqx.Module) -> str:
    """The argument of the call that takes the state: the one named "state", or the last required one."""
    parameters = Call.of(_call_of(module), {}).parameters
    required = [
        name
        for name, p in parameters.items()
        if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD and name not in (*TRAINING_FLAGS, *KEYS)
    ]
    if "state" not in parameters and len(required) < 2:
        raise TypeError(f"the call of {type(module).__name__} takes no state, only {', '.join(parameters)}")
    return "state" if "state" in parameters else required[-1]


class _SettledNorm(eqx.nn.BatchNorm):
    """Batch normalisation whose call cannot choose between the batch's and the stored statistics."""

    def __call__(self, x: Inputs, state: Any, *, key: OptionalKey = None, inference: Any = None) -> Any:
        return super().__call__(x, state)


def _is_norm(node: Any) -> bool:
    return isinstance(node, eqx.nn.BatchNorm)


def _norms(module: Any) -> list[eqx.nn.BatchNorm]:
    return [node for node in jax.tree.leaves(module, is_leaf=_is_norm) if _is_norm(node)]


def _axis_names(module: Any) -> Any:
    given: list[Any] = [norm.axis_name for norm in _norms(module)]
    names = {name[0] if isinstance(name, list | tuple) and len(name) == 1 else name for name in given}
    if len(names) > 1:
        raise ValueError(f"BatchNorm layers have different axis names, {sorted(map(str, names))}: use one name for all")
    return next(iter(names), "batch")


def _fresh_state(statistics: Statistics, rest: Any, x: Inputs) -> Any:
    """A fresh state, since each can be used only once.

    Equinox checks that a stored array and its replacement match, including their devices. Adding a zero computed from
    the data moves the arrays of the state to where the data are.
    """
    zero = jnp.zeros_like(jax.tree.leaves(x)[0]).sum()

    def moved(a: Any) -> Any:
        if not eqx.is_array(a):
            return a
        return a | (zero > 0) if a.dtype == bool else a + zero.astype(a.dtype)

    return jax.tree.map(moved, eqx.combine(statistics, rest))


def _corrected(module: Any, state: Any) -> Statistics:
    """The statistics in a state, with moving averages corrected for their initial 0."""
    for norm in _norms(module):
        if norm.mode == "batch":
            count, averages = state.get(norm.batch_counter), state.get(norm.batch_state_index)
            seen = jnp.where(count == 0, 1.0, 1.0 - norm.momentum**count)
            state = state.set(norm.batch_state_index, jax.tree.map(lambda a, seen=seen: a / seen, averages))
    return eqx.filter(state, eqx.is_inexact_array)


def _with_norms(module: Any, **settings: Any) -> Any:
    """The module with these settings in every BatchNorm, whatever it is called with."""

    def changed(node: Any) -> Any:
        if not _is_norm(node):
            return node
        new = object.__new__(_SettledNorm)
        for field in dataclasses.fields(node):  # Equinox modules are frozen, but this is a new one
            object.__setattr__(new, field.name, settings.get(field.name, getattr(node, field.name)))
        return new

    return jax.tree.map(changed, module, is_leaf=_is_norm)


def _without_noise(module: Any) -> Any:
    """Dropout off; batch normalisation unchanged, since it is part of the function, not noise."""
    flags = iter([norm.inference for norm in _norms(module)])
    off = eqx.nn.inference_mode(module)
    return jax.tree.map(
        lambda node: _with_norms(node, inference=next(flags)) if _is_norm(node) else node, off, is_leaf=_is_norm
    )
