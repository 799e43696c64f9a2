"""Adapters: networks of other libraries as pure functions of their params. One file per library.

An adapter has two names: `ACCEPTS`, which says in words what it takes, and ``adapt(obj, call)``, which returns None for
an object of another library. A library that was never imported cannot have made a network, so adapters look for theirs
in `sys.modules` and import nothing.
"""

from collections.abc import Mapping
from typing import Any

from posteriax.networks.adapters import equinox, functions, haiku, keras, linen, nnx, torch
from posteriax.networks.adapters.adapter import Adapted as Adapted

# functions last: a (transformed, params) pair of another library is also a pair with something callable in front
LIBRARIES: tuple[Any, ...] = (equinox, nnx, linen, haiku, keras, torch, functions)


def adapt(obj: Any, call: Mapping[str, Any]) -> Adapted:
    """The network `obj`, called with these keyword arguments every time."""
    for library in LIBRARIES:
        adapted = library.adapt(obj, call)
        if adapted is not None:
            return adapted
    *most, last = (library.ACCEPTS for library in LIBRARIES)
    raise TypeError(f"network must be {', '.join(most)}, or {last}; got {type(obj).__name__}")
