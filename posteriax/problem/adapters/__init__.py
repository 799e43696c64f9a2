"""Adapters: networks of other libraries as pure functions of their params. One file per library.

An adapter takes an object and says None if it is not one of its library's. A library that was never imported has made
no network, so that none is imported here.
"""

from collections.abc import Mapping
from typing import Any

from posteriax.problem.adapters import equinox, functions, haiku, keras, linen, nnx
from posteriax.problem.adapters.adapted import Adapted as Adapted

KINDS = (
    "an Equinox module or its (module, state) pair, a Flax NNX module, a Linen (module, variables) pair, a Haiku "
    "(transformed, params) or (transformed, params, state), a Keras model on JAX, or a (function, params) pair"
)


def adapt(obj: Any, call: Mapping[str, Any]) -> Adapted:
    """The network `obj`, with keyword arguments that every call of it gets."""
    for library in (equinox, nnx, linen, haiku, keras, functions):
        adapted = library.adapt(obj, call)
        if adapted is not None:
            return adapted
    raise TypeError(f"network must be {KINDS}, got {type(obj).__name__}")
