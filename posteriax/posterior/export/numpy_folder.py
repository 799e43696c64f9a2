"""NumPy: a folder with the draws and a short Python file, for dense networks where there is nothing but NumPy.

    predict.py    predict(x), one line for an operation of the program
    draws.npz     the draws, by the paths of their leaves

The program is traced for two sizes of the batch: lengths that differ between the two are a n + b for n examples.
"""

import json
import runpy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal

from posteriax._internal.leaf_paths import leaf_paths
from posteriax.networks.tracing.program import TRIAL_SIZES, array_type, called_program
from posteriax.posterior.export.program import (
    NOTHING,
    PredictiveProgram,
    Results,
    lengths_by_examples,
    needed_equations,
)

CODE, DRAWS, ABOUT = "predict.py", "draws.npz", "about.json"
INLINE = 8  # numbers of a constant that is written into the code

HEADER = '''"""{draws} draws of a posterior, and what they predict on average. Written by posteriax; needs NumPy alone.

    from predict import predict
    predict(x)["{first}"]        # x: {shape} for n examples

Results: {results}.
Levels of quantiles: {levels}.
"""

from pathlib import Path

import numpy as np

with np.load(Path(__file__).with_name("{file}")) as file:
    W = dict(file)


def erfc(x):
    """1 - erf(x), with a relative error of 1e-7: exp of a polynomial in t = 1 / (1 + |x| / 2)."""
    t = 1 / (1 + 0.5 * np.abs(x.astype(np.float64)))
    terms = (-1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807, -1.13520398, 1.48851587)
    polynomial = np.polynomial.polynomial.polyval(t, (*terms, -0.82215223, 0.17087277))
    tail = t * np.exp(-np.square(x.astype(np.float64)) + polynomial)
    return np.where(x >= 0, tail, 2 - tail).astype(x.dtype)


def predict(x):
    """Everything that the posterior predicts for the examples x, by name."""
    x = np.asarray(x, "{dtype}")
    if x.shape[1:] != {example}:
        raise ValueError(f"x has examples of shape {{x.shape[1:]}}, but the model was exported for {example}")
    n = len(x)
    with np.errstate(all="ignore"):
'''


class NotInNumPy(NotImplementedError):
    """An operation of JAX has no translation to NumPy."""

    def __init__(self, name: str):
        super().__init__(
            f"the NumPy format is for dense networks: it has no translation of the operation {name!r}. Use "
            f'format="stablehlo" or "onnx", or leave out what needs it: results=...'
        )


def write(program: PredictiveProgram, about: dict[str, Any], path: Path) -> Results:
    """Write the folder; returns what the code in it computes for the example inputs."""
    leaves = jax.tree.leaves(program.example)
    if len(leaves) != 1 or not isinstance(program.example, np.ndarray):
        raise TypeError('the NumPy format is for networks of one input array: use format="stablehlo" or "onnx"')
    names = dict(zip(map(id, jax.tree.leaves(program.draws)), leaf_paths(program.draws), strict=True))
    code = Code(names)

    def in_order(x: Any) -> list[Any]:
        computed = program(x)
        return [computed[name] for name in program.results]

    pair = tuple(jax.make_jaxpr(in_order)(program.spec(size)) for size in TRIAL_SIZES)
    results = code.program(pair, ["x"], 2)  # type: ignore[arg-type]
    example = program.spec_of_example()
    header = HEADER.format(
        draws=f"{program.count:,}",
        first=program.results[0],
        shape=("n", *example.shape),
        results=", ".join(program.results),
        levels=", ".join(f"{level:g}" for level in program.levels),
        file=DRAWS,
        dtype=example.dtype.name,
        example=example.shape,
    )
    named = ", ".join(f'"{name}": {value}' for name, value in zip(program.results, results, strict=True))
    path.mkdir()
    (path / CODE).write_text(header + "\n".join([*code.lines, f"    return {{{named}}}", ""]))
    np.savez(path / DRAWS, **code.arrays)  # type: ignore[arg-type]
    (path / ABOUT).write_text(json.dumps(about, indent=1))
    return runpy.run_path(str(path / CODE))["predict"](program.example)


class Code:
    """Lines of NumPy, as they are added.

    Args:
        names: of known constants, by their ids.
    """

    def __init__(self, names: dict[int, str]):
        self.names = names
        self.lines: list[str] = []
        self.arrays: dict[str, np.ndarray] = {}
        self.count = 0

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def constant(self, value: Any) -> str:
        array = np.asarray(value)
        if array.size <= INLINE:
            text = np.array2string(array, separator=", ", floatmode="unique", threshold=100).replace("\n", "")
            text = text.replace("inf", "np.inf").replace("nan", "np.nan")
            return (
                f"np.{array.dtype.name.rstrip('_')}({text})" if not array.ndim else f'np.array({text}, "{array.dtype}")'
            )
        name = self.names.get(id(value), f"constant {len(self.arrays)}")
        self.arrays[name] = array
        return f'W["{name}"]'

    def program(self, pair: tuple[ClosedJaxpr, ClosedJaxpr], inputs: Sequence[str], depth: int) -> list[str]:
        """Add the lines of a program with these inputs; returns what its outputs are called."""
        small, large = pair
        known: dict[Any, str] = dict(zip(small.jaxpr.invars, inputs, strict=True))
        known |= {v: self.constant(value) for v, value in zip(small.jaxpr.constvars, small.consts, strict=True)}

        def text_of(atom: Any) -> str:
            if isinstance(atom, Literal):
                return self.constant(np.asarray(atom.val, array_type(atom).dtype))
            return known[atom]

        for eqns in needed_equations((small.jaxpr, large.jaxpr)):
            results = self._translated(eqns, [text_of(atom) for atom in eqns[0].invars], depth)
            known.update(zip(eqns[0].outvars, results, strict=True))
        return [text_of(atom) for atom in small.jaxpr.outvars]

    def _translated(self, eqns: tuple[JaxprEqn, JaxprEqn], operands: list[str], depth: int) -> list[str]:
        eqn, other = eqns
        called, primitive = called_program(eqn), eqn.primitive.name
        if called is not None:
            return self.program((called, called_program(other)), operands, depth)  # type: ignore[arg-type]
        if primitive == "scan":
            return self._scan(eqns, operands, depth)
        if primitive == "while":
            return self._while(eqns, operands, depth)
        if primitive in NOTHING:
            return operands
        if primitive == "split":
            return self._split(eqn, operands[0], depth)
        if primitive in PLAIN:
            text = PLAIN[primitive].format(*operands)
        elif primitive in SHAPED:
            text = SHAPED[primitive](eqn, _shape(eqn, other), *operands)
        else:
            raise NotInNumPy(primitive)
        name = self.name()
        self.line(depth, f"{name} = {text}")
        return [name]

    def _split(self, eqn: JaxprEqn, x: str, depth: int) -> list[str]:
        names = [self.name() for _ in eqn.outvars]
        ends = np.cumsum(eqn.params["sizes"])[:-1].tolist()
        self.line(depth, f"{', '.join(names)} = np.split({x}, {ends}, axis={eqn.params['axis']})")
        return names

    def _scan(self, eqns: tuple[JaxprEqn, JaxprEqn], operands: list[str], depth: int) -> list[str]:
        eqn, other = eqns
        consts, carry = eqn.params["num_consts"], eqn.params["num_carry"]
        carried = [self.name() for _ in range(carry)]
        stacked = [self.name() for _ in eqn.outvars[carry:]]
        for name, value in zip(carried, operands[consts:], strict=False):
            self.line(depth, f"{name} = {value}")
        for name in stacked:
            self.line(depth, f"{name} = []")
        turn, length = self.name(), eqn.params["length"]
        turns = f"range({length})" if not eqn.params["reverse"] else f"reversed(range({length}))"
        self.line(depth, f"for {turn} in {turns}:")
        entries = [f"{value}[{turn}]" for value in operands[consts + carry :]]
        pair = (eqn.params["jaxpr"], other.params["jaxpr"])
        results = self.program(pair, [*operands[:consts], *carried, *entries], depth + 1)
        for name, value in zip(stacked, results[carry:], strict=True):
            self.line(
                depth + 1, f"{name}.append({value})" if not eqn.params["reverse"] else f"{name}.insert(0, {value})"
            )
        if carried:
            self.line(depth + 1, f"{', '.join(carried)} = {', '.join(results[:carry])}")
        for name in stacked:
            self.line(depth, f"{name} = np.stack({name})")
        return carried + stacked

    def _while(self, eqns: tuple[JaxprEqn, JaxprEqn], operands: list[str], depth: int) -> list[str]:
        eqn, other = eqns
        first, second = eqn.params["cond_nconsts"], eqn.params["cond_nconsts"] + eqn.params["body_nconsts"]
        carried = [self.name() for _ in operands[second:]]
        self.line(depth, f"{', '.join(carried)} = {', '.join(operands[second:])}")
        self.line(depth, "while True:")
        conditions = (eqn.params["cond_jaxpr"], other.params["cond_jaxpr"])
        (goes_on,) = self.program(conditions, operands[:first] + carried, depth + 1)
        self.line(depth + 1, f"if not {goes_on}:")
        self.line(depth + 2, "break")
        pair = (eqn.params["body_jaxpr"], other.params["body_jaxpr"])
        results = self.program(pair, operands[first:second] + carried, depth + 1)
        self.line(depth + 1, f"{', '.join(carried)} = {', '.join(results)}")
        return carried


def _shape(eqn: JaxprEqn, other: JaxprEqn) -> str:
    """The shape of a result, as code."""
    small, large = (array_type(e.outvars[0]).shape for e in (eqn, other))
    parts = [
        str(b) if not a else "n" if (a, b) == (1, 0) else f"{a} * n + {b}" for a, b in lengths_by_examples(small, large)
    ]
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


PLAIN = {
    "abs": "np.abs({0})",
    "add": "{0} + {1}",
    "add_any": "{0} + {1}",
    "and": "{0} & {1}",
    "ceil": "np.ceil({0})",
    "clamp": "np.minimum(np.maximum({1}, {0}), {2})",
    "cos": "np.cos({0})",
    "cosh": "np.cosh({0})",
    "div": "{0} / {1}",
    "eq": "{0} == {1}",
    "erf": "1 - erfc({0})",
    "erfc": "erfc({0})",
    "exp": "np.exp({0})",
    "exp2": "np.exp2({0})",
    "expm1": "np.expm1({0})",
    "floor": "np.floor({0})",
    "ge": "{0} >= {1}",
    "gt": "{0} > {1}",
    "is_finite": "np.isfinite({0})",
    "le": "{0} <= {1}",
    "log": "np.log({0})",
    "log1p": "np.log1p({0})",
    "logistic": "1 / (1 + np.exp(-{0}))",
    "lt": "{0} < {1}",
    "max": "np.maximum({0}, {1})",
    "min": "np.minimum({0}, {1})",
    "mul": "{0} * {1}",
    "ne": "{0} != {1}",
    "neg": "-{0}",
    "not": "~{0}",
    "or": "{0} | {1}",
    "pow": "{0} ** {1}",
    "rsqrt": "1 / np.sqrt({0})",
    "sign": "np.sign({0})",
    "sin": "np.sin({0})",
    "sqrt": "np.sqrt({0})",
    "sinh": "np.sinh({0})",
    "square": "np.square({0})",
    "sub": "{0} - {1}",
    "tan": "np.tan({0})",
    "tanh": "np.tanh({0})",
}


def _broadcast(eqn: JaxprEqn, shape: str, *operands: str) -> str:
    kept, given = eqn.params["broadcast_dimensions"], eqn.invars[0].aval.shape if eqn.invars else ()  # type: ignore[attr-defined]
    rank = len(eqn.outvars[0].aval.shape)  # type: ignore[attr-defined]
    if not given or tuple(kept) == tuple(range(rank - len(given), rank)):
        return f"np.broadcast_to({operands[0]}, {shape})"
    new = tuple(axis for axis in range(rank) if axis not in kept)
    return f"np.broadcast_to(np.expand_dims({operands[0]}, {new}), {shape})"


def _dot(eqn: JaxprEqn, shape: str, x: str, y: str) -> str:
    (x_axes, y_axes), (x_batch, y_batch) = eqn.params["dimension_numbers"]
    if not x_batch:
        return f"np.tensordot({x}, {y}, ({tuple(x_axes)}, {tuple(y_axes)}))"
    ranks = [len(atom.aval.shape) for atom in eqn.invars]  # type: ignore[attr-defined]
    x_letters = list("abcdefgh"[: ranks[0]])
    shared = dict(zip([*y_batch, *y_axes], [*x_batch, *x_axes], strict=True))
    y_letters = [x_letters[shared[axis]] if axis in shared else "ijklmnop"[axis] for axis in range(ranks[1])]
    out = [x_letters[axis] for axis in x_batch]
    out += [letter for axis, letter in enumerate(x_letters) if axis not in (*x_batch, *x_axes)]
    out += [letter for axis, letter in enumerate(y_letters) if axis not in shared]
    return f'np.einsum("{"".join(x_letters)},{"".join(y_letters)}->{"".join(out)}", {x}, {y}, optimize=True)'


def _slice(eqn: JaxprEqn, shape: str, x: str) -> str:
    starts, strides = eqn.params["start_indices"], eqn.params["strides"] or [1] * len(eqn.params["start_indices"])
    given = eqn.invars[0].aval.shape  # type: ignore[attr-defined]
    parts = []
    for start, end, stride, length in zip(starts, eqn.params["limit_indices"], strides, given, strict=True):
        last = "" if end == length else str(end)
        parts.append(f"{start or ''}:{last}" + (f":{stride}" if stride > 1 else ""))
    return f"{x}[{', '.join(parts)}]"


def _cast(eqn: JaxprEqn, shape: str, x: str) -> str:
    return f'np.asarray({x}).astype("{np.dtype(eqn.params["new_dtype"]).name}")'


def _iota(eqn: JaxprEqn, shape: str, *_: str) -> str:
    axis, dtype, rank = eqn.params["dimension"], np.dtype(eqn.params["dtype"]).name, len(eqn.params["shape"])
    index = ", ".join(":" if i == axis else "None" for i in range(rank))
    return f'np.broadcast_to(np.arange({shape}[{axis}], dtype="{dtype}")[{index}], {shape})'


def _reduce(function: str) -> Callable[..., str]:
    return lambda eqn, shape, x: f"{function}({x}, axis={tuple(map(int, eqn.params['axes']))})"


def _sort(eqn: JaxprEqn, shape: str, *operands: str) -> str:
    if len(operands) != 1:
        raise NotInNumPy("sort")
    return f"np.sort({operands[0]}, axis={eqn.params['dimension']})"


def _select(eqn: JaxprEqn, shape: str, which: str, *cases: str) -> str:
    if len(cases) != 2:
        raise NotInNumPy("select_n")
    return f"np.where({which}, {cases[1]}, {cases[0]})"


SHAPED: dict[str, Callable[..., str]] = {
    "argmax": lambda eqn, shape, x: f"np.argmax({x}, axis={eqn.params['axes'][0]})",
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda eqn, shape, *x: f"np.concatenate([{', '.join(x)}], axis={eqn.params['dimension']})",
    "convert_element_type": _cast,
    "cumsum": lambda eqn, shape, x: f"np.cumsum({x}, axis={eqn.params['axis']})",
    "dot_general": _dot,
    "expand_dims": lambda eqn, shape, x: f"np.reshape({x}, {shape})",
    "integer_pow": lambda eqn, shape, x: f"{x} ** {eqn.params['y']}",
    "iota": _iota,
    "reduce_and": _reduce("np.all"),
    "reduce_max": _reduce("np.max"),
    "reduce_min": _reduce("np.min"),
    "reduce_or": _reduce("np.any"),
    "reduce_prod": _reduce("np.prod"),
    "reduce_sum": _reduce("np.sum"),
    "reshape": lambda eqn, shape, x: f"np.reshape({x}, {shape})",
    "select_n": _select,
    "slice": _slice,
    "sort": _sort,
    "stack": lambda eqn, shape, *x: f"np.stack([{', '.join(x)}], axis={eqn.params['axis']})",
    "squeeze": lambda eqn, shape, x: f"np.reshape({x}, {shape})",
    "transpose": lambda eqn, shape, x: f"np.transpose({x}, {tuple(eqn.params['permutation'])})",
}
