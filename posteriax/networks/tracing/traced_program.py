"""A network's program as a flat list of steps, with what each value depends on.

Each step is one equation of the network's jaxpr. Calls that combine data with leaves that are inferred (a `jit` around
the whole network, a rematerialised block) are inlined, so that the program can be cut inside them; all others stay as
they are, with the gradients that they may define.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import Jaxpr, Literal

Slot = int  # the number of a value

_COMPARED = 10_000  # numbers of a constant
_CALLS = ("jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint")

# primitives that cost no more than reading and writing their values; a lookup reads as much as it writes
# fmt: off
_CHEAP = frozenset((
    "abs", "add", "and", "argmax", "argmin", "broadcast_in_dim", "cbrt", "ceil", "clamp", "concatenate",
    "convert_element_type", "copy", "copy_p", "cos", "div", "dynamic_slice", "eq", "erf", "erf_inv", "exp", "exp2",
    "expand_dims", "expm1", "floor", "gather", "ge", "gt", "integer_pow", "iota", "is_finite", "le", "log",
    "log1p", "logistic", "lt", "max", "min", "mul", "ne", "neg", "nextafter", "not", "or", "pad", "pow",
    "reduce_and", "reduce_max", "reduce_min", "reduce_or", "reduce_precision", "reduce_sum", "rem", "reshape",
    "rev", "round", "rsqrt", "select_n", "sign", "sin", "slice", "split", "sqrt", "square", "squeeze",
    "stop_gradient", "sub", "tan", "tanh", "tile", "transpose", "xor",
))
# fmt: on


class Kind(IntEnum):
    """What a value depends on; that of a step's outputs is the largest of its inputs'."""

    CONSTANT = 0  # nothing but constants, fixed leaves among them
    DATA = 1  # the inputs
    RANDOM = 2  # leaves that are inferred, or a key


class Step(NamedTuple):
    """One equation, as a program of its own, and the values that it reads and writes."""

    jaxpr: Any
    inputs: tuple[Slot, ...]
    outputs: tuple[Slot, ...]
    kind: Kind

    @property
    def is_cheap(self) -> bool:
        return _is_cheap(self.jaxpr)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(eqn.primitive.name for eqn in self.jaxpr.eqns)


@dataclass(eq=False)
class TracedProgram:
    """A flat program for one batch size. Values are numbered; `avals` and `kinds` say what is known about each."""

    steps: list[Step]
    avals: list[Any]
    kinds: list[Kind]
    constants: dict[Slot, Any]
    inputs: list[Slot]  # params, x, key
    outputs: list[Slot]
    structure: Any  # of the network's outputs

    @property
    def shape(self) -> list[Any]:
        """What two programs that differ only in the sizes of their arrays have in common."""
        return [(step.names, step.inputs, step.outputs, step.kind) for step in self.steps]

    def needed(self, wanted: Iterable[Slot], given: Iterable[Slot]) -> list[Step]:
        """The steps that compute the wanted values from the given ones."""
        open_, kept = set(wanted) - set(given), []
        for step in reversed(self.steps):
            if not open_.isdisjoint(step.outputs):
                kept.append(step)
                open_ = (open_ - set(step.outputs)) | (set(step.inputs) - set(given))
        return kept[::-1]

    def run(self, steps: Sequence[Step], values: dict[Slot, Any], wanted: Sequence[Slot]) -> list[Any]:
        known = self.constants | values
        for step in steps:
            results = jax.core.eval_jaxpr(step.jaxpr, (), *(known[slot] for slot in step.inputs))
            known.update(zip(step.outputs, results, strict=True))
        return [known[slot] for slot in wanted]

    def expressions(self) -> dict[Slot, str]:
        """A digest of how each value is computed. Values with the same digest are equal, also across programs."""
        found = {slot: f"input {place}" for place, slot in enumerate(self.inputs)}
        found |= {slot: _digest_of_constant(value) for slot, value in self.constants.items()}
        for step in self.steps:
            text = re.sub(r"0x[0-9a-f]+", "", str(step.jaxpr))
            own = hashlib.sha256(repr((text, [found[slot] for slot in step.inputs])).encode()).hexdigest()
            found |= {slot: f"{own} {place}" for place, slot in enumerate(step.outputs)}
        return found


def trace_program(function: Callable[..., Any], params: Any, x: Any, key: Any) -> TracedProgram:
    """The program of ``function(params, x, key)``, traced for arrays or their shapes."""
    closed, outputs = jax.make_jaxpr(function, return_shape=True)(params, x, key)
    params_count, x_count = len(jax.tree.leaves(params)), len(jax.tree.leaves(x))
    program = TracedProgram([], [], [], {}, [], [], jax.tree.structure(outputs))
    for place, variable in enumerate(closed.jaxpr.invars):
        is_data = params_count <= place < params_count + x_count
        program.inputs.append(_new(program, variable.aval, Kind.DATA if is_data else Kind.RANDOM))
    program.outputs = _add(program, closed, program.inputs)
    return program


def _new(program: TracedProgram, aval: Any, kind: Kind) -> Slot:
    program.avals.append(aval)
    program.kinds.append(kind)
    return len(program.avals) - 1


def _constant(program: TracedProgram, value: Any, aval: Any) -> Slot:
    slot = _new(program, aval, Kind.CONSTANT)
    program.constants[slot] = value
    return slot


def _digest_of_constant(value: Any) -> str:
    """A large constant is only ever equal to itself."""
    if isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    array = value if isinstance(value, jax.Array) else np.asarray(value)
    if array.size > _COMPARED:
        return f"constant {id(value)}"
    return f"constant {array.shape} {array.dtype} {np.asarray(array).tobytes().hex()}"


def _add(program: TracedProgram, closed: Any, inputs: Sequence[Slot]) -> list[Slot]:
    """Append the steps of a jaxpr for these inputs; returns its outputs."""
    jaxpr, consts = (closed.jaxpr, closed.consts) if hasattr(closed, "consts") else (closed, ())
    own = {
        variable: _constant(program, value, variable.aval)
        for variable, value in zip(jaxpr.constvars, consts, strict=True)
    }
    own |= dict(zip(jaxpr.invars, inputs, strict=True))

    def slot_of(atom: Any) -> Slot:
        return _constant(program, atom.val, atom.aval) if isinstance(atom, Literal) else own[atom]

    for eqn in jaxpr.eqns:
        read = [v for v in eqn.invars if not isinstance(v, Literal)]
        kinds = {program.kinds[own[v]] for v in read}
        if eqn.primitive.name in _CALLS and {Kind.DATA, Kind.RANDOM} <= kinds:
            inner = eqn.params["jaxpr"] if "jaxpr" in eqn.params else eqn.params["call_jaxpr"]
            results = _add(program, inner, [slot_of(v) for v in eqn.invars])
        else:
            kind = max(kinds, default=Kind.CONSTANT)
            results = [_new(program, v.aval, kind) for v in eqn.outvars]
            distinct = tuple(dict.fromkeys(read))
            alone = Jaxpr((), distinct, eqn.outvars, [eqn], eqn.effects, debug_info=jaxpr.debug_info)
            program.steps.append(Step(alone, tuple(own[v] for v in distinct), tuple(results), kind))
        own.update(zip(eqn.outvars, results, strict=True))
    return [slot_of(v) for v in jaxpr.outvars]


def _is_cheap(jaxpr: Any) -> bool:
    for eqn in jaxpr.eqns:
        inner = [getattr(value, "jaxpr", value) for value in eqn.params.values()]
        inner = [value for value in inner if hasattr(value, "eqns")]
        if eqn.primitive.name in (*_CALLS, "custom_jvp_call"):
            if not all(map(_is_cheap, inner)):
                return False
        elif eqn.primitive.name not in _CHEAP:
            return False
    return True
