"""Pickle for objects that hold functions, such as a network with its activation.

The standard pickler fails for a jitted function of JAX: it unwraps the function, and what is inside is not the object
of that name. Here such a function is stored by its name. Lambdas (Equinox's MLP has one) are left to cloudpickle, which
is in the extra "sklearn".
"""

import importlib
import io
import pickle
from typing import Any


def dumps(value: object) -> bytes:
    """The value as bytes that ``pickle.loads`` reads.

    >>> import jax
    >>> pickle.loads(dumps(jax.nn.relu)) is jax.nn.relu
    True
    """
    base = _base()

    class Pickler(base):  # type: ignore[valid-type, misc]
        def reducer_override(self, value: object) -> Any:
            return _by_name(value) or (NotImplemented if base is pickle.Pickler else super().reducer_override(value))

    file = io.BytesIO()
    Pickler(file).dump(value)
    return file.getvalue()


def _base() -> type[pickle.Pickler]:
    try:
        import cloudpickle
    except ImportError:
        return pickle.Pickler
    return cloudpickle.Pickler


def _by_name(value: object) -> tuple[Any, ...] | None:
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or isinstance(value, type):
        return None
    known = module.split(".")[0] == "jax" and _find(module, name) is value
    return (_find, (module, name)) if known else None


def _find(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name, None)
