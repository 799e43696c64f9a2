"""Bayesian neural networks for JAX: one network, every posterior, and a measure of how far each is from the truth.

The names below are listed in `__init__.pyi`, and each is loaded when it is first used: `import posteriax` by itself
loads neither JAX nor anything else that takes time.
"""

import lazy_loader as _lazy

from posteriax.__about__ import __version__ as __version__
from posteriax._internal.jax_release import check_jax as _check_jax

_check_jax()  # before anything imports JAX

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
