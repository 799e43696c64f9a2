"""Networks: any JAX network as ``apply(params, x, *, key=None) -> outputs`` and its ``params``.

``x`` and the outputs have a leading axis of examples. ``key=None`` asks for a deterministic pass; a key is passed on
to whatever randomness the network has of its own (dropout). Nothing of the network is changed or subclassed.
"""

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from posteriax.batch_statistics import BatchStatistics, linen_statistics, nnx_statistics
from posteriax.compiler import jit
from posteriax.leaf_paths import describe_leaves

Params = Any  # a pytree of arrays


@dataclass(frozen=True, eq=False)
class Network:
    """A network as a pure function and the arrays it is applied to.

    Args:
        apply: ``apply(params, x, *, key=None) -> outputs``, on a batch of examples.
        params: the pytree of floating-point arrays to put a posterior on; their values are the starting point.
        out_axis: which axis of a weight counts its outputs: 0 in Equinox, -1 in Flax. He-scaled priors and tied
            families read it.
        batch_statistics: how to measure and replace what its batch normalisation layers, if any, normalise by.

    >>> net = Network(lambda params, x, *, key=None: x @ params["w"], {"w": jnp.ones((3, 2))})
    >>> net.num_parameters
    6
    """

    apply: Callable[..., Any]
    params: Params
    out_axis: int = -1
    batch_statistics: BatchStatistics | None = None

    @property
    def num_parameters(self) -> int:
        return sum(leaf.size for leaf in jax.tree.leaves(self.params))

    def __repr__(self) -> str:
        return "\n".join([f"Network with {self.num_parameters:,} parameters", *describe_leaves(self.params)])


def network(obj: Any, *, batched: bool | None = None, out_axis: int | None = None) -> Network:
    """Adapt a network to posteriax.

    Args:
        obj: an Equinox module, a Flax NNX module, a Flax Linen ``(module, variables)`` pair, or a
            ``(function, params)`` pair where ``function(params, x)`` may also take ``key=``.
        batched: whether the network takes a batch (Flax, functions) or one example (Equinox, by convention).
        out_axis: which axis of a weight counts its outputs; known for Equinox (0) and Flax (-1).

    >>> import equinox as eqx, jax, posteriax as px
    >>> net = px.network(eqx.nn.Linear(3, 2, key=jax.random.key(0)))
    >>> net.apply(net.params, jax.numpy.ones((5, 3))).shape
    (5, 2)
    """
    if isinstance(obj, Network):
        return obj
    nnx = sys.modules.get("flax.nnx")  # if Flax was never imported, nobody holds a Flax module
    linen = sys.modules.get("flax.linen")
    if isinstance(obj, eqx.Module):
        adapted, takes_batch, axis = _equinox(obj), False, 0
    elif nnx is not None and isinstance(obj, nnx.Module):
        adapted, takes_batch, axis = _nnx(nnx, obj), True, -1
    elif isinstance(obj, tuple) and len(obj) == 2 and linen is not None and isinstance(obj[0], linen.Module):
        adapted, takes_batch, axis = _linen(*obj), True, -1
    elif isinstance(obj, tuple) and len(obj) == 2 and callable(obj[0]):
        adapted, takes_batch, axis = _function(*obj), True, -1
    else:
        raise TypeError(
            f"network must be an Equinox module, a Flax NNX module, a Linen (module, variables) pair or a "
            f"(function, params) pair, got {type(obj).__name__}"
        )
    apply, params, statistics = adapted
    params = jax.tree.map(jnp.asarray, params)
    _check_params(params)
    if not (takes_batch if batched is None else batched):
        apply, statistics = _over_examples(apply), None
    return Network(apply, params, axis if out_axis is None else out_axis, statistics)


def paths(net: Any) -> list[str]:
    """The leaves of a network, one line each: ``path shape dtype``. Patterns for priors and families pick from these.

    >>> import equinox as eqx, jax, posteriax as px
    >>> px.paths(eqx.nn.Linear(3, 2, key=jax.random.key(0)))
    ['weight (2, 3) float32', 'bias (2,) float32']
    """
    return describe_leaves(network(net).params)


def couples_examples(net: Network, x: Any) -> bool:
    """Whether the outputs for one example depend on the others in its batch, as batch statistics make them do.

    Found by a trial: the outputs for one example are compared with the same example in other company. Rows spread over
    x and weights with some noise on them, so that neither sorted data nor a zero-initialised head hides it.
    """
    n = jax.tree.leaves(x)[0].shape[0]
    if n < 2:
        return False
    rows = np.linspace(0, n - 1, min(n, 8)).astype(int)
    copies = np.where(np.arange(len(rows)) == 0, rows[0], rows[-1])  # the first one beside copies of the last one
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda w: np.asarray(w + rng.normal(size=w.shape), w.dtype), jax.device_get(net.params))
    apply = jit(net.apply)
    with_others, with_copies = (
        np.asarray(apply(params, jax.tree.map(lambda a, r=r: np.asarray(a[r]), x)), np.float64)[0]
        for r in (rows, copies)
    )
    scale = np.abs(with_others).max()
    with np.errstate(invalid="ignore"):  # of infinite outputs nothing can be told
        return bool(np.abs(with_others - with_copies).max() > 1e-3 * scale + 1e-6)


Adapted = tuple[Callable[..., Any], Params, BatchStatistics | None]


def _equinox(module: eqx.Module) -> Adapted:
    params, static = eqx.partition(module, eqx.is_inexact_array)
    takes_key = _takes_key(type(module).__call__)

    def apply(params: Params, x: Any, *, key: Any = None) -> Any:
        module: Any = eqx.combine(params, static)
        if key is None:
            module = eqx.nn.inference_mode(module)
        return module(x, key=key) if takes_key else module(x)

    return apply, params, None


def _nnx(nnx: Any, module: Any) -> Adapted:
    graph, state, rest = nnx.split(module, nnx.Param, ...)

    def merge(params: Params, key: Any = None) -> Any:
        filled = nnx.clone(state)
        nnx.replace_by_pure_dict(filled, params)
        merged = nnx.merge(graph, filled, rest, copy=True)  # a copy: NNX would mutate variables of an outer trace
        if key is None:
            merged.set_attributes(deterministic=True, raise_if_not_found=False)
        else:
            _reseed(nnx, merged, key)
        return merged

    def apply(params: Params, x: Any, *, key: Any = None) -> Any:
        return merge(params, key)(x)

    return apply, nnx.to_pure_dict(state), nnx_statistics(nnx, merge, rest)


def _reseed(nnx: Any, module: Any, key: jax.Array) -> None:
    """Start every random stream of a module anew from this key."""
    found = [node for _, node in nnx.iter_graph(module) if isinstance(node, nnx.RngStream)]
    for index, stream in enumerate(found):
        stream.key[...] = jax.random.fold_in(key, index)
        stream.count[...] = jnp.zeros_like(stream.count[...])


def _linen(module: Any, variables: Any) -> Adapted:
    if "params" not in variables:
        raise ValueError(
            f'a Linen network is (module, variables) with variables["params"], as module.init returns them; got the '
            f"collections {sorted(variables)}"
        )
    rest = {name: collection for name, collection in variables.items() if name != "params"}
    switches = set(inspect.signature(type(module).__call__).parameters)

    def switched(*, training: bool) -> dict[str, bool]:
        on = {name: training for name in ("train", "training") if name in switches}
        return on | ({"deterministic": not training} if "deterministic" in switches else {})

    def mode(key: Any) -> dict[str, bool]:
        # with batch statistics the switch also chooses between them: leave it as the user set it
        return {} if "batch_stats" in rest else switched(training=key is not None)

    def apply(params: Params, x: Any, *, key: Any = None) -> Any:
        rngs = None if key is None else {"dropout": key}
        if not rest:
            return module.apply({"params": params}, x, rngs=rngs, **mode(key))
        outputs, _ = module.apply({**rest, "params": params}, x, rngs=rngs, mutable=list(rest), **mode(key))
        return outputs

    return apply, variables["params"], linen_statistics(module, variables, switched(training=False))


def _function(function: Callable[..., Any], params: Params) -> Adapted:
    takes_key = _takes_key(function)

    def apply(params: Params, x: Any, *, key: Any = None) -> Any:
        return function(params, x, key=key) if takes_key else function(params, x)

    return apply, params, None


def _over_examples(apply: Callable[..., Any]) -> Callable[..., Any]:
    def apply_batch(params: Params, x: Any, *, key: Any = None) -> Any:
        if key is None:
            return jax.vmap(lambda one: apply(params, one))(x)
        keys = jax.random.split(key, jax.tree.leaves(x)[0].shape[0])
        return jax.vmap(lambda one, k: apply(params, one, key=k))(x, keys)

    return apply_batch


def _takes_key(function: Callable[..., Any]) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return any(p.name == "key" or p.kind is p.VAR_KEYWORD for p in parameters)


def _check_params(params: Params) -> None:
    leaves = jax.tree.leaves(params)
    if not leaves:
        raise ValueError("the network has no floating-point arrays to put a posterior on")
    for line, leaf in zip(describe_leaves(params), leaves, strict=True):
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise TypeError(
                f"leaf {line}: a posterior needs real floating-point arrays; keep other arrays out of params"
            )
        if not np.isfinite(np.asarray(leaf)).all():
            raise ValueError(f"leaf {line} has non-finite values")
