"""Bayesian neural networks for JAX: one network, every posterior, and a measure of how far each is from the truth.

The names below are listed in `__init__.pyi`, and each is loaded when it is first used: `import posteriax` by itself
loads neither JAX nor anything else that takes time.
"""

import lazy_loader as _lazy

from posteriax.__about__ import __version__ as __version__
from posteriax._internal.jax_release import check_jax as _check_jax
from posteriax._internal.moved_names import moved_name as _moved_name

_check_jax()  # before anything imports JAX

_listed_name, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    return _moved_name(name) if name not in __all__ else _listed_name(name)
