"""Whether a network ends in a softmax, which a likelihood of logits would apply a second time."""

from typing import TYPE_CHECKING

import jax
import numpy as np

from posteriax.networks.tracing.program import Inputs, TracedProgram, spec_of_example

if TYPE_CHECKING:
    from posteriax.networks.network import Network

ROWS = 64  # tried
# exp(f) / sum(exp(f)), exp(log_softmax(f)), or either as a function with a gradient of its own
_LAST_STEPS = {"div", "exp", "exp2", "mul", "custom_jvp_call", "custom_vjp_call"}
_RESHAPING = {"reshape", "convert_element_type", "transpose", "squeeze", "copy", "copy_p"}


def outputs_are_probabilities(net: "Network", x: Inputs) -> bool:
    """Whether the last axis of the outputs is at least 0 and sums to 1 for every one of the first examples.

    The network is run only if its last operation may be that of a softmax.

    >>> import posteriax as px
    >>> with_softmax = px.network((lambda w, x: jax.nn.softmax(x @ w), np.ones((3, 2), np.float32)))
    >>> outputs_are_probabilities(with_softmax, np.ones((5, 3), np.float32))
    True
    """
    try:
        program = net.programs.for_any_size(spec_of_example(x))
    except Exception:  # it may accept no other number of examples
        return False
    if _last_step(program) not in _LAST_STEPS:
        return False
    outputs = np.asarray(jax.jit(net.apply)(net.params, jax.tree.map(lambda a: np.asarray(a[:ROWS]), x)), np.float64)
    return bool((outputs >= 0).all() and (np.abs(outputs.sum(axis=-1) - 1) < 1e-2).all())


def _last_step(program: TracedProgram) -> str:
    """The operation that computes the outputs, apart from changes of their shape or dtype; empty if there is none."""
    by_output = {slot: step for step in program.steps for slot in step.outputs}
    step = by_output.get(program.outputs[0])
    while step is not None and step.name in _RESHAPING and step.inputs:
        step = by_output.get(step.inputs[0])
    return "" if step is None else step.name
