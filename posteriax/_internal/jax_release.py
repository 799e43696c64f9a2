"""Which releases of JAX posteriax works with, and what it switches off in those that compute wrongly.

Since jaxlib 0.10.2, parts of CPU programs run in a kernel library, YNNPACK (`__ynn_fusion` in compiled programs), and
some kernels silently return wrong numbers: pooled convolutions, products with small matrices, sums. See
docs/decisions/2026-11-16-compiler.md. A flag of XLA turns these kernels off for the whole process, but XLA reads its
flags only once, when JAX's backend starts. So `check_jax` runs when posteriax is imported, before JAX itself is: it
sets the flag and warns, or raises if the backend has started already.
"""

import importlib.metadata
import importlib.util
import os
import re
import sys
import warnings

OLDEST = (0, 9, 0)  # the oldest that BlackJAX 1.7 works with
NEWEST = (0, 10, 2)  # the newest that the tests have run with
# The first release found to compute wrongly, and the first after it that does not, if any. `posteriax doctor` checks.
WRONG_SINCE, RIGHT_AGAIN = (0, 10, 2), None
FUSION = "xla_cpu_experimental_ynn_fusion_type"
FLAG = f"--{FUSION}="
UNGUARDED = "POSTERIAX_UNGUARDED"  # an environment variable that leaves the fusion on


def check_jax() -> None:
    """Raise if JAX is too old, warn if it is newer than any tested, and switch off what is known to be wrong."""
    jax = installed_release("jax")
    if jax < OLDEST:
        raise ImportError(
            f"posteriax needs jax {_text(OLDEST)} or later, but {_text(jax)} is installed: pip install -U jax jaxlib"
        )
    if jax[:2] > NEWEST[:2]:
        warnings.warn(
            f"posteriax has been tested with jax up to {_text(NEWEST)}, and {_text(jax)} is installed. "
            "`posteriax doctor` checks whether it computes correctly.",
            stacklevel=3,
        )
    if is_guarded() and FUSION not in os.environ.get("XLA_FLAGS", ""):
        _switch_off_fusion()


def installed_release(package: str) -> tuple[int, ...]:
    """The release of an installed package, without importing it: (0, 10, 1), also for 0.10.1.dev2 and 0.10.1rc1.

    >>> installed_release("jax") >= OLDEST
    True
    """
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        raise ImportError(f"posteriax needs {package}: pip install {package}") from None
    return tuple(int(part) for part in re.match(r"[\d.]*\d", version).group().split("."))  # type: ignore[union-attr]


def computes_wrongly(jaxlib: tuple[int, ...]) -> bool:
    """Whether a release of jaxlib is known to return wrong numbers on CPUs.

    >>> computes_wrongly((0, 10, 1)), computes_wrongly((0, 10, 2)), computes_wrongly((0, 11, 0))
    (False, True, True)
    """
    return jaxlib >= WRONG_SINCE and (RIGHT_AGAIN is None or jaxlib < RIGHT_AGAIN)


def is_guarded() -> bool:
    """Whether posteriax turns the fusion off: the release is affected, and `POSTERIAX_UNGUARDED` is not set."""
    return computes_wrongly(installed_release("jaxlib")) and not os.environ.get(UNGUARDED)


def _switch_off_fusion() -> None:
    installed = installed_release("jaxlib")
    wrong = f"jaxlib {_text(min(installed, NEWEST))} returns wrong numbers on CPUs (jax-ml/jax issue 39103)"
    if installed > NEWEST:
        wrong += f", and whether {_text(installed)} does is not known"
    if accelerator_installed():
        # an accelerator's compiler is another build of XLA, and a flag that it does not know ends the process
        warnings.warn(
            f"{wrong}. Programs for accelerators are not affected; if you compute on the CPU, set XLA_FLAGS={FLAG}",
            stacklevel=4,
        )
    elif backend_started():
        raise ImportError(
            f"{wrong}. posteriax switches off what is wrong, but JAX's backend has started, and it reads its flags "
            f"only then: import posteriax before the first JAX computation, or set XLA_FLAGS={FLAG}"
        )
    else:
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAG}".lstrip()
        warnings.warn(
            f"{wrong}. posteriax has switched off what is wrong (its YNN fusion) for this process; "
            f"set XLA_FLAGS={FLAG} yourself to silence this.",
            stacklevel=4,
        )


def backend_started() -> bool:
    """Whether JAX's backend has started, after which XLA no longer reads flags."""
    if "jax" not in sys.modules:
        return False
    from jax._src import xla_bridge  # no public name; only used with releases that have it

    return xla_bridge.backends_are_initialized()


def accelerator_installed() -> bool:
    """Whether this process may compile for anything but a CPU. Neither imports JAX nor starts a backend."""
    platforms = os.environ.get("JAX_PLATFORMS")
    if "jax" in sys.modules:
        platforms = sys.modules["jax"].config.jax_platforms or platforms
    if platforms:
        return set(platforms.split(",")) != {"cpu"}
    plugins = importlib.metadata.entry_points(group="jax_plugins")
    return bool(plugins) or any(importlib.util.find_spec(name) for name in ("jax_plugins", "libtpu"))


def environment_without_guard() -> dict[str, str]:
    """The environment for a new process that leaves the fusion on."""
    flags = os.environ.get("XLA_FLAGS", "").replace(FLAG, "").strip()
    return {**os.environ, "XLA_FLAGS": flags, UNGUARDED: "1"}


def _text(release: tuple[int, ...]) -> str:
    return ".".join(map(str, release))
