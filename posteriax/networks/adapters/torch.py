"""PyTorch: a module, through `torch.export`; and draws of its weights back into modules.

Parameters are the leaves, under PyTorch's own names: ``layer1.0.conv1.weight`` is ``layer1/0/conv1/weight``. Those with
``requires_grad=False`` are fixed. Buffers are used as given and never updated.
"""

import copy
import inspect
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteriax._internal.leaf_paths import leaf_paths
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
from posteriax.networks.adapters.torch_export import Exported, Module, Ran, as_array, export, is_array

ACCEPTS = "a PyTorch module"


class ModuleMode(Enum):
    """Which layers of the module are in training mode."""

    TRAINING = "those that the user left in it"
    PREDICTING = "normalisation that the user left in it"
    MEASURING = "normalisation"
    STORED = "none"


def adapt(obj: Any, call: Mapping[str, Any]) -> Adapted | None:
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(obj, torch.nn.Module):
        return None
    if not hasattr(getattr(torch, "export", None), "default_decompositions"):
        raise ImportError(f"posteriax needs PyTorch 2.6 or later for its modules, this is {torch.__version__}")
    module = getattr(obj, "_orig_mod", obj)  # of torch.compile
    known = _AdaptedModule(torch, module, call)
    stored = {name: known.buffers[name] for name in known.statistics}

    def apply(params: Params, x: Inputs, *, key: OptionalKey = None) -> Outputs:
        return known.run(ModuleMode.PREDICTING if key is None else ModuleMode.TRAINING, params, {}, x, key).outputs

    def measure(params: Params, x: Inputs) -> Statistics:
        measured = known.run(ModuleMode.MEASURING, params, {}, x, None).buffers
        return {name: measured.get(name, value) for name, value in stored.items()}

    def apply_stored(params: Params, statistics: Statistics, x: Inputs) -> Outputs:
        return known.run(ModuleMode.STORED, params, statistics, x, None).outputs

    return Adapted(
        apply,
        known.params(),
        out_axis=0,
        batch_statistics=BatchStatistics(stored, measure, apply_stored, "module.eval()") if stored else None,
        fixed=known.frozen,
    )


class _AdaptedModule:
    """A module, what is known about it, and its programs: exported when they are first needed, and kept.

    Args:
        torch: PyTorch.
        module: the module.
        call: keyword arguments for every call.
    """

    def __init__(self, torch: Any, module: Module, call: Mapping[str, Any]):
        self.torch, self.module = torch, module
        self.calling = Call.of(type(module).forward, call)
        self.signature = inspect.signature(module.forward)
        # tied weights have several names and one leaf, under the first
        self.names = _first_names(module.named_parameters(remove_duplicate=False))
        self.buffer_names = _first_names(module.named_buffers(remove_duplicate=False))
        self.buffers = {name: jnp.asarray(as_array(buffer)) for name, buffer in module.named_buffers()}
        parameters = dict(module.named_parameters())
        if parameters and not any(p.requires_grad for p in parameters.values()):
            raise ValueError(
                f"all parameters of the PyTorch module {type(module).__name__} have requires_grad=False, so there is "
                f"nothing to infer: set it on those that are to have a posterior"
            )
        self.frozen = tuple(name.replace(".", "/") for name, p in parameters.items() if not p.requires_grad)
        kind = torch.nn.modules.batchnorm._NormBase
        norms = {name: layer for name, layer in module.named_modules() if isinstance(layer, kind)}
        self.norms = {id(layer) for layer in norms.values()}
        self.statistics = [
            f"{name}.{what}".removeprefix(".")
            for name, layer in norms.items()
            if layer.running_mean is not None
            for what in ("running_mean", "running_var")
        ]
        self.training = {id(layer): layer.training for layer in module.modules()}
        self.programs: dict[Any, Exported] = {}

    def params(self) -> Params:
        tree: dict[str, Any] = {}
        for name, parameter in self.module.named_parameters():
            *above, last = name.split(".")
            reduce(lambda node, part: node.setdefault(part, {}), above, tree)[last] = as_array(parameter)
        return tree

    def run(self, mode: ModuleMode, params: Params, buffers: Mapping[str, Any], x: Inputs, key: OptionalKey) -> Ran:
        inputs, keywords = self.calling.arguments(x, training=key is not None)
        bound = self.signature.bind(*inputs, **keywords)
        flat = self.torch.utils._pytree.tree_leaves((bound.args, bound.kwargs))
        program = self._program(mode, bound, flat)
        weights = {
            name: reduce(lambda node, part: node[part], first.split("."), params) for name, first in self.names.items()
        }
        given = self.buffers | dict(buffers)
        ran = program.run(weights, {name: given[first] for name, first in self.buffer_names.items()}, flat, key)
        return ran._replace(buffers={self.buffer_names[name]: value for name, value in ran.buffers.items()})

    def _program(self, mode: ModuleMode, bound: inspect.BoundArguments, flat: list[Any]) -> Exported:
        arrays = [leaf for leaf in flat if is_array(leaf)]
        others = tuple(repr(leaf) for leaf in flat if not is_array(leaf))
        structure = self.torch.utils._pytree.tree_structure((bound.args, bound.kwargs))
        shapes = tuple((np.shape(a)[1:], str(a.dtype)) for a in arrays)
        asked = (mode, str(structure), others, shapes)
        sized = (*asked, *(a.shape[0] for a in arrays))
        known = self.programs.get(asked) or self.programs.get(sized)
        if known is None:
            with self._in_mode(mode):
                known = export(self.torch, self.module, bound.args, bound.kwargs, dict(bound.arguments))
            self.programs[asked if known.any_size else sized] = known
        return known

    @contextmanager
    def _in_mode(self, mode: ModuleMode) -> Iterator[None]:
        """A context in which the layers of the module are in this mode."""
        layers = list(self.module.modules())
        before = [layer.training for layer in layers]
        averaging = [layer for layer in layers if id(layer) in self.norms and layer.momentum is None]
        try:
            for layer in layers:
                layer.training = self._trains(mode, layer)
            for layer in averaging:
                layer.momentum = 1.0  # it would look at how many batches it has seen
            yield
        finally:
            for layer, was in zip(layers, before, strict=True):
                layer.training = was
            for layer in averaging:
                layer.momentum = None

    def _trains(self, mode: ModuleMode, layer: Module) -> bool:
        if mode is ModuleMode.TRAINING or (mode is ModuleMode.PREDICTING and id(layer) in self.norms):
            return self.training.get(id(layer), False)
        return mode is ModuleMode.MEASURING and id(layer) in self.norms


def _first_names(named: Iterator[tuple[str, Any]]) -> dict[str, str]:
    """For each name of a tensor, the first of its names."""
    first: dict[int, str] = {}
    return {name: first.setdefault(id(tensor), name) for name, tensor in named}


def to_torch(draws: Params, module: Module) -> list[Module]:
    """Copies of a PyTorch module with draws of its weights, to predict in PyTorch.

    Batch normalisation keeps the module's own running statistics, which are not those of the drawn weights: measure
    them with ``torch.optim.swa_utils.update_bn(loader, copy)``.

    Args:
        draws: as ``posterior.sample(key, n)`` returns them: the network's params with a leading axis of n draws.
        module: the module that the posterior's problem was made from, or one like it. It is not changed.

    Returns:
        n modules, in the module's own dtype, on its device and in its mode.

    >>> nets = px.to_torch(posterior.sample(0, 20), module)  # doctest: +SKIP
    >>> probs = torch.stack([net(x).softmax(-1) for net in nets]).mean(0)  # doctest: +SKIP
    """
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(module, torch.nn.Module):
        raise TypeError(f"module must be a PyTorch module, got {type(module).__name__}")
    names = [path.replace("/", ".") for path in leaf_paths(draws)]
    leaves = dict(zip(names, map(np.asarray, jax.tree.leaves(draws)), strict=True))
    shapes = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
    unknown = ", ".join(name for name in leaves if name not in shapes)
    if unknown or not leaves:
        raise ValueError(f"the module has no parameter {unknown}" if unknown else "draws has no arrays")
    for name, leaf in leaves.items():
        if leaf.shape[1:] != shapes[name]:
            one = ". For one set of params add the axis: jax.tree.map(lambda a: a[None], params)"
            raise ValueError(
                f"draws must have a leading axis of draws before the shapes of the module's parameters: {name} has "
                f"shape {leaf.shape}, and the module's {shapes[name]}{one if leaf.shape == shapes[name] else ''}"
            )
    count = len(next(iter(leaves.values())))
    return [_filled(torch, module, {name: leaf[i] for name, leaf in leaves.items()}) for i in range(count)]


def _filled(torch: Any, module: Module, values: Mapping[str, np.ndarray]) -> Module:
    filled = copy.deepcopy(module)
    parameters = dict(filled.named_parameters())
    with torch.no_grad():
        for name, value in values.items():
            parameters[name].copy_(torch.from_numpy(np.array(value, np.float64)))
    return filled
