"""Gradients of weights with few outputs, in the form that XLA computes fast on CPUs.

The gradient of a dense layer's weights is a product over all examples, (inputs, N) x (N, outputs). With few outputs, as
in the last layer of most networks, XLA takes 2 to 5 times as long for a result of shape (inputs, outputs) as for its
transpose, and turns a transposed product into the slow one by itself. A barrier keeps it from doing so.
"""

from collections.abc import Callable

import jax
from jax import lax
from jax.extend.core import JaxprEqn

NARROW = 16  # outputs; from 32 on there is no difference
LONG = 256  # examples; products over fewer take microseconds


def faster_narrow_product(eqn: JaxprEqn) -> Callable[..., jax.Array] | None:
    """What to call in place of a product of a narrow matrix and a wide one over the rows of the wide one, else None."""
    shapes = [v.aval.shape for v in eqn.invars]  # type: ignore[attr-defined]
    over, batch = eqn.params["dimension_numbers"]
    if any(len(shape) != 2 for shape in shapes) or any(map(len, batch)) or any(len(axes) != 1 for axes in over):
        return None
    widths = [shape[1 - axis] for shape, (axis,) in zip(shapes, over, strict=True)]
    narrow = int(widths[1] < widths[0])  # which operand
    wide = 1 - narrow
    if widths[narrow] > NARROW or widths[wide] < 2 * widths[narrow] or over[wide] != (0,) or shapes[wide][0] < LONG:
        return None
    params = eqn.params | {"dimension_numbers": ((over[narrow], over[wide]), batch)}

    def narrow_first(*operands: jax.Array) -> jax.Array:
        product = lax.optimization_barrier(lax.dot_general_p.bind(operands[narrow], operands[wide], **params))
        return product.T if narrow else product

    return narrow_first
