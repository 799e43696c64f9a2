"""A PyTorch module's program: exported by `torch.export`, and run in JAX.

A module is exported for the shapes and dtypes of one example, for any number of examples where its code allows that,
else for one number. Its program is made functional and decomposed as far as :mod:`~posteriax.networks.adapters.aten`
needs it. Running it under JAX's tracing makes it JAX's, for any number of draws and gradients.
"""

import linecache
import logging
import re
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from posteriax.networks.adapters.adapter import Outputs
from posteriax.networks.adapters.aten import OPERATIONS, RANDOM

Module = Any  # torch.nn.Module
Tensor = Any  # torch.Tensor

EXAMPLES = 13  # in the inputs that a module is exported with: hardly the length of any other axis
TRIED = 2  # in those that it is run with before


class Ran(NamedTuple):
    """What running a program gave: the module's outputs, and the new values of buffers that it sets."""

    outputs: Outputs
    buffers: dict[str, jax.Array]


class Exported:
    """One program of a module.

    Args:
        torch: PyTorch.
        program: what `torch.export` made of the module.
        wanted: the dtype of each tensor among its inputs; None for other arguments.
        left_open: whether the number of examples was left open.
    """

    def __init__(self, torch: Any, program: Any, wanted: list[Any], *, left_open: bool):
        self.torch, self.wanted = torch, wanted
        self.graph, self.signature = program.graph, program.graph_signature
        self.structure = program.call_spec.out_spec
        self.functions: dict[Any, Any] = {
            node: _translated(torch, node) for node in self.graph.nodes if node.op == "call_function"
        }
        missing = {name: node for node, name in self.functions.items() if isinstance(name, str)}
        if missing:
            names = ", ".join(missing)
            raise NotImplementedError(
                f"the PyTorch module uses {names}, which posteriax does not translate to JAX "
                f"({_line_of(next(iter(missing.values())))}): write it with other operations, or add a line to "
                f"posteriax.networks.adapters.aten.OPERATIONS"
            )
        kinds = torch.export.graph_signature.InputKind
        self.constants = {
            spec.target: as_array(program.constants[spec.target])
            for spec in self.signature.input_specs
            if spec.kind is kinds.CONSTANT_TENSOR
        }
        weights = {spec.arg.name for spec in self.signature.input_specs if spec.kind is kinds.PARAMETER}
        types = {node.meta["val"].dtype for node in self.graph.nodes if node.name in weights}
        self.is_low = torch.bfloat16 in types
        # what its code has found out about the number of examples; that all inputs have as many does not count
        guards = getattr(program, "_guards_code", ["not known to this release of PyTorch"])
        self.any_size = left_open and all(_SAME_SIZE.fullmatch(guard) for guard in guards)

    def run(self, weights: Mapping[str, jax.Array], buffers: Mapping[str, jax.Array], x: list[Any], key: Any) -> Ran:
        """The program's results.

        Args:
            weights: by PyTorch's names.
            buffers: by PyTorch's names.
            x: the arguments of the module's call, flattened.
            key: of its random numbers; None for a deterministic pass.
        """
        # `px.network(module, compute="bfloat16")` rounds what it passes on; the program was exported in full precision
        low = not self.is_low and any(jnp.result_type(w) == jnp.bfloat16 for w in weights.values())
        values = self._inputs(weights, buffers, x, low)
        for number, node in enumerate(self.graph.nodes):
            if node.op == "placeholder":
                continue
            args, kwargs = self.torch.fx.node.map_aggregate((node.args, dict(node.kwargs)), _Reading(values))
            if node.op == "output":
                return self._results(args[0])
            function = self.functions[node]
            if getattr(function, "draws", False):
                args = (None if key is None else jax.random.fold_in(key, number), *args)
            kwargs = {name: value for name, value in kwargs.items() if name not in _WITHOUT_MEANING}
            values[node] = _as_exported(node.meta.get("val"), function(*args, **kwargs), low)
        raise AssertionError("a program ends with its output")

    def _inputs(self, weights: Any, buffers: Any, x: list[Any], low: bool) -> dict[Any, Any]:
        kinds = self.torch.export.graph_signature.InputKind
        flat = iter(zip(x, self.wanted, strict=True))
        given: list[Any] = []
        for spec in self.signature.input_specs:
            if spec.kind is kinds.USER_INPUT:
                value, wanted = next(flat)
                dtype = None if wanted is None else as_dtype(wanted)
                rounded = low and dtype is not None and jnp.issubdtype(dtype, jnp.floating)
                given.append(value if dtype is None or rounded else jnp.asarray(value, dtype))
            elif spec.kind is kinds.PARAMETER:
                given.append(weights[spec.target])
            else:
                kept = jnp.asarray(self.constants.get(spec.target, buffers.get(spec.target)))
                given.append(kept.astype(jnp.bfloat16) if low and kept.dtype == jnp.float32 else kept)
        return dict(zip((node for node in self.graph.nodes if node.op == "placeholder"), given, strict=True))

    def _results(self, results: Any) -> Ran:
        kinds = self.torch.export.graph_signature.OutputKind
        outputs, buffers = [], {}
        for spec, value in zip(self.signature.output_specs, results, strict=True):
            if spec.kind is kinds.USER_OUTPUT:
                outputs.append(value)
            elif spec.kind is kinds.BUFFER_MUTATION:
                buffers[spec.target] = value
        return Ran(self.torch.utils._pytree.tree_unflatten(outputs, self.structure), buffers)


_SAME_SIZE = re.compile(r"L(\[[^\]]*\])+\.size\(\)\[0\] == L(\[[^\]]*\])+\.size\(\)\[0\]")
# arguments of ATen's functions that say where and how an array is stored
_WITHOUT_MEANING = ("device", "layout", "pin_memory", "memory_format", "non_blocking", "generator", "requires_grad")


class _Reading:
    """Arguments of a node with values in place of nodes, and JAX's dtypes in place of PyTorch's."""

    def __init__(self, values: Mapping[Any, Any]):
        self.values = values

    def __call__(self, argument: Any) -> Any:
        if type(argument).__name__ == "dtype":
            return as_dtype(argument)
        return self.values[argument] if type(argument).__name__ == "Node" else argument


def _as_exported(known: Any, value: Any, low: bool) -> Any:
    """A result in the dtype that PyTorch gives it, where JAX promotes otherwise (arrays without axes)."""
    if known is None or not hasattr(known, "dtype") or not hasattr(value, "astype"):
        return value
    dtype = as_dtype(known.dtype)
    if value.dtype == dtype or (low and jnp.issubdtype(dtype, jnp.floating)):
        return value
    return value.astype(dtype)


def _translated(torch: Any, node: Any) -> Callable[..., Any] | str:
    """The function for an operation, or the operation's name if there is none."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        namespace, name = target._schema.name.split("::")
        packet = name if namespace == "aten" else f"{namespace}::{name}"
        for candidate in (f"{packet}.{target._overloadname}", packet):
            if candidate in RANDOM:
                return _Drawing(RANDOM[candidate])
            if candidate in OPERATIONS:
                return OPERATIONS[candidate]
        return str(target)
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"torch.{target.name()}" if target.name() in ("cond", "while_loop", "scan") else str(target.name())
    return target  # arithmetic with sizes, which are ints here, and taking one of several results


class _Drawing:
    """An operation that takes a key first."""

    draws = True

    def __init__(self, function: Callable[..., Any]):
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def export(torch: Any, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], arguments: Any) -> Exported:
    """The program of a module in its present mode.

    Args:
        torch: PyTorch.
        module: the module.
        args: positional arguments of its call, with arrays or their shapes for tensors.
        kwargs: keyword arguments.
        arguments: the same by name, as `inspect.BoundArguments.arguments` has them.
    """
    pytree, example = torch.utils._pytree, _examples(torch, module)
    with _quietly(torch):
        _try(torch, module, *pytree.tree_map(lambda leaf: example(leaf, TRIED), (args, kwargs)))
        shapes = pytree.tree_map(lambda leaf: {0: torch.export.Dim.AUTO} if is_array(leaf) else None, arguments)
        given = pytree.tree_map(lambda leaf: example(leaf, EXAMPLES), (args, kwargs))
        exported = _traced(torch, module, given, shapes)
        if exported.any_size:
            return exported
        # its code depends on the number of examples: export it for the number that is asked for
        return _traced(torch, module, pytree.tree_map(example, (args, kwargs)), None)


def _traced(torch: Any, module: Module, given: tuple[tuple[Any, ...], dict[str, Any]], shapes: Any) -> Exported:
    try:
        program = torch.export.export(module, *given, dynamic_shapes=shapes, strict=False)
        _stop_gradients(torch, program)
        program = program.run_decompositions(_decompositions(torch))
    except Exception as error:  # whatever its tracing raises: the module itself has just run
        raise ValueError(_untraceable(module, error)) from error
    flat = torch.utils._pytree.tree_leaves(given)
    dtypes = [a.dtype if isinstance(a, torch.Tensor) else None for a in flat]
    return Exported(torch, program, dtypes, left_open=shapes is not None)


def _examples(torch: Any, module: Module) -> Callable[..., Any]:
    """A function that makes tensors in place of arrays: zeros for so many examples, in the module's precision."""
    tensors = [*module.parameters(), *module.buffers()]
    floats = {p.dtype for p in module.parameters() if p.dtype.is_floating_point}
    device = tensors[0].device if tensors else torch.device("cpu")

    def example(leaf: Any, size: int | None = None) -> Any:
        if not is_array(leaf):
            return leaf
        dtype = getattr(torch, str(leaf.dtype))
        if dtype.is_floating_point and len(floats) == 1:
            (dtype,) = floats
        elif dtype in (torch.int32, torch.uint32):
            dtype = torch.int64  # PyTorch's integers, which JAX shortens
        return torch.zeros((size or leaf.shape[0], *leaf.shape[1:]), dtype=dtype, device=device)

    return example


def is_array(leaf: Any) -> bool:
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")


def _try(torch: Any, module: Module, args: Any, kwargs: Any) -> None:
    """Run the module, for PyTorch's own word on inputs that it cannot take, and look at how its gradient is made."""
    buffers = {name: buffer.detach().clone() for name, buffer in module.named_buffers()}
    try:
        with torch.enable_grad(), torch.random.fork_rng(devices=[]):
            outputs = torch.func.functional_call(module, buffers, args, kwargs)
    except Exception as error:  # whatever a module raises
        raise ValueError(f"{_first_line(error)} ({_where(error)})") from error
    outputs = [a for a in torch.utils._pytree.tree_leaves(outputs) if isinstance(a, torch.Tensor)]
    waiting, seen = [a.grad_fn for a in outputs if a.grad_fn is not None], set()
    while waiting:
        function = waiting.pop()
        if isinstance(function, torch.autograd.function.BackwardCFunction):
            name = type(function).__name__.removesuffix("Backward")
            raise NotImplementedError(
                f"the PyTorch module uses the autograd function {name}, which has a gradient of its own that "
                f"torch.export does not keep: write it with ordinary operations, and detach() where a gradient stops"
            )
        following = [f for f, _ in function.next_functions if f is not None and f not in seen]
        seen.update(following)
        waiting += following


def _decompositions(torch: Any) -> Any:
    """PyTorch's decompositions, without those of operations that are translated whole."""
    table = torch.export.default_decompositions()
    for operation in list(table):
        name = operation._schema.name.removeprefix("aten::")
        if not {name, f"{name}.{operation._overloadname}"}.isdisjoint(OPERATIONS.keys() | RANDOM.keys()):
            table.pop(operation)
    return table


def _stop_gradients(torch: Any, program: Any) -> None:
    """Detach what is computed under `torch.no_grad`, which decomposing a program forgets."""
    graph = program.graph_module.graph
    for node in list(graph.nodes):
        if node.target is not torch.ops.higher_order.wrap_with_set_grad_enabled or node.args[0] is not False:
            continue
        for result in list(node.users):
            if any(user.op == "output" for user in result.users):
                continue
            with graph.inserting_after(result):
                detached = graph.call_function(torch.ops.aten.detach.default, (result,))
            detached.meta = dict(result.meta)
            result.replace_all_uses_with(detached, delete_user_cb=lambda user, new=detached: user is not new)
    program.graph_module.recompile()


@contextmanager
def _quietly(torch: Any) -> Iterator[None]:
    """Without PyTorch's warnings about its own tracing, and without fused layers that ATen has no parts for."""
    fast, log = torch.backends.mha.get_fastpath_enabled(), logging.getLogger("torch")
    level = log.level
    torch.backends.mha.set_fastpath_enabled(False)
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        log.setLevel(level)


def as_array(tensor: Tensor) -> np.ndarray:
    """A tensor's values, copied. Not an array of JAX, which would belong to the trace that asked for the program."""
    values = tensor.detach().cpu()
    if str(values.dtype) == "torch.bfloat16":
        return values.float().numpy().astype(ml_dtypes.bfloat16)
    return np.array(values.numpy())


def as_dtype(dtype: Any) -> Any:
    """JAX's dtype for one of PyTorch's: without 64 bits, unless JAX has them switched on."""
    return jax.dtypes.canonicalize_dtype(jnp.dtype(str(dtype).removeprefix("torch.")))


# -- what went wrong, in a line ----------------------------------------------------------------------------------------


def _untraceable(module: Module, error: Exception) -> str:
    name, where = type(module).__name__, _where(error)
    if type(error).__name__ in ("GuardOnDataDependentSymNode", "UserError", "UserErrorType"):
        return (
            f"the PyTorch module {name} decides by the values of its inputs what to compute ({where}), which "
            f"torch.export cannot trace: use torch.where"
        )
    return f"torch.export cannot trace the PyTorch module {name} ({where}): {_first_line(error)}"


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".:")


def _where(error: BaseException) -> str:
    """The last line of a traceback that is neither PyTorch's nor posteriax's: the user's."""
    ours = {Path(__file__).parents[2]}
    frames = [f for f in traceback.extract_tb(error.__traceback__) if _is_of_user(f.filename, ours)]
    return _place(frames[-1].filename, frames[-1].lineno) if frames else "no line of its own"


def _is_of_user(filename: str, ours: set[Path]) -> bool:
    path = Path(filename)
    return (
        not filename.startswith("<")
        and "torch" not in path.parts
        and not ours.intersection(path.parents)
        and path.name != "contextlib.py"
    )


def _line_of(node: Any) -> str:
    """The line of the user's code that a node comes from."""
    lines = [line.strip() for line in (node.meta.get("stack_trace") or "").splitlines()]
    code = [line for line in lines if line and not line.startswith("File ")]
    return f"`{code[-1]}`" if code else "no line of its own"


def _place(filename: str, number: int | None) -> str:
    code = linecache.getline(filename, number or 0).strip()
    return f"{Path(filename).name}:{number}" + (f", `{code}`" if code else "")
