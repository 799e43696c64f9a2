"""What posteriax does only because of how XLA compiles for CPUs. None of it reaches a program for an accelerator.

Each item has a switch, ``POSTERIAX_WITHOUT=name,name`` in the environment, and a figure that justifies it: how many
times as long the program takes without it, on two cores with jaxlib 0.10.1, median and middle 80 %.
``python -m benchmarks tuning`` measures them again; remove what no longer pays. (Removed, because no gain could be
measured: packing small leaves into one vector for the optimiser, 1.03 (0.96 to 1.08), and compiling in a thread, 1.04
(0.92 to 1.10).)

    noise-once      1.06 (1.01 to 1.09)   a mean-field step of the MLP 784-400-400-10
    unrolled-bits   1.07 (1.02 to 1.10)   the same
    image-operations  42 to 110           the gradient of a 3 x 3 kernel, inside a loop (docs/decisions, convolutions)
    staged-sums     1.9 to 5              a sum over 128 images, CPU time (docs/decisions, convolutions on AVX2)
    narrow-products 1.46 (1.31 to 1.71)   a leapfrog of HMC on a last layer: 500 x 10 weights, 10,000 examples
    llvm-levels     1.10 (1.00 to 1.19)   a new process up to the README's first step; of steps 0.99 (0.95 to 1.05)
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import jax
from jax.extend.core import Primitive, primitives

from posteriax._internal.cpu_operations import (
    Rule,
    faster_convolution,
    faster_max_pool_gradient,
    faster_narrow_product,
    faster_sum,
    rewritten,
)

SWITCH = "POSTERIAX_WITHOUT"
NOISE_ONCE = "noise-once"
UNROLLED_BITS = "unrolled-bits"
LLVM_LEVELS = "llvm-levels"
MERGED_NOISE = "merged-noise"
IMAGES = "image-operations"
NARROW = "narrow-products"
SUMS = "staged-sums"
NAMES = (NOISE_ONCE, UNROLLED_BITS, MERGED_NOISE, LLVM_LEVELS, IMAGES, NARROW, SUMS)

_platform: ContextVar[str | None] = ContextVar("platform", default=None)


def default_platform() -> str:
    """The platform of JAX's default device: "cpu", "gpu" or "tpu"."""
    default = jax.config.jax_default_device  # type: ignore[attr-defined]
    return getattr(default, "platform", default) or jax.default_backend()  # a device, its platform's name, or None


@contextlib.contextmanager
def tracing_for(platform: str | None) -> Iterator[None]:
    """A context in which programs are traced for devices of this platform ("cpu", "gpu", "tpu")."""
    token = _platform.set(platform)
    try:
        yield
    finally:
        _platform.reset(token)


def in_use(name: str) -> bool:
    """Whether an item applies: the program is for a CPU, and the environment does not switch it off.

    >>> with tracing_for("gpu"):
    ...     in_use(UNROLLED_BITS)
    False
    """
    platform = _platform.get() or default_platform()
    return platform == "cpu" and name not in os.environ.get(SWITCH, "").split(",")


# LLVM's level 3 makes steps no faster, and delays the first one by half a second
OPTIMISED = {"xla_backend_optimization_level": 2, "xla_cpu_use_fusion_emitters": False}
_QUICK = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}


def options_for_steps(platform: str) -> dict[str, Any] | None:
    """Compiler options of a program that runs many times."""
    with tracing_for(platform):
        return OPTIMISED if in_use(LLVM_LEVELS) else None


def options_for_one_run(platform: str) -> dict[str, Any] | None:
    """Compiler options of a program that runs once and is not worth optimising."""
    with tracing_for(platform):
        return _QUICK if in_use(LLVM_LEVELS) else None


def with_fast_operations(fun: Callable[..., Any], platform: str | None = None) -> Callable[..., Any]:
    """`fun`, with convolutions, pooling gradients, long sums and narrow products in forms that run fast on a CPU.

    Equal draws of noise are made together, which takes less time to compile.

    Args:
        fun: a function of arrays; call the result inside `jit`.
        platform: of the devices that it will run on; by default that of JAX's default device.

    >>> conv = lambda x, w: jax.lax.conv_general_dilated(x, w, (1,), "SAME", dimension_numbers=("NCW", "OIW", "NCW"))
    >>> with_fast_operations(conv)(jax.numpy.ones((1, 2, 5)), jax.numpy.ones((3, 2, 3)))[0, 0].tolist()
    [4.0, 6.0, 6.0, 6.0, 4.0]
    """
    rules: dict[Primitive, Rule] = {}
    with tracing_for(platform):
        if in_use(IMAGES):
            rules[primitives.conv_general_dilated_p] = faster_convolution
            rules[primitives.select_and_scatter_add_p] = faster_max_pool_gradient
        if in_use(NARROW):
            rules[primitives.dot_general_p] = faster_narrow_product
        if in_use(SUMS):
            rules[primitives.reduce_sum_p] = faster_sum
        merge = in_use(MERGED_NOISE)
    return rewritten(fun, rules, merge=merge) if rules or merge else fun
