"""Whether a network's outputs are affine in its params.

Every value of the program has a degree in the params. If that of the outputs is not known, for an operation that is not
known here, trial decides.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import JaxprEqn, Literal, Var

from posteriax.networks.tracing.interpretation import Interpretation
from posteriax.networks.tracing.program import ELEMENTWISE, Inputs, Params, array_type

if TYPE_CHECKING:
    from posteriax.networks.network import Network

EXAMPLES = 8  # that linearity is tried on: as many as `couples_examples` takes, which may have compiled the network


class Degree(IntEnum):
    """How a value depends on the params."""

    NONE = 0
    AFFINE = 1
    HIGHER = 2
    UNKNOWN = 3


def is_linear(network: "Network", example: Inputs) -> bool:
    """Whether a network's outputs are affine in its params.

    >>> import numpy as np, posteriax as px
    >>> net = px.network((lambda w, x: x @ w, np.zeros((3, 1))))
    >>> is_linear(net, jax.ShapeDtypeStruct((3,), jnp.float32))
    True
    """
    degree = degree_in_params(network, example)
    return degree <= Degree.AFFINE if degree != Degree.UNKNOWN else _linear_in_trial(network, example)


def degree_in_params(network: "Network", example: Inputs) -> Degree:
    """The degree of the network's outputs in its params, as far as the program tells."""
    try:
        program = network.programs.for_any_size(example)
    except Exception:  # it may accept the inputs of a trial
        return Degree.UNKNOWN
    leaves = len(jax.tree.leaves(network.params))
    inputs = [Degree.AFFINE if i < leaves else Degree.NONE for i in range(len(program.inputs))]
    return max(_Degrees().outputs(program.closed.jaxpr, inputs))


def _linear_in_trial(network: "Network", example: Inputs, tolerance: float = 1e-3) -> bool:
    """Compare sums of outputs with the outputs of sums, at random params and inputs."""
    rng = np.random.default_rng(0)
    x = jax.tree.map(lambda spec: _random_input(rng, spec), example)
    a, b = (jax.tree.map(lambda w: rng.normal(size=w.shape), network.params) for _ in range(2))
    zero, both = jax.tree.map(np.zeros_like, a), jax.tree.map(np.add, a, b)
    apply = jax.jit(network.apply)  # one program, for all four

    def outputs(params: Params) -> np.ndarray:
        params = jax.tree.map(lambda w, like: np.asarray(w, like.dtype), params, network.params)
        return np.asarray(apply(params, x), np.float64)

    at_zero, at_a, at_b, at_both = map(outputs, (zero, a, b, both))
    size = np.abs(at_a).max() + np.abs(at_b).max() + np.abs(at_zero).max()
    with np.errstate(invalid="ignore"):  # infinite outputs are not linear
        return bool(np.abs(at_both - at_a - at_b + at_zero).max() <= tolerance * size)


def _random_input(rng: np.random.Generator, spec: jax.ShapeDtypeStruct) -> np.ndarray:
    shape = (EXAMPLES, *spec.shape)
    if jnp.issubdtype(spec.dtype, jnp.floating):
        return rng.normal(size=shape).astype(spec.dtype)
    return np.zeros(shape, spec.dtype)  # a valid index of any embedding


_PRODUCTS = frozenset(("mul", "dot_general", "conv_general_dilated"))
_LINEAR = frozenset((
    "add", "add_any", "broadcast_in_dim", "concatenate", "convert_element_type", "copy", "cumsum", "dynamic_slice",
    "expand_dims", "gather", "neg", "pad", "reduce_sum", "reduce_window_sum", "reshape", "rev", "select_n", "slice",
    "split", "squeeze", "stack", "stop_gradient", "sub", "transpose",
))  # fmt: skip
_OTHERS = frozenset(("reduce_max", "reduce_min", "reduce_window_max")) | ELEMENTWISE - _LINEAR - _PRODUCTS


class _Degrees(Interpretation[Degree]):
    CONSTANT = Degree.NONE

    def results(self, eqn: JaxprEqn, operands: list[Degree]) -> list[Degree]:
        return [self._degree(eqn, operands)] * len(eqn.outvars)

    def _degree(self, eqn: JaxprEqn, operands: list[Degree]) -> Degree:
        name, highest = eqn.primitive.name, max(operands, default=Degree.NONE)
        if highest in (Degree.NONE, Degree.UNKNOWN):
            return highest
        if name in _PRODUCTS:
            return Degree(min(sum(operands), Degree.HIGHER))
        if name == "div" and operands[1] == Degree.NONE:
            return highest
        # integers and booleans computed from params: indices, choices
        if any(degree and not _is_real(atom) for atom, degree in zip(eqn.invars, operands, strict=True)):
            return Degree.HIGHER
        if name in _LINEAR and not _rounds(eqn):
            return highest
        return Degree.HIGHER if name in _OTHERS else Degree.UNKNOWN

    def join(self, chooser: Degree, values: Sequence[Degree]) -> Degree:
        return max(values) if chooser == Degree.NONE else max(chooser, Degree.HIGHER)

    def entry(self, value: Degree) -> Degree:
        return value

    def stack(self, value: Degree) -> Degree:
        return value


def _rounds(eqn: JaxprEqn) -> bool:
    """Whether it converts to a lower precision, which may be coarser than the tolerance of a trial."""
    before, after = array_type(eqn.invars[0]).dtype, array_type(eqn.outvars[0]).dtype
    return after.itemsize < before.itemsize


def _is_real(atom: Var | Literal) -> bool:
    return jnp.issubdtype(array_type(atom).dtype, jnp.floating)
