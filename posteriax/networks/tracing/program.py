"""A network's program: traced once for each batch size, with its calls inlined.

Each step is one equation of the jaxpr. A call that does nothing but call is inlined. A rematerialised block is inlined
where it combines data with leaves that are inferred, so that the program can be cut inside it; elsewhere it stays one
step, and is rematerialised when the step runs. Functions with a gradient of their own stay one step.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum, IntEnum
from typing import Any, NamedTuple, cast

import jax
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var

from posteriax._internal.memory import Inputs as Inputs
from posteriax.networks.adapters.adapter import Params as Params

Slot = int  # the number of a value

TRIAL_SIZES = (5, 7)  # any two sizes will do
_COMPARED = 10_000  # numbers of a constant


class CallKind(Enum):
    """What a call does besides calling."""

    PLAIN = "nothing"
    CHECKPOINT = "its values are computed again for its gradient"
    GRADIENT = "it has a gradient of its own"


# the primitives that call one inner program with their operands
CALLS = (
    dict.fromkeys(("jit", "pjit", "closed_call", "core_call"), CallKind.PLAIN)
    | dict.fromkeys(("checkpoint", "remat", "remat2"), CallKind.CHECKPOINT)
    | dict.fromkeys(("custom_jvp_call", "custom_vjp_call"), CallKind.GRADIENT)
)

# fmt: off
ELEMENTWISE = frozenset((
    "abs", "add", "and", "cbrt", "ceil", "clamp", "convert_element_type", "copy", "copy_p", "cos", "div", "eq", "erf",
    "erf_inv", "exp", "exp2", "expm1", "floor", "ge", "gt", "integer_pow", "is_finite", "le", "log", "log1p",
    "logistic", "lt", "max", "min", "mul", "ne", "neg", "nextafter", "not", "or", "pow", "reduce_precision", "rem",
    "round", "rsqrt", "select_n", "sign", "sin", "sqrt", "square", "stop_gradient", "sub", "tan", "tanh", "xor",
))
# no more expensive than reading and writing their values; a lookup reads as much as it writes
_CHEAP = ELEMENTWISE | {
    "argmax", "argmin", "broadcast_in_dim", "concatenate", "dynamic_slice", "expand_dims", "gather", "iota", "pad",
    "reduce_and", "reduce_max", "reduce_min", "reduce_or", "reduce_sum", "reshape", "rev", "slice", "split", "squeeze",
    "tile", "transpose",
}
# fmt: on


def array_type(atom: Var | Literal) -> ShapedArray:
    """Shape and dtype of a value."""
    return cast(ShapedArray, atom.aval)


def called_program(eqn: JaxprEqn) -> ClosedJaxpr | None:
    """The program that an equation calls with its operands; None if the equation is no such call."""
    if eqn.primitive.name not in CALLS:
        return None
    program = eqn.params["jaxpr"] if "jaxpr" in eqn.params else eqn.params["call_jaxpr"]
    return program if isinstance(program, ClosedJaxpr) else ClosedJaxpr(program, ())


def all_equations(jaxpr: Jaxpr) -> Iterator[JaxprEqn]:
    """The equations of a program and of all programs inside it: calls, loops and branches."""
    for eqn in jaxpr.eqns:
        yield eqn
        for value in jax.tree.leaves(eqn.params, is_leaf=lambda v: isinstance(v, Jaxpr | ClosedJaxpr)):
            if isinstance(value, Jaxpr | ClosedJaxpr):
                yield from all_equations(value.jaxpr if isinstance(value, ClosedJaxpr) else value)


class Kind(IntEnum):
    """What a value depends on; that of a step's outputs is the largest of its inputs'."""

    CONSTANT = 0  # nothing but constants, fixed leaves among them
    DATA = 1  # the inputs
    RANDOM = 2  # leaves that are inferred, or a key


class Step(NamedTuple):
    """One equation, and the values that it reads and writes."""

    eqn: JaxprEqn
    operands: tuple[Slot | None, ...]  # None for a literal
    outputs: tuple[Slot, ...]
    kind: Kind
    checkpoint: str = ""  # the name of the rematerialised call that it is inlined from, if any

    @property
    def name(self) -> str:
        return self.eqn.primitive.name

    @property
    def inputs(self) -> tuple[Slot, ...]:
        return tuple(dict.fromkeys(slot for slot in self.operands if slot is not None))

    @property
    def is_cheap(self) -> bool:
        return _is_cheap(self.eqn)


def _is_cheap(eqn: JaxprEqn) -> bool:
    called = called_program(eqn)
    return eqn.primitive.name in _CHEAP if called is None else all(map(_is_cheap, called.jaxpr.eqns))


class TracedProgram:
    """A program as a flat list of steps. Values are numbered; `avals` and `kinds` say what is known about each.

    Args:
        closed: the program as traced.
        kinds: what its inputs depend on.
        structure: of its outputs.
    """

    def __init__(self, closed: ClosedJaxpr, kinds: Sequence[Kind], structure: Any = None):
        self.closed = closed
        self.structure = structure
        self.steps: list[Step] = []
        self.avals: list[ShapedArray] = []
        self.kinds: list[Kind] = []
        self.constants: dict[Slot, Any] = {}
        self.inputs = [self._new(array_type(v), kind) for v, kind in zip(closed.jaxpr.invars, kinds, strict=True)]
        self.outputs = self._append(closed, self.inputs, "")

    def _new(self, aval: ShapedArray, kind: Kind) -> Slot:
        self.avals.append(aval)
        self.kinds.append(kind)
        return len(self.avals) - 1

    def _constant(self, value: Any, aval: ShapedArray) -> Slot:
        slot = self._new(aval, Kind.CONSTANT)
        self.constants[slot] = value
        return slot

    def _append(self, closed: ClosedJaxpr, inputs: Sequence[Slot], checkpoint: str) -> list[Slot]:
        """Append the steps of a program with these inputs; returns its outputs."""
        jaxpr = closed.jaxpr
        slots = dict(zip(jaxpr.invars, inputs, strict=True))
        for variable, value in zip(jaxpr.constvars, closed.consts, strict=True):
            slots[variable] = self._constant(value, array_type(variable))

        def slot_of(atom: Any) -> Slot:
            return self._constant(atom.val, array_type(atom)) if isinstance(atom, Literal) else slots[atom]

        for eqn in jaxpr.eqns:
            operands = tuple(None if isinstance(atom, Literal) else slots[atom] for atom in eqn.invars)
            kinds = {self.kinds[slot] for slot in operands if slot is not None}
            name, called = eqn.primitive.name, called_program(eqn)
            is_checkpoint = CALLS.get(name) is CallKind.CHECKPOINT
            if called and (CALLS[name] is CallKind.PLAIN or (is_checkpoint and {Kind.DATA, Kind.RANDOM} <= kinds)):
                within = checkpoint or (name if is_checkpoint else "")
                outputs = self._append(called, [slot_of(atom) for atom in eqn.invars], within)
            else:
                kind = max(kinds, default=Kind.CONSTANT)
                outputs = [self._new(array_type(v), kind) for v in eqn.outvars]
                self.steps.append(Step(eqn, operands, tuple(outputs), kind, checkpoint))
            slots.update(zip(eqn.outvars, outputs, strict=True))
        return [slot_of(atom) for atom in jaxpr.outvars]

    def _as_jaxpr(self, step: Step) -> Jaxpr:
        """A step as a program from its inputs to its outputs."""
        eqn, debug_info = step.eqn, self.closed.jaxpr.debug_info
        inputs = tuple(dict.fromkeys(atom for atom in eqn.invars if not isinstance(atom, Literal)))
        return Jaxpr((), inputs, eqn.outvars, [eqn], eqn.effects, debug_info=debug_info)

    @property
    def shape(self) -> list[tuple[Any, ...]]:
        """What two programs that differ only in the sizes of their arrays have in common."""
        return [(step.name, step.operands, step.outputs, step.kind) for step in self.steps]

    def needed(self, results: Iterable[Slot], given: Iterable[Slot]) -> list[Step]:
        """The steps that compute these results from the given values."""
        known, steps = set(given), []
        missing = set(results) - known
        for step in reversed(self.steps):
            if not missing.isdisjoint(step.outputs):
                steps.append(step)
                missing = (missing - set(step.outputs)) | (set(step.inputs) - known)
        return steps[::-1]

    def run(self, given: dict[Slot, Any], results: Sequence[Slot]) -> list[Any]:
        """The values of `results`, from the given values."""
        known = self.constants | given
        for step in self.needed(results, given):
            values = jax.core.eval_jaxpr(self._as_jaxpr(step), (), *(known[slot] for slot in step.inputs))
            known.update(zip(step.outputs, values, strict=True))
        return [known[slot] for slot in results]

    def expressions(self) -> dict[Slot, str]:
        """A digest of how each value is computed. Values with the same digest are equal, also across programs."""
        digests = {slot: f"input {number}" for number, slot in enumerate(self.inputs)}
        digests |= {slot: _digest_of_constant(value) for slot, value in self.constants.items()}
        for step in self.steps:
            text = re.sub(r"0x[0-9a-f]+", "", str(self._as_jaxpr(step)))
            digest = hashlib.sha256(repr((text, [digests[slot] for slot in step.inputs])).encode()).hexdigest()
            digests |= {slot: f"{digest} {number}" for number, slot in enumerate(step.outputs)}
        return digests


def _digest_of_constant(value: Any) -> str:
    """A large constant is only ever equal to itself."""
    if isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    array = value if isinstance(value, jax.Array) else np.asarray(value)
    if array.size > _COMPARED:
        return f"constant {id(value)}"
    return f"constant {array.shape} {array.dtype} {np.asarray(array).tobytes().hex()}"


class NetworkPrograms:
    """The programs of one network. Each is traced when it is first asked for, and kept as long as the network is.

    Args:
        apply: the network, as ``apply(params, x, key=...)``.
        params: its params, or their shapes.
    """

    def __init__(self, apply: Callable[..., Any], params: Params):
        self.apply = apply
        self.params = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), params)
        self._programs: dict[tuple[Any, ...], TracedProgram] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return NetworkPrograms, (self.apply, self.params)  # programs can neither be pickled nor be copied deeply

    def traced(self, example: Inputs, size: int = TRIAL_SIZES[0], *, keyed: bool = False) -> TracedProgram:
        """The program for `size` examples.

        Args:
            example: shapes and dtypes of one example, without the leading axis.
            size: how many examples.
            keyed: whether the network is called with a key, as in training.
        """
        leaves, structure = jax.tree.flatten(example)
        asked = (structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves), size, keyed)
        if asked not in self._programs:
            self._programs[asked] = self._trace(batch_spec(example, size), keyed)
        return self._programs[asked]

    def for_any_size(self, example: Inputs) -> TracedProgram:
        """The program for several examples, called without a key."""
        try:
            return self.traced(example)
        except Exception:  # it may take pairs of examples only
            return self.traced(example, 2)

    def pair(self, example: Inputs, *, keyed: bool) -> tuple[TracedProgram, TracedProgram]:
        """The programs for two batch sizes: axes whose lengths differ are axes of examples."""
        small, large = (self.traced(example, size, keyed=keyed) for size in TRIAL_SIZES)
        return small, large

    def _trace(self, x: Inputs, keyed: bool) -> TracedProgram:
        def function(params: Params, x: Inputs, key: jax.Array) -> Any:
            return self.apply(params, x, key=key) if keyed else self.apply(params, x)

        key = jax.eval_shape(lambda: jax.random.key(0))
        return trace_program(function, self.params, x, key)


def trace_program(function: Callable[..., Any], params: Params, x: Inputs, key: Any) -> TracedProgram:
    """The program of ``function(params, x, key)``, traced for arrays or their shapes."""
    closed, outputs = jax.make_jaxpr(function, return_shape=True)(params, x, key)
    kinds = [Kind.RANDOM] * len(jax.tree.leaves(params)) + [Kind.DATA] * len(jax.tree.leaves(x)) + [Kind.RANDOM]
    return TracedProgram(closed, kinds, jax.tree.structure(outputs))


def axes_of_examples(small: Sequence[int], large: Sequence[int]) -> tuple[int, ...] | None:
    """The axis of examples of a value with these shapes at the two trial sizes: at most one.

    None if examples are merged with another axis or spread over several.
    """
    differing = tuple(axis for axis, lengths in enumerate(zip(small, large, strict=True)) if lengths[0] != lengths[1])
    pure = all((small[axis], large[axis]) == TRIAL_SIZES for axis in differing)
    return differing if pure and len(differing) <= 1 else None


def spec_of_example(x: Inputs) -> Inputs:
    """Shape and dtype of one example of `x`."""
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], jax.dtypes.canonicalize_dtype(a.dtype)), x)


def batch_spec(example: Inputs, size: int) -> Inputs:
    """Shape and dtype of `size` such examples."""
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct((size, *a.shape), a.dtype), example)
