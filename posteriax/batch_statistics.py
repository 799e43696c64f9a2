"""Batch statistics: measuring what batch normalisation normalises by, and normalising by what was measured.

A network with batch normalisation has, beside its params, the mean and variance of each such layer's inputs. In
training they are those of the batch at hand; for predictions they should be those of the training data, under the very
weights that predict. Frameworks keep a moving average along the training run instead, which fits no single draw.
"""

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any, NamedTuple

Params = Any
Statistics = Any  # a pytree of arrays, the means and variances of every normalisation layer


class BatchStatistics(NamedTuple):
    """What a network with batch normalisation can do beside being applied.

    Args:
        stored: the statistics that the network came with.
        measure: ``measure(params, x)``: the statistics of a batch.
        apply: ``apply(params, statistics, x)``: the outputs, normalised by these.
    """

    stored: Statistics
    measure: Callable[[Params, Any], Statistics]
    apply: Callable[[Params, Statistics, Any], Any]


def linen_statistics(module: Any, variables: Any, arguments: dict[str, bool]) -> BatchStatistics | None:
    """Those of a Flax Linen module; None if it has no batch normalisation.

    Args:
        arguments: what the module's call is given beside its input, for a deterministic pass.
    """
    if "batch_stats" not in variables:
        return None
    rest = {name: collection for name, collection in variables.items() if name not in ("params", "batch_stats")}

    def run(params: Params, statistics: Statistics, x: Any, *, stored: bool) -> tuple[Any, Statistics]:
        with _linen_batch_norms(use_running_average=stored, momentum=0.0):
            given = {**rest, "params": params, "batch_stats": statistics}
            outputs, changed = module.apply(given, x, mutable=[*rest, "batch_stats"], **arguments)
        return outputs, changed["batch_stats"]

    held = variables["batch_stats"]
    return BatchStatistics(
        held,
        lambda params, x: run(params, held, x, stored=False)[1],
        lambda params, statistics, x: run(params, statistics, x, stored=True)[0],
    )


@contextmanager
def _linen_batch_norms(**settings: Any) -> Any:
    """Within, every BatchNorm is called with these settings, however its module would set them."""
    import flax.linen as nn

    def interceptor(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
        layer = context.module
        if not isinstance(layer, nn.BatchNorm) or context.method_name != "__call__":
            return call(*args, **kwargs)
        own = {name: getattr(layer, name) for name in settings}
        kwargs = {name: value for name, value in kwargs.items() if name not in settings}
        try:
            for name, value in settings.items():
                object.__setattr__(layer, name, value)  # Linen's modules are frozen; this one lives for one call
            return call(*args[:1], **kwargs)
        finally:
            for name, value in own.items():
                object.__setattr__(layer, name, value)

    with nn.intercept_methods(interceptor):
        yield


def nnx_statistics(nnx: Any, merge: Callable[[Params], Any], held: Any) -> BatchStatistics | None:
    """Those of a Flax NNX module; None if it has no batch normalisation.

    Args:
        nnx: the module ``flax.nnx``.
        merge: makes a module of params, for a deterministic pass.
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
        module(x)
        return nnx.to_pure_dict(nnx.state(module, nnx.BatchStat))

    def apply(params: Params, statistics: Statistics, x: Any) -> Any:
        module = prepared(params, stored=True)
        state = nnx.state(module, nnx.BatchStat)
        nnx.replace_by_pure_dict(state, statistics)
        nnx.update(module, state)
        return module(x)

    return BatchStatistics(own, measure, apply)
