"""Flax NNX: a module. Its random streams (Dropout) are reseeded for every call."""

import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp

from posteriax.networks.adapters.adapter import (
    Adapted,
    BatchStatistics,
    Call,
    Inputs,
    OptionalKey,
    Outputs,
    Params,
    Statistics,
)

ACCEPTS = "a Flax NNX module"


def adapt(obj: Any, call: Mapping[str, Any]) -> Adapted | None:
    nnx = sys.modules.get("flax.nnx")
    if nnx is None or not isinstance(obj, nnx.Module):
        return None
    if not callable(obj):
        raise TypeError(f"the NNX module {type(obj).__name__} has no __call__")
    graph, state, rest = nnx.split(obj, nnx.Param, ...)
    calling = Call.of(type(obj).__call__, call)
    # with batch normalisation the training flag of the call also controls that: there it keeps its default
    follows = calling.has_training_flag and bool(nnx.to_pure_dict(nnx.filter_state(rest, nnx.BatchStat)))
    running = calling.without_fixed_flags if follows else calling

    def merge(params: Params, key: OptionalKey = None) -> Any:
        filled = nnx.clone(state)
        nnx.replace_by_pure_dict(filled, params)
        merged = nnx.merge(graph, filled, rest, copy=True)  # a copy: NNX would mutate variables of an outer trace
        if key is None:
            merged.set_attributes(deterministic=True, raise_if_not_found=False)
        else:
            _reseed(nnx, merged, key)
        return merged

    def run(module: Any, x: Inputs, key: OptionalKey = None) -> Any:
        inputs, keywords = running.arguments(x, training=key is not None)
        if calling.takes("rngs"):
            keywords["rngs"] = None if key is None else nnx.Rngs(key)
        for name in ("key", "rng"):
            if calling.takes(name):
                keywords[name] = key
        return module(*inputs, **keywords)

    def apply(params: Params, x: Inputs, *, key: OptionalKey = None) -> Outputs:
        module = merge(params, key)
        if follows:
            _set_norms(nnx, module, use_running_average=not calling.trains_by_default())
        return run(module, x, key)

    statistics = _statistics(nnx, merge, run, rest, calling.stored_flag or "module.eval()")
    return Adapted(apply, nnx.to_pure_dict(state), batch_statistics=statistics)


def _reseed(nnx: Any, module: Any, key: jax.Array) -> None:
    """Reseed every random stream of a module from this key."""
    streams = [node for _, node in nnx.iter_graph(module) if isinstance(node, nnx.RngStream)]
    for index, stream in enumerate(streams):
        old, new = stream.key[...], jax.random.fold_in(key, index)
        # layers made by vmap have one stream each
        stream.key[...] = jax.random.split(new, old.shape) if old.shape else new
        stream.count[...] = jnp.zeros_like(stream.count[...])


def _set_norms(nnx: Any, module: Any, **settings: Any) -> None:
    """Set attributes of every BatchNorm of a module, whatever it is called with."""
    for _, node in nnx.iter_graph(module):
        if isinstance(node, nnx.BatchNorm):
            kind: Any = type(node)
            node.__class__ = _settled(kind)  # the module is a copy
            for name, value in settings.items():
                setattr(node, name, value)


@cache
def _settled(kind: Any) -> Any:
    """A BatchNorm class whose call cannot choose between the batch's and the stored statistics."""
    if getattr(kind, "is_settled", False):
        return kind

    class Settled(kind):
        is_settled = True

        def __call__(self, x: Inputs, use_running_average: Any = None, **others: Any) -> Any:
            return super().__call__(x, use_running_average=self.use_running_average, **others)

    return Settled


def _statistics(
    nnx: Any, merge: Callable[[Params], Any], run: Callable[[Any, Any], Any], held: Any, use_stored: str
) -> BatchStatistics | None:
    """The batch statistics of a module; None if it has no BatchNorm.

    Args:
        merge: builds a module from params, for a deterministic pass.
        run: calls a module.
        held: the state of the module other than its params.
        use_stored: how the user makes it use its stored statistics.
    """
    stored_statistics = nnx.to_pure_dict(nnx.filter_state(held, nnx.BatchStat))
    if not stored_statistics:
        return None

    def prepared(params: Params, *, stored: bool) -> Any:
        module = merge(params)
        _set_norms(nnx, module, use_running_average=stored, momentum=0.0)
        return module

    def measure(params: Params, x: Inputs) -> Statistics:
        module = prepared(params, stored=False)
        run(module, x)
        return nnx.to_pure_dict(nnx.state(module, nnx.BatchStat))

    def apply(params: Params, statistics: Statistics, x: Inputs) -> Outputs:
        module = prepared(params, stored=True)
        state = nnx.state(module, nnx.BatchStat)
        nnx.replace_by_pure_dict(state, statistics)
        nnx.update(module, state)
        return run(module, x)

    return BatchStatistics(stored_statistics, measure, apply, use_stored)
