"""Networks: any JAX network as ``apply(params, x, *, key=None) -> outputs`` and its ``params``.

``x`` and the outputs have a leading axis of examples. ``key=None`` asks for a deterministic pass; a key is passed on to
the network's own randomness (dropout). The network is neither changed nor subclassed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from posteriax._internal.leaf_paths import describe_leaves, leaf_paths
from posteriax.data.inputs import channels_first
from posteriax.networks.adapters import adapt
from posteriax.networks.adapters.adapter import BatchStatistics, Inputs, OptionalKey, Outputs, Statistics, over_examples
from posteriax.networks.adapters.adapter import Params as Params
from posteriax.networks.fixed_leaves import FixedLeaves, fix_leaves
from posteriax.networks.leaf import Axes, Leaf
from posteriax.networks.precision import check_compute, rounded, rounded_statistics
from posteriax.networks.tracing.leaf_axes import find_axes
from posteriax.networks.tracing.program import NetworkPrograms, spec_of_example


@dataclass(frozen=True, eq=False)
class Network:
    """A network as a pure function and the arrays it is applied to.

    Args:
        apply: ``apply(params, x, *, key=None) -> outputs``, on a batch of examples.
        params: the pytree of floating-point arrays to put a posterior on; their values are the starting point.
        out_axis: the output axis of a weight by convention: 0 in Equinox, -1 elsewhere. Used by He-scaled priors and
            tied families if `axes` does not tell.
        batch_statistics: how to measure and replace the statistics of its batch normalisation layers, if any.
        axes: the input and output axes of each leaf, read off the program; None if that has not been done yet.
        example: the shapes and dtypes of one example, as it was when the program was read.
        compute: the dtype that `apply` computes in, if it is not the params' own.
        fixed: the leaves that are not in `params` because they are not inferred, if any.
        source: what :func:`px.network` was given, and with which settings: pickle builds the network from it again.

    >>> net = Network(lambda params, x, *, key=None: x @ params["w"], {"w": jnp.ones((3, 2))})
    >>> net.num_parameters
    6
    """

    apply: Callable[..., Outputs]
    params: Params
    out_axis: int = -1
    batch_statistics: BatchStatistics | None = None
    axes: tuple[Axes | None, ...] | None = None
    example: Any = None
    compute: str | None = None
    fixed: FixedLeaves | None = None
    source: tuple[Any, dict[str, Any]] | None = None

    def computing(self, compute: str | None) -> "Network":
        """The same network, computing in another dtype; None leaves it as it is."""
        if compute in (None, self.compute):
            return self
        return replace(
            self,
            apply=rounded(self.apply),
            batch_statistics=rounded_statistics(self.batch_statistics),
            compute=compute,
        )

    def reading(self, x: Inputs) -> "Network":
        """The same network, with the axes of its leaves read off the program for inputs like `x`.

        >>> net = Network(lambda params, x, *, key=None: x @ params["w"].T, {"w": jnp.ones((2, 3))})
        >>> net.leaf_infos[0].in_axes, net.reading(np.ones((5, 3))).leaf_infos[0].in_axes
        ((0,), (1,))
        """
        example = jax.tree.map(lambda a: jax.ShapeDtypeStruct(np.shape(a)[1:], np.asarray(a).dtype), x)
        read = replace(self, axes=find_axes(self.programs, spec_of_example(x)), example=example)
        read.__dict__["programs"] = self.programs  # those of the same function
        return read

    def normalising_by(self, statistics: Statistics) -> "Network":
        """The same network, whose batch normalisation uses these statistics, in training too; dropout is off in it."""
        assert self.batch_statistics is not None
        known = self.batch_statistics

        def apply(params: Params, x: Inputs, *, key: OptionalKey = None) -> Outputs:
            return known.apply(params, statistics, x)

        # what px.network was given has other statistics
        return replace(self, apply=apply, batch_statistics=known._replace(stored=statistics), source=None)

    @cached_property
    def programs(self) -> NetworkPrograms:
        """What the network does, read off its programs by :mod:`posteriax.networks.tracing`."""
        return NetworkPrograms(self.apply, self.params)

    @property
    def how_to_uncouple(self) -> str:
        """What to do about outputs that depend on the other examples of a batch."""
        others = "normalise each example by itself (GroupNorm, LayerNorm, filter response)"
        if self.batch_statistics is None:
            return f"To avoid that, {others}."
        return (
            f"Use px.posterior.with_batch_statistics(posterior, x).network, the network of a fitted posterior with "
            f"statistics measured on x; or the statistics stored in the network: {self.batch_statistics.use_stored}; "
            f"or {others}. See docs/networks.md."
        )

    @property
    def leaf_infos(self) -> list[Leaf]:
        """What priors and families may know about each leaf, in flattening order."""
        leaves = jax.tree.leaves(self.params)
        axes = self.axes or (None,) * len(leaves)
        return [
            Leaf(path, leaf.shape, self.out_axis, leaf_axes)
            for path, leaf, leaf_axes in zip(leaf_paths(self.params), leaves, axes, strict=True)
        ]

    def all_params(self, params: Params, leading: tuple[int, ...] = ()) -> Params:
        """`params` with the fixed leaves, which get the same `leading` axes: read-only views of one copy."""
        return params if self.fixed is None else self.fixed.fill(params, leading)

    def inferred(self, params: Params) -> Params:
        """`params` without the fixed leaves."""
        return params if self.fixed is None else self.fixed.restrict(params)

    @property
    def num_parameters(self) -> int:
        return sum(leaf.size for leaf in jax.tree.leaves(self.params))

    def __repr__(self) -> str:
        return "\n".join([f"Network with {self.num_parameters:,} parameters", *describe_leaves(self.params)])


def network(
    obj: Any,
    *,
    batched: bool | None = None,
    out_axis: int | None = None,
    example: Any = None,
    call: Mapping[str, Any] | None = None,
    compute: Any = None,
    inputs: Any = None,
) -> Network:
    """Adapt a network to posteriax.

    Args:
        obj: an Equinox module or its ``(module, state)`` pair; a Flax NNX module; a Flax Linen ``(module, variables)``
            pair; a Haiku ``(transformed, params)`` or ``(transformed, params, state)``; a built Keras model on JAX; a
            PyTorch module (docs/pytorch.md); or a ``(function, params)`` pair where ``function(params, x)`` may also
            take ``key=``.
        batched: whether the network takes a batch or one example; by default one example for Equinox, else a batch.
        out_axis: the output axis of a weight; by default 0 for Equinox and PyTorch, else -1.
        example: some inputs, with a leading axis of examples, to read the axes of each leaf off the program now;
            ``px.fit`` does so otherwise.
        call: keyword arguments for every call of the network, such as ``{"train": True}``.
        compute: "bfloat16" for mixed precision: the network computes in bfloat16, while params, likelihood and prior
            stay in float32. See docs/training.md for what that does to a posterior.
        inputs: a function of a batch of x, or a list of them, applied before the network in training and in prediction:
            ``px.data.Normalise(mean, std)``, ``px.data.channels_first``.

    Inputs may be a dict or a tuple of arrays: docs/networks.md tells how they are passed to the call, and how training
    flags and randomness are handled.

    >>> import equinox as eqx, jax, posteriax as px
    >>> net = px.network(eqx.nn.Linear(3, 2, key=jax.random.key(0)))
    >>> net.apply(net.params, jax.numpy.ones((5, 3))).shape
    (5, 2)
    """
    low = check_compute(compute)
    if isinstance(obj, Network):
        net = obj.computing(low)
        net = net if inputs is None else replace(_with_inputs(net, inputs), source=None)
        return net if example is None else net.reading(example)
    adapted = adapt(obj, {} if call is None else call)
    params = jax.tree.map(jnp.asarray, adapted.params)
    _check_params(params)
    takes_batch = adapted.batched if batched is None else batched
    net = Network(
        adapted.apply if takes_batch else over_examples(adapted.apply, adapted.axis_name),
        params,
        adapted.out_axis if out_axis is None else out_axis,
        adapted.batch_statistics if takes_batch is adapted.batched else None,
        source=(obj, {"batched": batched, "out_axis": out_axis, "call": call, "compute": compute, "inputs": inputs}),
    ).computing(low)
    net = fix_leaves(net if inputs is None else _with_inputs(net, inputs), adapted.fixed)
    return net if example is None else net.reading(example)


def paths(net: Any) -> list[str]:
    """The leaves of a network, one line each: ``path shape dtype``. Patterns for priors and families match the paths.

    >>> import equinox as eqx, jax, posteriax as px
    >>> px.paths(eqx.nn.Linear(3, 2, key=jax.random.key(0)))
    ['weight (2, 3) float32', 'bias (2,) float32']
    """
    return describe_leaves(network(net).params)


def _with_inputs(net: Network, inputs: Any) -> Network:
    """The network after these functions of its inputs."""
    functions = list(inputs) if isinstance(inputs, Sequence) else [inputs]
    for function in functions:
        if not callable(function):
            raise TypeError(f"inputs must be a function of a batch of x, or a list of them; got {function!r}")

    def prepare(x: Inputs) -> Inputs:
        for function in functions:
            x = function(x)
        return x

    def apply(params: Params, x: Inputs, *, key: OptionalKey = None) -> Outputs:
        return net.apply(params, prepare(x), key=key)

    statistics = net.batch_statistics
    if statistics is not None:
        measured, applied = statistics.measure, statistics.apply
        statistics = statistics._replace(
            measure=lambda params, x: measured(params, prepare(x)),
            apply=lambda params, stored, x: applied(params, stored, prepare(x)),
        )
    return replace(net, apply=apply, batch_statistics=statistics)


def _check_params(params: Params) -> None:
    leaves = jax.tree.leaves(params)
    if not leaves:
        raise ValueError("the network has no floating-point arrays to put a posterior on")
    for line, leaf in zip(describe_leaves(params), leaves, strict=True):
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise TypeError(
                f"leaf {line} is not a real floating-point array, so it cannot have a posterior: keep it out of params"
            )
        if not np.isfinite(np.asarray(leaf)).all():
            raise ValueError(f"leaf {line} has non-finite values")


def input_hint(apply: Callable[..., Outputs], params: Params, specs: PyTree) -> str:
    """What to do about inputs for which `apply` fails, such as integers or misplaced channels, found by trying changes.

    A sentence to append to the error message; empty if no change helps.
    """
    for sentence, change in TRIALS.items():
        try:
            jax.eval_shape(lambda params, x, change=change: apply(params, change(x)), params, specs)
        except Exception:  # whatever a network raises: this trial is not the answer
            continue
        return f". {sentence}"
    return ""


def is_single_example(apply: Callable[..., Outputs], params: Params, specs: PyTree) -> bool:
    """Whether `apply` gives outputs for one example if `specs` get an axis of examples."""
    try:
        shape = jax.eval_shape(lambda params, x: apply(params, TRIALS[ADD_AXIS](x)), params, specs).shape
    except Exception:  # whatever a network raises
        return False
    return shape[:1] == (1,)


def _as_floats(x: Inputs) -> Inputs:
    return jax.tree.map(lambda a: a.astype(jnp.float32), x)


def _channels_last(x: jax.Array) -> jax.Array:
    return jnp.moveaxis(x, 1, -1)


ADD_AXIS = "For a single example, add an axis of examples: x[None]"
TRIALS: dict[str, Callable[[Any], Any]] = {
    "It takes floating-point inputs: px.network(net, inputs=px.data.Normalise(mean, std))": _as_floats,
    "It takes its channels first: px.network(net, inputs=px.data.channels_first)": channels_first,
    "It takes floating-point inputs, channels first: px.network(net, inputs=[px.data.Normalise(mean, std), "
    "px.data.channels_first])": lambda x: channels_first(_as_floats(x)),
    ADD_AXIS: lambda x: jax.tree.map(lambda a: a[None], x),
    "It takes its channels last: x.transpose(0, 2, 3, 1)": _channels_last,
}
