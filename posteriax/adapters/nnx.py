"""Flax NNX: a module. Its Dropout and other random streams are seeded anew for every call."""

import sys
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from posteriax.adapters.adapted import Adapted, Params
from posteriax.adapters.calling import Call
from posteriax.batch_statistics import BatchStatistics, Statistics


def adapt(obj: Any, call: Mapping[str, Any]) -> Adapted | None:
    nnx = sys.modules.get("flax.nnx")
    if nnx is None or not isinstance(obj, nnx.Module):
        return None
    if not callable(obj):
        raise TypeError(f"the NNX module {type(obj).__name__} has no __call__ to apply it by")
    graph, state, rest = nnx.split(obj, nnx.Param, ...)
    calling = Call.of(type(obj).__call__, call)

    def merge(params: Params, key: Any = None) -> Any:
        filled = nnx.clone(state)
        nnx.replace_by_pure_dict(filled, params)
        merged = nnx.merge(graph, filled, rest, copy=True)  # a copy: NNX would mutate variables of an outer trace
        if key is None:
            merged.set_attributes(deterministic=True, raise_if_not_found=False)
        else:
            _reseed(nnx, merged, key)
        return merged

    def run(module: Any, x: Any, key: Any = None) -> Any:
        inputs, keywords = calling.arguments(x)
        keywords = calling.switches(training=key is not None) | keywords
        if calling.takes("rngs"):
            keywords["rngs"] = None if key is None else nnx.Rngs(key)
        for name in ("key", "rng"):
            if calling.takes(name):
                keywords[name] = key
        return module(*inputs, **keywords)

    def apply(params: Params, x: Any, *, key: Any = None) -> Any:
        return run(merge(params, key), x, key)

    return Adapted(apply, nnx.to_pure_dict(state), batch_statistics=_statistics(nnx, merge, run, rest))


def _reseed(nnx: Any, module: Any, key: jax.Array) -> None:
    """Start every random stream of a module anew from this key."""
    found = [node for _, node in nnx.iter_graph(module) if isinstance(node, nnx.RngStream)]
    for index, stream in enumerate(found):
        own, new = stream.key[...], jax.random.fold_in(key, index)
        # layers that were made by vmap have a stream for each of them
        stream.key[...] = jax.random.split(new, own.shape) if own.shape else new
        stream.count[...] = jnp.zeros_like(stream.count[...])


def _statistics(
    nnx: Any, merge: Callable[[Params], Any], run: Callable[[Any, Any], Any], held: Any
) -> BatchStatistics | None:
    """Those of its BatchNorm layers; None if it has none.

    Args:
        merge: makes a module of params, for a deterministic pass.
        run: calls a module.
        held: the module's state other than its params.
    """
    own = nnx.to_pure_dict(nnx.filter_state(held, nnx.BatchStat))
    if not own:
        return None

    def prepared(params: Params, *, stored: bool) -> Any:
        module = merge(params)
        for _, node in nnx.iter_graph(module):
            if isinstance(node, nnx.BatchNorm):
                node.use_running_average, node.momentum = stored, 0.0
        return module

    def measure(params: Params, x: Any) -> Statistics:
        module = prepared(params, stored=False)
        run(module, x)
        return nnx.to_pure_dict(nnx.state(module, nnx.BatchStat))

    def apply(params: Params, statistics: Statistics, x: Any) -> Any:
        module = prepared(params, stored=True)
        state = nnx.state(module, nnx.BatchStat)
        nnx.replace_by_pure_dict(state, statistics)
        nnx.update(module, state)
        return run(module, x)

    return BatchStatistics(own, measure, apply)
