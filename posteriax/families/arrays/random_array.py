"""What all random arrays share, and how a contraction looks from the array's side."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import quax

KEYS_PER_LEAF = 3  # all keys of a step come from one split: each hash of its own is compiled code of its own


@dataclass(frozen=True)
class Contraction:
    """A product or convolution of data x with an array w of the leaf's shape.

    Args:
        apply: ``apply(x, w)``, linear in both. w may have other lengths along its output axes.
        x: the data.
        inputs: for each axis of w that is summed over, the axis of x that it meets.
        outputs: for each axis of w that is left over, the axis of the result where it ends up.
        examples: the axis of examples, in x and in the result; None where it is not known.
        groups: of a grouped convolution; x has so many times the channels that w has.
    """

    apply: Callable[[Any, Any], Any]
    x: Any
    inputs: Mapping[int, int]
    outputs: Mapping[int, int]
    examples: tuple[int, int] | None
    groups: int = 1


class RandomArray(quax.ArrayValue):
    """Behaves as one draw of a leaf. What a kind of array does not do better, it does by its draw."""

    def contract(self, contraction: Contraction) -> Any:
        """The array's product with data, `contraction.apply(x, draw)` or better."""
        return contraction.apply(contraction.x, self.materialise())

    def move(self, primitive: Any, params: dict[str, Any]) -> Any:
        """The array after an operation that only moves its entries about."""
        return primitive.bind(self.materialise(), **params)

    def broadcast(self, primitive: Any, params: dict[str, Any]) -> Any:
        return primitive.bind(self.materialise(), **params)

    def look_up(self, primitive: Any, indices: Any, params: dict[str, Any]) -> Any:
        """Rows of the array, as an embedding takes them."""
        return primitive.bind(self.materialise(), indices, **params)

    def add_to(self, x: Any) -> Any:
        return jax.numpy.add(x, self.materialise())
