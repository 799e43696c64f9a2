"""Pickle for objects that hold JAX's own functions, such as the activation of a network.

The standard pickler takes a jitted function apart and finds that what is inside is not what its name leads to. Such a
function is stored by that name instead.
"""

import importlib
import io
import pickle
from typing import Any


def dumps(value: Any) -> bytes:
    """The value as bytes that ``pickle.loads`` reads.

    >>> import jax
    >>> pickle.loads(dumps(jax.nn.relu)) is jax.nn.relu
    True
    """
    file = io.BytesIO()
    _Pickler(file).dump(value)
    return file.getvalue()


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
        if isinstance(module, str) and isinstance(name, str) and not isinstance(value, type):
            if module.split(".")[0] == "jax" and _find(module, name) is value:
                return _find, (module, name)
        return NotImplemented


def _find(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name, None)
