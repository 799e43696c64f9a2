"""The base class of random arrays, and contractions as seen from the array."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import quax

KEYS_PER_LEAF = 3  # all keys of a step come from one split, because each separate hash is compiled separately


@dataclass(frozen=True)
class Contraction:
    """A product or convolution of data x with an array w of the leaf's shape.

    Args:
        apply: ``apply(x, w)``, linear in both. w may have other lengths along its output axes.
        x: the data.
        inputs: for each contracted axis of w, the matching axis of x.
        outputs: for each free axis of w, its axis in the result.
        examples: the axis of examples in x and in the result; None if unknown.
        groups: of a grouped convolution: x has this many times the channels of w.
    """

    apply: Callable[[Any, Any], Any]
    x: Any
    inputs: Mapping[int, int]
    outputs: Mapping[int, int]
    examples: tuple[int, int] | None
    groups: int = 1


class RandomArray(quax.ArrayValue):
    """Behaves as one draw of a leaf. Operations that a subclass does not improve on use the draw."""

    def contract(self, contraction: Contraction) -> Any:
        """The array's product with data, `contraction.apply(x, draw)` or better."""
        return contraction.apply(contraction.x, self.materialise())

    def move(self, primitive: Any, params: dict[str, Any]) -> Any:
        """The array after an operation that only rearranges its entries."""
        return primitive.bind(self.materialise(), **params)

    def broadcast(self, primitive: Any, params: dict[str, Any]) -> Any:
        return primitive.bind(self.materialise(), **params)

    def look_up(self, primitive: Any, indices: Any, params: dict[str, Any]) -> Any:
        """Rows of the array, as an embedding takes them."""
        return primitive.bind(self.materialise(), indices, **params)

    def add_to(self, x: Any) -> Any:
        return jax.numpy.add(x, self.materialise())
