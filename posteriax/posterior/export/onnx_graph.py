"""A JAX program as an ONNX graph: one line for an operation.

A program is traced for two sizes of the batch. Lengths that differ between the two are a n + b for n examples, and are
computed from the shape of the inputs where a node needs them. Loops become ONNX's own, and calls are inlined.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from string import ascii_letters
from typing import Any

import jax
import numpy as np
import onnx
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal
from onnx import TensorProto, helper, numpy_helper

from posteriax.networks.tracing.program import TRIAL_SIZES, array_type, called_program
from posteriax.posterior.export.program import NOTHING, Length, lengths_by_examples, needed_equations

OPSET = 18
IR_VERSION = 9  # that runtimes of the last years read

Name = str
Shape = list[Length]
Pair = tuple[JaxprEqn, JaxprEqn]  # an operation, as traced for both sizes


class NotInONNX(NotImplementedError):
    """An operation of JAX has no translation to ONNX."""

    def __init__(self, name: str, why: str = ""):
        super().__init__(
            f'the ONNX format has no translation of the operation {name!r}{why}. Use format="stablehlo", or leave out '
            f"what needs it: results=..."
        )


def translate(function: Callable[[Any], dict[str, Any]], spec: Callable[[int], Any], names: Sequence[str]) -> bytes:
    """An ONNX model of ``function(x)``, whose results have these names.

    Args:
        function: from inputs to arrays by name.
        spec: shapes and dtypes of inputs of so many examples.
        names: of the results.
    """

    def in_order(x: Any) -> list[Any]:
        results = function(x)
        return [results[name] for name in names]

    small, large = (jax.make_jaxpr(in_order)(spec(n)) for n in TRIAL_SIZES)
    graph = Graph(Shared())
    inputs = [f"x{path}" for path in map(_path, jax.tree_util.tree_flatten_with_path(spec(1))[0])]
    graph.shared.sized_input = inputs[0]
    results = graph.program((small, large), inputs)
    for name, result in zip(names, results, strict=True):
        graph.nodes.append(helper.make_node("Identity", [result], [name]))
    described = [
        helper.make_graph(
            [*graph.shared.first, *graph.nodes],
            "predictive",
            _value_infos(inputs, small.jaxpr.invars, large.jaxpr.invars),
            _value_infos(names, small.jaxpr.outvars, large.jaxpr.outvars),
            initializer=[numpy_helper.from_array(value, name) for name, value in graph.shared.constants.items()],
        )
    ]
    model = helper.make_model(described[0], opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    onnx.checker.check_model(model)
    return model.SerializeToString()


@dataclass
class Shared:
    """What a graph and the graphs of its loops have in common."""

    numbers: Any = field(default_factory=count)
    constants: dict[Name, np.ndarray] = field(default_factory=dict)
    first: list[Any] = field(default_factory=list)  # nodes before all others: lengths of axes
    lengths: dict[Length, Name] = field(default_factory=dict)
    sized_input: Name = ""


@dataclass
class Graph:
    """The nodes of a graph, or of the body of a loop, as they are added."""

    shared: Shared
    nodes: list[Any] = field(default_factory=list)

    def op(self, kind: str, *inputs: Name, outputs: int = 1, **attributes: Any) -> Any:
        """Add a node; returns the names of its outputs."""
        names = [f"v{next(self.shared.numbers)}" for _ in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, value: Any, dtype: Any = None) -> Name:
        name = f"c{next(self.shared.numbers)}"
        self.shared.constants[name] = np.ascontiguousarray(np.asarray(value, dtype)).reshape(np.shape(value))
        return name

    def ints(self, values: Sequence[int]) -> Name:
        return self.constant(list(values), np.int64)

    def shape(self, shape: Shape) -> Name:
        """A shape as ONNX takes it: constant, or joined from lengths that depend on the number of examples."""
        if all(a == 0 for a, _ in shape):
            return self.ints([b for _, b in shape])
        return self.op("Concat", *map(self._length, shape), axis=0)

    def _length(self, length: Length) -> Name:
        shared = self.shared
        if length not in shared.lengths:
            scale, offset = length
            top = Graph(shared, shared.first)
            name = top.ints([offset])
            if scale:
                examples = top.op("Slice", top.op("Shape", shared.sized_input), top.ints([0]), top.ints([1]))
                name = top.op("Add", top.op("Mul", examples, top.ints([scale])), name)
            shared.lengths[length] = name
        return shared.lengths[length]

    def program(self, pair: tuple[ClosedJaxpr, ClosedJaxpr], inputs: Sequence[Name]) -> list[Name]:
        """Add the nodes of a program with these inputs; returns its outputs."""
        small, large = pair
        known: dict[Any, Name] = dict(zip(small.jaxpr.invars, inputs, strict=True))
        for variable, value in zip(small.jaxpr.constvars, small.consts, strict=True):
            known[variable] = self.constant(np.asarray(value))

        def name_of(atom: Any) -> Name:
            if isinstance(atom, Literal):
                return self.constant(np.asarray(atom.val, array_type(atom).dtype))
            return known[atom]

        if len(small.jaxpr.eqns) != len(large.jaxpr.eqns):
            raise NotInONNX("shape", " that depends on the number of examples")
        for eqns in needed_equations((small.jaxpr, large.jaxpr)):
            results = self.translated(eqns, [name_of(atom) for atom in eqns[0].invars])
            known.update(zip(eqns[0].outvars, results, strict=True))
        return [name_of(atom) for atom in small.jaxpr.outvars]

    def translated(self, eqns: Pair, operands: list[Name]) -> list[Name]:
        eqn, other = eqns
        called = called_program(eqn)
        if called is not None:
            return self.program((called, called_program(other)), operands)  # type: ignore[arg-type]
        name = eqn.primitive.name
        if name in LOOPS:
            return LOOPS[name](self, eqns, operands)
        if name in NOTHING:
            return operands
        if name in NODES:
            return [self.op(NODES[name], *operands)]
        if name not in TRANSLATIONS:
            raise NotInONNX(name)
        result = TRANSLATIONS[name](self, Operation(*eqns), *operands)
        return result if isinstance(result, list) else [result]

    def body(
        self, pair: tuple[ClosedJaxpr, ClosedJaxpr], arguments: Sequence[Name | None]
    ) -> "tuple[Graph, list, list[Name]]":
        """The graph of a loop's body, its own inputs, which are where an argument is None, and its outputs."""
        graph = Graph(self.shared)
        inputs, infos = [], []
        for argument, variable, other in zip(arguments, pair[0].jaxpr.invars, pair[1].jaxpr.invars, strict=True):
            name = argument or f"v{next(self.shared.numbers)}"
            inputs.append(name)
            if argument is None:
                infos.append(_value_info(name, variable, other))
        outputs = graph.program(pair, inputs)
        return graph, infos, outputs

    def outputs(self, names: Sequence[Name], pair: tuple[ClosedJaxpr, ClosedJaxpr]) -> list[Any]:
        """Declare the results of this graph, those of a program, each of them by a node in it."""
        variables = zip(names, pair[0].jaxpr.outvars, pair[1].jaxpr.outvars, strict=True)
        return [_value_info(self.op("Identity", name), small, large) for name, small, large in variables]


@dataclass(frozen=True)
class Operation:
    """An operation of JAX, as traced for both sizes."""

    small: JaxprEqn
    large: JaxprEqn

    def __getitem__(self, name: str) -> Any:
        return self.small.params[name]

    def lengths(self, name: str) -> Shape:
        """A setting that holds lengths."""
        return lengths_by_examples(self.small.params[name], self.large.params[name])

    def input_shape(self, index: int = 0) -> Shape:
        return _lengths(self.small.invars[index], self.large.invars[index])

    def output_shape(self, index: int = 0) -> Shape:
        return _lengths(self.small.outvars[index], self.large.outvars[index])

    def rank(self, index: int = 0) -> int:
        return len(self.input_shape(index))

    @property
    def dtype(self) -> np.dtype:
        return self.small.invars[0].aval.dtype  # type: ignore[attr-defined]


def _lengths(small: Any, large: Any) -> Shape:
    """Of a value, from its variables for both sizes."""
    return lengths_by_examples(array_type(small).shape, array_type(large).shape)


def _type(dtype: Any) -> int:
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def _path(entry: tuple[Any, Any]) -> str:
    return "".join(f".{getattr(key, 'key', getattr(key, 'idx', key))}" for key in entry[0])


def _value_infos(names: Sequence[str], small: Sequence[Any], large: Sequence[Any]) -> list[Any]:
    return [_value_info(name, a, b) for name, a, b in zip(names, small, large, strict=True)]


def _value_info(name: str, small: Any, large: Any) -> Any:
    """The type and the shape of a value, from its variables for both sizes."""
    lengths = _lengths(small, large)
    dims = [b if not a else "examples" if (a, b) == (1, 0) else None for a, b in lengths]
    return helper.make_tensor_value_info(name, _type(array_type(small).dtype), dims)


NODES = {
    "abs": "Abs",
    "acos": "Acos",
    "acosh": "Acosh",
    "add": "Add",
    "add_any": "Add",
    "and": "And",
    "asin": "Asin",
    "asinh": "Asinh",
    "atan": "Atan",
    "atanh": "Atanh",
    "ceil": "Ceil",
    "cos": "Cos",
    "cosh": "Cosh",
    "div": "Div",
    "eq": "Equal",
    "erf": "Erf",
    "exp": "Exp",
    "floor": "Floor",
    "ge": "GreaterOrEqual",
    "gt": "Greater",
    "le": "LessOrEqual",
    "log": "Log",
    "logistic": "Sigmoid",
    "lt": "Less",
    "max": "Max",
    "min": "Min",
    "mul": "Mul",
    "neg": "Neg",
    "not": "Not",
    "or": "Or",
    "pow": "Pow",
    "round": "Round",
    "sign": "Sign",
    "sin": "Sin",
    "sinh": "Sinh",
    "sqrt": "Sqrt",
    "sub": "Sub",
    "tan": "Tan",
    "tanh": "Tanh",
    "xor": "Xor",
}


def _one(g: Graph, op: Operation) -> Name:
    return g.constant(np.ones((), op.dtype))


def _log1p(g: Graph, op: Operation, x: Name) -> Name:
    # log(u) x / (u - 1) with u = 1 + x, which undoes the rounding of u (Kahan)
    one = _one(g, op)
    u = g.op("Add", one, x)
    exact = g.op("Equal", u, one)
    rounded = g.op("Where", exact, one, g.op("Sub", u, one))
    return g.op("Where", exact, x, g.op("Mul", g.op("Log", u), g.op("Div", x, rounded)))


def _integer_pow(g: Graph, op: Operation, x: Name) -> Name:
    power, result = abs(op["y"]), x
    for _ in range(power - 1):
        result = g.op("Mul", result, x)
    return g.op("Reciprocal", result) if op["y"] < 0 else result


def _broadcast(g: Graph, op: Operation, x: Name, *_: Name) -> Name:
    shape, given = op.output_shape(), op.input_shape() if op.small.invars else []
    kept = dict(zip(op["broadcast_dimensions"], given, strict=True))
    aligned = [kept.get(axis, (0, 1)) for axis in range(len(shape))]
    x = x if aligned == given else _reshaped(g, x, aligned)
    return x if aligned == shape else g.op("Expand", x, g.shape(shape))


def _reshaped(g: Graph, x: Name, shape: Shape) -> Name:
    dynamic = [length for length in shape if length[0]]
    if len(dynamic) == 1:  # ONNX infers it
        return g.op("Reshape", x, g.ints([-1 if a else b for a, b in shape]))
    return g.op("Reshape", x, g.shape(shape), allowzero=1)


def _reduce(kind: str) -> Callable[..., Name]:
    return lambda g, op, x: g.op(kind, x, g.ints(op["axes"]), keepdims=0)


def _reduce_bool(kind: str) -> Callable[..., Name]:
    def translation(g: Graph, op: Operation, x: Name) -> Name:
        numbers = g.op("Cast", x, to=TensorProto.INT32)
        return g.op("Cast", g.op(kind, numbers, g.ints(op["axes"]), keepdims=0), to=TensorProto.BOOL)

    return translation


def _arg(kind: str) -> Callable[..., Name]:
    return lambda g, op, x: g.op("Cast", g.op(kind, x, axis=op["axes"][0], keepdims=0), to=_type(op["index_dtype"]))


def _slice(g: Graph, op: Operation, x: Name) -> Name:
    ends, strides = op.lengths("limit_indices"), op["strides"] or [1] * op.rank()
    return g.op("Slice", x, g.ints(op["start_indices"]), g.shape(ends), g.ints(range(op.rank())), g.ints(strides))


def _split(g: Graph, op: Operation, x: Name) -> list[Name]:
    ends = np.cumsum(op["sizes"])
    axis = g.ints([op["axis"]])
    return [
        g.op("Slice", x, g.ints([end - size]), g.ints([end]), axis) for end, size in zip(ends, op["sizes"], strict=True)
    ]


def _pad(g: Graph, op: Operation, x: Name, value: Name) -> Name:
    config = op["padding_config"]
    if any(interior for *_, interior in config):
        raise NotInONNX("pad", " between entries")
    return g.op("Pad", x, g.ints([low for low, *_ in config] + [high for _, high, _ in config]), value)


def _rev(g: Graph, op: Operation, x: Name) -> Name:
    axes = op["dimensions"]
    ends = g.ints([-(2**62)] * len(axes))
    return g.op("Slice", x, g.ints([-1] * len(axes)), ends, g.ints(axes), g.ints([-1] * len(axes)))


def _iota(g: Graph, op: Operation, *_: Name) -> Name:
    shape, axis = op.output_shape(), op["dimension"]
    last = g.op("Squeeze", g._length(shape[axis]))
    numbers = g.op("Range", g.constant(0, np.int64), last, g.constant(1, np.int64))
    numbers = g.op("Cast", numbers, to=_type(op["dtype"]))
    if len(shape) == 1:
        return numbers
    numbers = g.op("Reshape", numbers, g.ints([-1 if i == axis else 1 for i in range(len(shape))]))
    return g.op("Expand", numbers, g.shape(shape))


def _select(g: Graph, op: Operation, which: Name, *cases: Name) -> Name:
    if len(cases) != 2:
        raise NotInONNX("select_n", f" of {len(cases)} cases")
    if op.dtype != np.bool_:
        which = g.op("Cast", which, to=TensorProto.BOOL)
    return g.op("Where", which, cases[1], cases[0])


def _dot(g: Graph, op: Operation, x: Name, y: Name) -> Name:
    (x_axes, y_axes), (x_batch, y_batch) = op["dimension_numbers"]
    x_rank, y_rank = op.rank(0), op.rank(1)
    if not x_batch and x_rank >= 2 and y_rank == 2 and tuple(x_axes) == (x_rank - 1,):
        return g.op("MatMul", x, y if tuple(y_axes) == (0,) else g.op("Transpose", y, perm=[1, 0]))
    letters = iter(ascii_letters)
    x_letters = [next(letters) for _ in range(x_rank)]
    shared = dict(zip([*y_batch, *y_axes], [*x_batch, *x_axes], strict=True))
    y_letters = [x_letters[shared[axis]] if axis in shared else next(letters) for axis in range(y_rank)]
    out = [x_letters[axis] for axis in x_batch]
    out += [letter for axis, letter in enumerate(x_letters) if axis not in (*x_batch, *x_axes)]
    out += [letter for axis, letter in enumerate(y_letters) if axis not in shared]
    return g.op("Einsum", x, y, equation=f"{''.join(x_letters)},{''.join(y_letters)}->{''.join(out)}")


def _convolution(g: Graph, op: Operation, x: Name, kernel: Name) -> Name:
    numbers = op["dimension_numbers"]
    if set(op["lhs_dilation"]) > {1} or op["batch_group_count"] != 1:
        raise NotInONNX("conv_general_dilated", " with a dilated input (a transposed convolution)")
    padding = op["padding"]
    result = g.op(
        "Conv",
        g.op("Transpose", x, perm=list(numbers.lhs_spec)),
        g.op("Transpose", kernel, perm=list(numbers.rhs_spec)),
        strides=list(op["window_strides"]),
        pads=[low for low, _ in padding] + [high for _, high in padding],
        dilations=list(op["rhs_dilation"]),
        group=op["feature_group_count"],
    )
    return g.op("Transpose", result, perm=np.argsort(numbers.out_spec).tolist())


def _pool(kind: str) -> Callable[..., Name]:
    def translation(g: Graph, op: Operation, x: Name) -> Name:
        window, rank = op["window_dimensions"], op.rank()
        if set(op["base_dilation"]) | set(op["window_dilation"]) > {1}:
            raise NotInONNX(op.small.primitive.name, " with dilation")
        spatial = [axis for axis in range(rank) if window[axis] > 1 or op["window_strides"][axis] > 1]
        others = [axis for axis in range(rank) if axis not in spatial]
        order, shape, given = [*others, *spatial], op.output_shape(), op.input_shape()
        x = g.op("Transpose", x, perm=order)
        x = _reshaped_all(g, x, [(0, 1), *(given[axis] for axis in spatial)])
        padding = [op["padding"][axis] for axis in spatial]
        attributes: dict[str, Any] = {
            "kernel_shape": [window[axis] for axis in spatial],
            "strides": [op["window_strides"][axis] for axis in spatial],
            "pads": [low for low, _ in padding] + [high for _, high in padding],
        }
        if kind == "AveragePool":
            attributes["count_include_pad"] = 1
        x = g.op(kind, x, **attributes)
        if kind == "AveragePool":
            x = g.op("Mul", x, g.constant(np.prod(attributes["kernel_shape"]), op.dtype))
        x = g.op("Reshape", x, g.shape([shape[axis] for axis in order]))
        return g.op("Transpose", x, perm=np.argsort(order).tolist())

    return translation


def _reshaped_all(g: Graph, x: Name, shape: Shape) -> Name:
    """All that is left in the first axis."""
    return g.op("Reshape", x, g.op("Concat", g.ints([-1]), g.shape(shape), axis=0))


def _sort(g: Graph, op: Operation, *operands: Name) -> list[Name]:
    (scale, length) = op.input_shape()[op["dimension"]]
    if len(operands) != 1 or scale:
        raise NotInONNX("sort", " of several arrays, or of examples")
    axis = op["dimension"]
    return g.op("TopK", *operands, g.ints([length]), axis=axis, largest=0, sorted=1, outputs=2)[:1]


def _gather(g: Graph, op: Operation, x: Name, indices: Name) -> Name:
    """Rows of a table: one axis of `x` is looked up, all others are kept."""
    numbers = op["dimension_numbers"]
    sizes, shape = op["slice_sizes"], op.small.invars[0].aval.shape  # type: ignore[attr-defined]
    axes = numbers.start_index_map
    others_whole = all(
        size == length for axis, (size, length) in enumerate(zip(sizes, shape, strict=True)) if axis not in axes
    )
    batched = getattr(numbers, "operand_batching_dims", ())
    if len(axes) != 1 or numbers.collapsed_slice_dims != axes or batched or not others_whole:
        raise NotInONNX("gather", " other than a lookup of rows")
    rank = op.rank(1) - 1
    looked_up = g.op("Gather", x, g.op("Squeeze", indices, g.ints([rank])), axis=axes[0])
    # ONNX puts the axes of the indices where the axis was; JAX keeps the others at `offset_dims`
    current = [f"o{i}" for i in range(axes[0])] + [f"i{i}" for i in range(rank)]
    current += [f"o{i}" for i in range(axes[0], op.rank(0) - 1)]
    offsets, batch = iter(range(op.rank(0) - 1)), iter(range(rank))
    wanted = [f"o{next(offsets)}" if i in numbers.offset_dims else f"i{next(batch)}" for i in range(len(current))]
    return looked_up if wanted == current else g.op("Transpose", looked_up, perm=[current.index(n) for n in wanted])


TRANSLATIONS: dict[str, Callable[..., Any]] = {
    "argmax": _arg("ArgMax"),
    "argmin": _arg("ArgMin"),
    "broadcast_in_dim": _broadcast,
    "clamp": lambda g, op, low, x, high: g.op("Min", g.op("Max", x, low), high),
    "concatenate": lambda g, op, *x: g.op("Concat", *x, axis=op["dimension"]),
    "conv_general_dilated": _convolution,
    "convert_element_type": lambda g, op, x: g.op("Cast", x, to=_type(op["new_dtype"])),
    "cumsum": lambda g, op, x: g.op("CumSum", x, g.constant(op["axis"], np.int64), reverse=int(op["reverse"])),
    "dot_general": _dot,
    "erfc": lambda g, op, x: g.op("Sub", _one(g, op), g.op("Erf", x)),
    "exp2": lambda g, op, x: g.op("Pow", g.constant(2, op.dtype), x),
    "expand_dims": lambda g, op, x: _reshaped(g, x, op.output_shape()),
    "expm1": lambda g, op, x: g.op("Sub", g.op("Exp", x), _one(g, op)),
    "gather": _gather,
    "integer_pow": _integer_pow,
    "iota": _iota,
    "is_finite": lambda g, op, x: g.op("Not", g.op("Or", g.op("IsInf", x), g.op("IsNaN", x))),
    "log1p": _log1p,
    "ne": lambda g, op, x, y: g.op("Not", g.op("Equal", x, y)),
    "pad": _pad,
    "reduce_and": _reduce_bool("ReduceMin"),
    "reduce_max": _reduce("ReduceMax"),
    "reduce_min": _reduce("ReduceMin"),
    "reduce_or": _reduce_bool("ReduceMax"),
    "reduce_prod": _reduce("ReduceProd"),
    "reduce_sum": _reduce("ReduceSum"),
    "reduce_window_max": _pool("MaxPool"),
    "reduce_window_sum": _pool("AveragePool"),
    "rem": lambda g, op, x, y: g.op("Mod", x, y, fmod=1),
    "reshape": lambda g, op, x: _reshaped(g, x, op.output_shape()),
    "rev": _rev,
    "rsqrt": lambda g, op, x: g.op("Reciprocal", g.op("Sqrt", x)),
    "select_n": _select,
    "slice": _slice,
    "sort": _sort,
    "split": _split,
    "stack": lambda g, op, *x: g.op(
        "Concat", *(g.op("Unsqueeze", part, g.ints([op["axis"]])) for part in x), axis=op["axis"]
    ),
    "square": lambda g, op, x: g.op("Mul", x, x),
    "squeeze": lambda g, op, x: _reshaped(g, x, op.output_shape()),
    "transpose": lambda g, op, x: g.op("Transpose", x, perm=list(op["permutation"])),
}


def _scan(g: Graph, eqns: Pair, operands: list[Name]) -> list[Name]:
    eqn, other = eqns
    consts, carry = eqn.params["num_consts"], eqn.params["num_carry"]
    entries = len(operands) - consts - carry
    pair = (eqn.params["jaxpr"], other.params["jaxpr"])
    body, infos, results = g.body(pair, [*operands[:consts], *[None] * (carry + entries)])
    declared = body.outputs(results, pair)
    if entries == 0:  # ONNX's Scan needs something to run over
        return _counted(g, body, infos, declared, operands[consts:], carry, eqn.params["length"])
    stacked, backwards = len(eqn.outvars) - carry, int(eqn.params["reverse"])
    directions = {"scan_output_directions": [backwards] * stacked} if stacked else {}  # ONNX takes no empty list
    found = g.op(
        "Scan",
        *operands[consts:],
        outputs=len(eqn.outvars),
        body=helper.make_graph(body.nodes, "body", infos, declared),
        num_scan_inputs=entries,
        scan_input_directions=[backwards] * entries,
        **directions,
    )
    return found if isinstance(found, list) else [found]


def _counted(g: Graph, body: Graph, infos: list, declared: list, operands: list[Name], carry: int, length: int) -> list:
    """A loop of a fixed number of turns, over nothing."""
    if len(declared) > carry:
        raise NotInONNX("scan", " that stacks results but runs over nothing")
    turn = helper.make_tensor_value_info(f"v{next(g.shared.numbers)}", TensorProto.INT64, [])
    going = helper.make_tensor_value_info(f"v{next(g.shared.numbers)}", TensorProto.BOOL, [])
    goes_on = helper.make_tensor_value_info(body.op("Identity", going.name), TensorProto.BOOL, [])
    graph = helper.make_graph(body.nodes, "body", [turn, going, *infos], [goes_on, *declared])
    found = g.op("Loop", g.constant(length, np.int64), "", *operands, outputs=len(declared), body=graph)
    return found if isinstance(found, list) else [found]


def _while(g: Graph, eqns: Pair, operands: list[Name]) -> list[Name]:
    eqn, other = eqns
    first, second = eqn.params["cond_nconsts"], eqn.params["cond_nconsts"] + eqn.params["body_nconsts"]
    conditions = (eqn.params["cond_jaxpr"], other.params["cond_jaxpr"])
    pair = (eqn.params["body_jaxpr"], other.params["body_jaxpr"])
    (begins,) = g.program(conditions, operands[:first] + operands[second:])
    body, infos, results = g.body(pair, [*operands[first:second], *[None] * (len(operands) - second)])
    (goes_on,) = body.program(conditions, operands[:first] + results)
    turn = helper.make_tensor_value_info(f"v{next(g.shared.numbers)}", TensorProto.INT64, [])
    going = helper.make_tensor_value_info(f"v{next(g.shared.numbers)}", TensorProto.BOOL, [])
    declared = [*body.outputs([goes_on], conditions), *body.outputs(results, pair)]
    graph = helper.make_graph(body.nodes, "body", [turn, going, *infos], declared)
    found = g.op("Loop", "", begins, *operands[second:], outputs=len(results), body=graph)
    return found if isinstance(found, list) else [found]


LOOPS: dict[str, Callable[[Graph, Pair, list[Name]], list[Name]]] = {"scan": _scan, "while": _while}
