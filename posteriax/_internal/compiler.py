"""Workarounds and options for XLA, JAX's compiler.

Since jaxlib 0.10.2, parts of CPU programs run in a kernel library, YNNPACK (`__ynn_fusion` in compiled programs), and
some kernels silently return wrong numbers: pooled convolutions, products with small matrices, sums. See
docs/decisions/2026-11-16-compiler.md.

`pyproject.toml` excludes these releases. If one is installed anyway, `guard`, called when posteriax is imported, turns
the fusion off in two ways:

- by `XLA_FLAGS`, which XLA reads once, when JAX's backend starts. This covers every program of the process, including
  array operations outside `jit` and the user's own programs.
- by `jit`, which posteriax uses in place of `jax.jit`. This covers what posteriax compiles, even if the backend had
  started before posteriax was imported.

With all other releases `jit` is `jax.jit`, and nothing else happens.
"""

import functools
import importlib.metadata
import importlib.util
import os
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib.version

# The first affected release, and the first after them. 0.10.2 was found to be wrong here, 0.11.0 and 0.11.2 by others;
# those in between are assumed to be. `posteriax doctor` checks an installation.
WRONG_RELEASES = ((0, 10, 2), (0, 12, 0))
FUSION = "xla_cpu_experimental_ynn_fusion_type"
WITHOUT_FUSION = {FUSION: ""}
FLAG = f"--{FUSION}="
UNGUARDED = "POSTERIAX_UNGUARDED"  # an environment variable that turns the guard off


def computes_wrongly(version: tuple[int, ...]) -> bool:
    """Whether a release of jaxlib is known to return wrong numbers on CPUs.

    >>> computes_wrongly((0, 10, 1)), computes_wrongly((0, 10, 2)), computes_wrongly((0, 11, 0))
    (False, True, True)
    """
    return WRONG_RELEASES[0] <= version < WRONG_RELEASES[1]


def is_guarded() -> bool:
    """Whether posteriax turns the fusion off: the release is affected, and `POSTERIAX_UNGUARDED` is not set."""
    return computes_wrongly(jaxlib.version.__version_info__) and not os.environ.get(UNGUARDED)


def jit(fun: Callable[..., Any], **options: Any) -> jax.stages.Wrapped:
    """`jax.jit`, without the fusion that some releases of jaxlib get wrong on CPUs.

    Args:
        fun: the function to compile.
        **options: passed to `jax.jit`.

    >>> jit(lambda x: x + 1)(1.0)
    Array(2., dtype=float32, weak_type=True)
    """
    return GuardedJit(fun, options) if is_guarded() else jax.jit(fun, **options)


class GuardedJit:
    """A compiled function with the fusion turned off if it runs on a CPU as a program of its own.

    Other platforms may not know the option. A function inside a larger program must not set it either: options are for
    whole programs, and JAX rejects them.
    """

    def __init__(self, fun: Callable[..., Any], options: Mapping[str, Any]):
        functools.update_wrapper(self, fun)
        self._as_it_is = jax.jit(fun, **options)
        without = {**(options.get("compiler_options") or {}), **WITHOUT_FUSION}
        self._without_fusion = jax.jit(fun, **{**options, "compiler_options": without})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._choose(args, kwargs)(*args, **kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        return self._choose(args, kwargs).lower(*args, **kwargs)

    def trace(self, *args: Any, **kwargs: Any) -> Any:
        return self._choose(args, kwargs).trace(*args, **kwargs)

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        return self._as_it_is.eval_shape(*args, **kwargs)

    def _choose(self, args: Any, kwargs: Any) -> Any:
        inside_another = isinstance(jnp.zeros(()), jax.core.Tracer)
        if inside_another or platform_of((args, kwargs)) != "cpu":
            return self._as_it_is
        warn_once()
        return self._without_fusion


def platform_of(arguments: Any) -> str:
    """Where a program with these arguments runs: on the device of the first array, else on JAX's default device.

    >>> platform_of(jnp.zeros(3)) == jax.default_backend()
    True
    """
    for leaf in jax.tree.leaves(arguments):
        placed = isinstance(leaf, jax.Array | jax.ShapeDtypeStruct) and not isinstance(leaf, jax.core.Tracer)
        sharding = leaf.sharding if placed else None
        if sharding is not None:
            return next(iter(sharding.device_set)).platform
    default = jax.config.jax_default_device  # type: ignore[attr-defined]
    return getattr(default, "platform", default) or jax.default_backend()  # a device, its platform's name, or None


def guard() -> None:
    """With an affected release, turn the fusion off for this process if that is still possible, and warn.

    If there may be an accelerator, nothing is done yet: its compiler may not know the flag, and the warning only
    matters once a program is compiled for a CPU.
    """
    if not is_guarded() or accelerator_installed():
        return
    if not backend_started() and FUSION not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAG}".lstrip()
        _guarded["process"] = True
    warn_once()


def backend_started() -> bool:
    """Whether JAX's backend has started, after which XLA no longer reads flags."""
    from jax._src import xla_bridge  # no public name; only used with releases that have it

    return xla_bridge.backends_are_initialized()


def accelerator_installed() -> bool:
    """Whether this process may compile for anything but a CPU. Does not start a backend."""
    platforms = jax.config.jax_platforms  # type: ignore[attr-defined]
    if platforms:
        return set(platforms.split(",")) != {"cpu"}
    plugins = importlib.metadata.entry_points(group="jax_plugins")
    return bool(plugins) or any(importlib.util.find_spec(name) for name in ("jax_plugins", "libtpu"))


def environment_without_guard() -> dict[str, str]:
    """The environment for a new process without the guard."""
    flags = os.environ.get("XLA_FLAGS", "")
    if _guarded["process"]:
        flags = flags.replace(FLAG, "").strip()
    return {**os.environ, "XLA_FLAGS": flags, UNGUARDED: "1"}


_guarded = {
    "process": False,
    "warned": False,
}  # per process: whether XLA_FLAGS was set, and the warning given


def warn_once() -> None:
    if _guarded["warned"]:
        return
    _guarded["warned"] = True
    flags = os.environ.get("XLA_FLAGS", "").split()
    if FLAG in flags and not _guarded["process"]:
        return  # the user has turned it off already
    reach = (
        "for this whole process"
        if _guarded["process"]
        else "for the programs that it compiles. Your own programs, and operations outside jit, are not covered, since "
        f"JAX had started before posteriax was imported: set XLA_FLAGS={FLAG} in the environment"
    )
    warnings.warn(
        f"jaxlib {jaxlib.version.__version__} returns wrong numbers on CPUs (jax-ml/jax issue 39103). posteriax has "
        f"switched off what is wrong (its YNN fusion) {reach}. Better: pip install 'jax<0.10.2' 'jaxlib<0.10.2'. "
        "`posteriax doctor` checks an installation.",
        stacklevel=4,
    )
