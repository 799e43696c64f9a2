"""Flax Linen: a ``(module, variables)`` pair."""

import sys
from collections.abc import Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import jax

from posteriax.networks.adapters.adapter import (
    KEYS,
    Adapted,
    BatchStatistics,
    Call,
    Inputs,
    OptionalKey,
    Outputs,
    Params,
    Statistics,
)

ACCEPTS = "a Linen (module, variables) pair"


def adapt(obj: Any, call: Mapping[str, Any]) -> Adapted | None:
    nn = sys.modules.get("flax.linen")
    if nn is None or not (isinstance(obj, tuple) and len(obj) == 2 and isinstance(obj[0], nn.Module)):
        return None
    module, variables = obj
    if "params" not in variables:
        raise ValueError(
            f'a Linen network is (module, variables) with variables["params"], as module.init returns them; got the '
            f"collections {sorted(variables)}"
        )
    rest = {name: collection for name, collection in variables.items() if name != "params"}
    calling = Call.of(type(module).__call__, call)

    def run(given: Any, x: Inputs, key: OptionalKey, *, training: bool, mutable: Any) -> Any:
        inputs, keywords = calling.arguments(x, training=training)
        keywords |= {name: key for name in KEYS if calling.takes(name)}
        # streams with other names fall back on "params"
        rngs = None if key is None else {"dropout": key, "params": jax.random.fold_in(key, 1)}
        return _apply(module, given, inputs, keywords, rngs, mutable)

    def apply(params: Params, x: Inputs, *, key: OptionalKey = None) -> Outputs:
        if not rest:
            return run({"params": params}, x, key, training=key is not None, mutable=False)
        normed = "batch_stats" in rest
        # with batch statistics the training flag also selects those, so it keeps its default; Dropout goes by the key
        training = calling.trains_by_default() if normed else key is not None
        with _layers(nn.Dropout, deterministic=key is None) if normed else nullcontext():
            return run({**rest, "params": params}, x, key, training=training, mutable=list(rest))[0]

    def run_normed(params: Params, statistics: Statistics, x: Inputs, *, stored: bool) -> tuple[Any, Statistics]:
        with _layers(nn.BatchNorm, use_running_average=stored, momentum=0.0):
            given = {**rest, "params": params, "batch_stats": statistics}
            outputs, changed = run(given, x, None, training=False, mutable=list(rest))
        return outputs, changed["batch_stats"]

    statistics = None
    if "batch_stats" in rest:
        held = rest["batch_stats"]
        statistics = BatchStatistics(
            held,
            lambda params, x: run_normed(params, held, x, stored=False)[1],
            lambda params, statistics, x: run_normed(params, statistics, x, stored=True)[0],
            calling.stored_flag or "use_running_average=True in the module's BatchNorm layers",
        )
    return Adapted(apply, variables["params"], batch_statistics=statistics)


def _apply(module: Any, given: Any, inputs: Any, keywords: dict[str, Any], rngs: Any, mutable: Any) -> Any:
    # module.apply has an argument of this name as well: the module's own must be passed through a method
    module_rngs = keywords.pop("rngs", None)
    if module_rngs is None:
        return module.apply(given, *inputs, rngs=rngs, mutable=mutable, **keywords)
    return module.apply(
        given, *inputs, rngs=rngs, mutable=mutable, method=lambda m, *a, **k: m(*a, rngs=module_rngs, **k), **keywords
    )


@contextmanager
def _layers(kind: Any, **settings: Any) -> Any:
    """A context in which all layers of a kind have these settings, whatever their module sets."""
    import flax.linen as nn

    def interceptor(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
        layer = context.module
        if not isinstance(layer, kind) or context.method_name != "__call__":
            return call(*args, **kwargs)
        before = {name: getattr(layer, name) for name in settings}
        kwargs = {name: value for name, value in kwargs.items() if name not in settings}
        try:
            for name, value in settings.items():
                # Linen modules are frozen, but this one exists for one call only
                object.__setattr__(layer, name, value)
            return call(*args[:1], **kwargs)
        finally:
            for name, value in before.items():
                object.__setattr__(layer, name, value)

    with nn.intercept_methods(interceptor):
        yield
