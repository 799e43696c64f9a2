"""Haiku: ``(hk.transform(f), params)``, or with state ``(hk.transform_with_state(f), params, state)``."""

import inspect
import sys
from collections.abc import Mapping
from contextlib import contextmanager, nullcontext
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

ACCEPTS = "a Haiku (transformed, params) or (transformed, params, state)"


def adapt(obj: Any, call: Mapping[str, Any]) -> Adapted | None:
    hk = sys.modules.get("haiku")
    if hk is not None and isinstance(obj, hk.Transformed | hk.TransformedWithState):
        raise TypeError(
            "a network of hk.transform has no params of its own: give (transformed, params) with "
            "params = transformed.init(key, x); for hk.transform_with_state, (transformed, params, state)"
        )
    if hk is None or not (
        isinstance(obj, tuple) and obj and isinstance(obj[0], hk.Transformed | hk.TransformedWithState)
    ):
        return None
    transformed, *given = obj
    with_state = isinstance(transformed, hk.TransformedWithState)
    if len(given) != 1 + with_state:
        expected = "(transformed, params, state)" if with_state else "(transformed, params)"
        maker = "transform_with_state" if with_state else "transform"
        raise TypeError(f"a network of hk.{maker} is {expected}, got {len(obj)} items")
    params, state = given[0], given[1] if with_state else None
    leading = ("params", "state", "rng") if with_state else ("params", "rng")
    names = list(inspect.signature(transformed.apply).parameters)
    takes_rng = "rng" in names[: len(leading)]  # not after hk.without_apply_rng
    calling = Call.of(transformed.apply, call, skip=len(leading) - (not takes_rng))

    # with batch normalisation the training flag also controls that: there it keeps its default, or what the user fixed
    normed = bool(with_state and _norms(state))
    follows = normed and calling.has_training_flag
    running = calling.without_fixed_flags if follows else calling

    def run(params: Params, state: Any, x: Inputs, key: OptionalKey) -> tuple[Any, Any]:
        inputs, keywords = running.arguments(x, training=key is not None)
        before = [params, *([state] if with_state else []), *([key] if takes_rng else [])]
        outputs = transformed.apply(*before, *inputs, **keywords)
        return outputs if with_state else (outputs, None)

    statistics = _statistics(hk, run, state, calling.stored_flag) if normed else None

    def apply(params: Params, x: Inputs, *, key: OptionalKey = None) -> Outputs:
        with _norm_layers(hk, calling.trains_by_default()) if follows else nullcontext():
            return run(params, state, x, key)[0]

    return Adapted(apply, params, batch_statistics=statistics)


def _norms(state: Any) -> list[str]:
    """The names of the moving averages of batch normalisation in a state."""
    return [name for name in state or {} if name.endswith(("/~/mean_ema", "/~/var_ema"))]


def _statistics(hk: Any, run: Any, state: Any, stored_flag: str) -> BatchStatistics:
    def averages(state: Any) -> Statistics:
        return {name: state[name]["average"] for name in _norms(state)}

    # moving averages are bias-corrected: from zero, the first batch counts in full
    zeroed = {
        name: jax.tree.map(jnp.zeros_like, dict(leaves)) if name in _norms(state) else leaves
        for name, leaves in state.items()
    }

    def measure(params: Params, x: Inputs) -> Statistics:
        with _norm_layers(hk, True):
            return averages(run(params, zeroed, x, None)[1])

    def apply(params: Params, statistics: Statistics, x: Inputs) -> Outputs:
        replaced = {
            name: {**leaves, "average": statistics[name]} if name in statistics else leaves
            for name, leaves in state.items()
        }
        with _norm_layers(hk, False):
            return run(params, replaced, x, None)[0]

    use_stored = stored_flag or "is_training=False in the calls of hk.BatchNorm"
    return BatchStatistics(averages(state), measure, apply, use_stored)


@contextmanager
def _norm_layers(hk: Any, is_training: bool) -> Any:
    """A context in which batch normalisation uses the batch's or the stored statistics, however it is called."""

    def interceptor(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
        if not isinstance(context.module, hk.BatchNorm) or context.method_name != "__call__":
            return call(*args, **kwargs)
        kwargs = {name: value for name, value in kwargs.items() if name not in ("is_training", "test_local_stats")}
        return call(*args[:1], is_training=is_training, **kwargs)

    with hk.intercept_methods(interceptor):
        yield
