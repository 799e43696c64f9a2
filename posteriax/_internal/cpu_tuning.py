"""What posteriax does only because of how XLA compiles for CPUs. None of it reaches a program for an accelerator.

Each item has a switch, ``POSTERIAX_WITHOUT=name,name`` in the environment, and a figure that justifies it: how many
times as long it takes without, on two cores with jaxlib 0.10.1, median and middle 80 %. ``python -m benchmarks tuning``
measures them again; what no longer pays should go. (Tried, and gone because no gain could be measured: small leaves
packed into one vector for the optimiser, 1.03 (0.96 to 1.08), and compiling in a thread, 1.04 (0.92 to 1.10).)

    noise-once      1.06 (1.01 to 1.09)   a mean-field step of the MLP 784-400-400-10
    unrolled-bits   1.07 (1.02 to 1.10)   the same
    image-operations  42 to 110           the gradient of a 3 x 3 kernel, inside a loop (docs/decisions, convolutions)
    narrow-products 1.46 (1.31 to 1.71)   a leapfrog of HMC on a last layer: 500 x 10 weights, 10,000 examples
    llvm-levels     1.10 (1.00 to 1.19)   a new process up to the README's first step; of steps 0.99 (0.95 to 1.05)
"""

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive, primitives

from posteriax._internal.cpu_operations import faster_convolution, faster_max_pool_gradient, faster_narrow_product
from posteriax._internal.layouts import divided
from posteriax._internal.rewriting import Rule, rewritten

SWITCH = "POSTERIAX_WITHOUT"
NOISE_ONCE = "noise-once"
UNROLLED_BITS = "unrolled-bits"
LLVM_LEVELS = "llvm-levels"
IMAGES = "image-operations"
NARROW = "narrow-products"
NAMES = (NOISE_ONCE, UNROLLED_BITS, LLVM_LEVELS, IMAGES, NARROW)

_platform: ContextVar[str | None] = ContextVar("platform", default=None)


def default_platform() -> str:
    """The platform of JAX's default device: "cpu", "gpu" or "tpu"."""
    default = jax.config.jax_default_device  # type: ignore[attr-defined]
    return getattr(default, "platform", default) or jax.default_backend()  # a device, its platform's name, or None


@contextlib.contextmanager
def tracing_for(platform: str | None) -> Iterator[None]:
    """What is traced inside is for devices of this platform ("cpu", "gpu", "tpu")."""
    token = _platform.set(platform)
    try:
        yield
    finally:
        _platform.reset(token)


def in_use(name: str) -> bool:
    """Whether an item applies: the program is for a CPU, and the switch does not name it.

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
    """`fun`, with convolutions, pooling gradients and narrow products in forms that run fast on a CPU.

    Args:
        fun: a function of arrays; call the result inside `jit`.
        platform: of the devices that it will run on; by default JAX's default device.

    >>> conv = lambda x, w: jax.lax.conv_general_dilated(x, w, (1,), "SAME", dimension_numbers=("NCW", "OIW", "NCW"))
    >>> with_fast_operations(conv)(jnp.ones((1, 2, 5)), jnp.ones((3, 2, 3)))[0, 0].tolist()
    [4.0, 6.0, 6.0, 6.0, 4.0]
    """
    rules: dict[Primitive, Rule] = {}
    with tracing_for(platform):
        if in_use(IMAGES):
            rules[primitives.conv_general_dilated_p] = faster_convolution
            rules[primitives.select_and_scatter_add_p] = faster_max_pool_gradient
        if in_use(NARROW):
            rules[primitives.dot_general_p] = faster_narrow_product
    return rewritten(fun, rules) if rules else fun


def computed_once(make: Callable[[], jax.Array], key: jax.Array, unless_nan: jax.Array) -> jax.Array:
    """`make()`, noise of a key; on a CPU, computed once although several operations read it.

    A step reads its noise twice: in the draw and in the gradient of the scale. XLA would fuse the inverse error
    function into each reader, including Adam's three updates, and compute it four times. It does not fuse across a
    conditional. This one gives zeros if the first entry of `unless_nan` is not finite: that is what the noise will be
    added to or multiplied with, so the result is then not finite either way, which the compiler cannot know.

    In a program that the compiler divides, devices would have to tell each other that entry. There the condition is
    that the product of two consecutive numbers, one of them from the key, is even: true, which it does not know either.
    """
    if not in_use(NOISE_ONCE):
        return make()
    if divided():
        word = jax.random.key_data(key).reshape(-1)[0]
        condition = (word * (word + 1)) & 1 == 0
    else:
        condition = jnp.isfinite(unless_nan.reshape(-1)[0])
    spec = jax.eval_shape(make)
    return jax.lax.cond(condition, make, lambda: jnp.zeros(spec.shape, spec.dtype))


LARGE = 2**14  # entries of an array whose random bits are worth a kernel of their own
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def is_large(key: jax.Array, shape: Sequence[int]) -> bool:
    """Whether `random_bits` may do better than JAX, for a key of JAX's default generator."""
    return LARGE <= math.prod(shape) < 2**32 and jax.random.key_impl(key) == "threefry2x32"


def random_bits(key: jax.Array, shape: Sequence[int]) -> jax.Array:
    """`jax.random.bits(key, shape)`, to the bit; large arrays in one kernel on a CPU.

    JAX compiles its generator, Threefry, as a loop of five rounds there, each of which reads and writes all words:
    quick to compile, but slower for large arrays than all twenty rounds in one kernel.
    """
    if is_large(key, shape) and in_use(UNROLLED_BITS):
        return unrolled_bits(key, shape)
    return jax.random.bits(key, shape, jnp.uint32)


def unrolled_bits(key: jax.Array, shape: Sequence[int]) -> jax.Array:
    """`jax.random.bits(key, shape)`, to the bit, as one kernel: Threefry-2x32 of every entry's index.

    >>> bool((unrolled_bits(jax.random.key(0), (5,)) == jax.random.bits(jax.random.key(0), (5,))).all())
    True
    """
    first, second = jax.random.key_data(key)
    schedule = (first, second, first ^ second ^ jnp.uint32(0x1BD11BDA))
    # the counter has 64 bits; arrays of this size only need the lower half
    index = jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(shape)
    a, b = jnp.broadcast_to(first, index.shape), index + second
    for turn in range(5):
        for distance in _ROTATIONS[turn % 2]:
            a = a + b
            b = a ^ ((b << distance) | (b >> (32 - distance)))
        a = a + schedule[(turn + 1) % 3]
        b = b + schedule[(turn + 2) % 3] + jnp.uint32(turn + 1)
    return a ^ b
