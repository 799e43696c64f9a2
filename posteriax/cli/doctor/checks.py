"""The doctor's checks: small programs, their exact results in float64 NumPy, and bounds on rounding errors.

A sum of n products in float32, in any order, is within n u sum |a b| of the exact one, with u = 2^-24 (Higham, Accuracy
and Stability of Numerical Algorithms, 2002, section 3.1). Such bounds hold for every correct compiler, whatever it
fuses or reorders, and a wrong number usually exceeds them by orders of magnitude.

``python -m posteriax.cli.doctor.checks`` runs all of them and prints one line of JSON for each: in a separate process,
since a wrong compiler may crash it. Importing posteriax sets its guard before JAX's backend starts, unless the
environment says otherwise.
"""

import json
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

U = 2.0**-24  # the unit roundoff of float32
Array = TypeVar("Array", jax.Array, np.ndarray)
SLACK = 8  # for operations not counted one by one, and elementary functions, which are accurate to a few u


class Truth(NamedTuple):
    """The float64 result, and how far from it a correct float32 result can be, per entry; 0 if it must be exact."""

    value: np.ndarray
    bound: np.ndarray | float


class Check(NamedTuple):
    """A small program and its exact result.

    Args:
        name: as the report shows it.
        program: in JAX, a function of arrays.
        truth: in NumPy, a function of the same arrays.
        inputs: makes the arrays.
    """

    name: str
    program: Callable[..., jax.Array]
    truth: Callable[..., Truth]
    inputs: Callable[[np.random.Generator], tuple[np.ndarray, ...]]


def normals(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator], tuple[np.ndarray, ...]]:
    """Inputs of these shapes, N(0, 1)."""
    return lambda rng: tuple(rng.normal(size=shape).astype(np.float32) for shape in shapes)


def sums_of_products(exact: Callable[..., np.ndarray], terms: int) -> Callable[..., Truth]:
    """The truth of a program that is linear in each of its inputs and sums so many products of them.

    >>> sums_of_products(np.dot, 2)(np.float32([1, 1]), np.float32([1, -1])).value.item()
    0.0
    """

    def truth(*inputs: np.ndarray) -> Truth:
        wide = [array.astype(np.float64) for array in inputs]
        return Truth(exact(*wide), terms * U * exact(*map(np.abs, wide)))

    return truth


def excess(result: ArrayLike, truth: Truth) -> float:
    """The largest error over its bound: at most 1 if correct, infinite for what should be exact and is not.

    >>> excess(np.float32([1.0, 2.0]), Truth(np.array([1.0, 2.5]), 0.25))
    2.0
    """
    result = np.asarray(result)
    if result.shape != truth.value.shape:
        return float("inf")
    error = np.abs(result.astype(np.float64) - truth.value)
    bound = np.broadcast_to(truth.bound, error.shape)
    ratio = np.divide(error, bound, out=np.where(error == 0, 0.0, np.inf), where=bound > 0)
    return float(np.where(np.isnan(ratio), np.inf, ratio).max())  # a NaN is an infinite error


# --- products, sums, sorting, scans and random bits ---

LENGTH = 50  # of the scan


def quadratics(x: jax.Array) -> jax.Array:
    """|I x|^2 of every row: the sum that was wrong in jax-ml/jax issue 39103."""
    return jax.vmap(lambda row: jnp.sum((jnp.eye(3) @ row) ** 2))(x)


def constant_product(x: jax.Array, scale: jax.Array) -> jax.Array:
    """A product with a constant vector, as gradients of sums have it."""
    return x @ jnp.broadcast_to(scale, x.shape[1:])


def recurrence(x: jax.Array, weights: jax.Array) -> jax.Array:
    """h <- 0.9 h + x_t W."""

    def step(h: jax.Array, x_t: jax.Array) -> tuple[jax.Array, jax.Array]:
        h = 0.9 * h + x_t @ weights
        return h, h

    return jax.lax.scan(step, jnp.zeros((x.shape[1], weights.shape[1])), x)[1]


def bits(seed: jax.Array) -> jax.Array:
    """Two rows: words of JAX's default generator for the key (0, seed)."""
    with jax.threefry_partitionable(True):
        return jax.random.bits(jax.random.wrap_key_data(jnp.stack([jnp.zeros_like(seed[0]), seed[0]])), (40,))


def _softmax(x: np.ndarray) -> Truth:
    shifted = x.astype(np.float64) - x.max(-1, keepdims=True)
    value = np.exp(shifted) / np.exp(shifted).sum(-1, keepdims=True)
    # rounding an exponent by u |x| changes its exponential by the same relative amount
    return Truth(value, (x.shape[-1] + SLACK + np.abs(shifted).max()) * U * value)


def _logsumexp(x: np.ndarray) -> Truth:
    top = x.max(-1).astype(np.float64)
    rest = np.log(np.exp(x.astype(np.float64) - top[..., None]).sum(-1))
    parts = x.shape[-1] + SLACK + np.abs(x - top[..., None]).max()
    return Truth(top + rest, U * (parts + SLACK * (np.abs(top) + rest)))


def _layer_norm(x: np.ndarray) -> Truth:
    x = x.astype(np.float64)
    n, centred = x.shape[-1], x - x.mean(-1, keepdims=True)
    scale = centred.std(-1, keepdims=True)
    magnitude = np.abs(x).max(-1, keepdims=True) / scale
    return Truth(centred / scale, 2 * (n + SLACK) * U * magnitude * (1 + np.abs(centred) / scale))


def layer_norm(x: jax.Array) -> jax.Array:
    return (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)


def recurrence64(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    h = np.zeros((x.shape[1], weights.shape[1]))
    return np.stack([h := 0.9 * h + x_t @ weights for x_t in x])


def _bits(seed: np.ndarray) -> Truth:
    """Each word is the xor of the two that Threefry returns for its index."""
    index = np.arange(40, dtype=np.uint32)
    first, second = threefry((0, int(seed[0])), np.zeros_like(index), index)
    return Truth((first ^ second).astype(np.float64), 0.0)


def threefry(key: tuple[int, int], first: ArrayLike, second: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Threefry-2x32 with twenty rounds (Salmon et al. 2011), in NumPy.

    >>> [hex(int(word)) for word in threefry((0, 0), 0, 0)]  # from the authors' known answers
    ['0x6b200159', '0x99ba4efe']
    """
    x, y = np.asarray(first, np.uint64), np.asarray(second, np.uint64)
    words, low = (key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDA), np.uint64(0xFFFFFFFF)
    x, y = (x + np.uint64(words[0])) & low, (y + np.uint64(words[1])) & low
    for turn in range(5):
        for rotation in ((13, 15, 26, 6), (17, 29, 16, 24))[turn % 2]:
            x = (x + y) & low
            y = (((y << np.uint64(rotation)) | (y >> np.uint64(32 - rotation))) & low) ^ x
        x = (x + np.uint64(words[(turn + 1) % 3])) & low
        y = (y + np.uint64(words[(turn + 2) % 3]) + np.uint64(turn + 1)) & low
    return x.astype(np.uint32), y.astype(np.uint32)


def product_check(
    name: str, program: Callable[..., jax.Array], exact: Callable[..., np.ndarray], terms: int, *shapes: tuple[int, ...]
) -> Check:
    """A check of a program that sums so many products."""
    return Check(name, program, sums_of_products(exact, terms), normals(*shapes))


def _sum_of_products(a: Array, b: Array) -> Array:
    return (a * b).sum(axis=3)


REDUCTION_CHECKS = (
    product_check("matrix product", jnp.matmul, np.matmul, 129 + SLACK, (37, 129), (129, 53)),
    product_check("batch of small products", jnp.matmul, np.matmul, 7 + SLACK, (33, 5, 7), (33, 7, 3)),
    product_check("sum", lambda x: x.sum(0), lambda x: x.sum(0), 1001, (1001, 33)),
    product_check("sums of squares of 32,769 rows", quadratics, lambda x: np.square(x).sum(1), 3 + SLACK, (32_769, 3)),
    product_check(
        "product with a constant vector", constant_product, lambda x, s: (x * s).sum(1), 129 + SLACK, (67, 129), ()
    ),
    product_check("cumulative sum", lambda x: jnp.cumsum(x, axis=1), lambda x: x.cumsum(1), 301, (5, 301)),
    Check("softmax", jax.nn.softmax, _softmax, normals((65, 33))),
    Check("logsumexp", lambda x: jax.nn.logsumexp(x, axis=-1), _logsumexp, normals((65, 33))),
    Check("normalisation", layer_norm, _layer_norm, normals((65, 33))),
    Check("sorting", lambda x: jnp.sort(x, axis=1), lambda x: Truth(np.sort(x, axis=1), 0.0), normals((9, 257))),
    Check(
        "ranks",
        lambda x: jnp.argsort(x, axis=1),
        lambda x: Truth(np.argsort(x, axis=1, kind="stable"), 0.0),
        normals((9, 257)),
    ),
    product_check("scan", recurrence, recurrence64, (17 + SLACK) * LENGTH, (LENGTH, 9, 17), (17, 13)),
    Check("random bits", bits, _bits, lambda rng: (rng.integers(0, 2**31, 1).astype(np.uint32),)),
)


# --- convolutions and pooling, whose combinations some releases of XLA compute wrongly ---

WINDOW = (1, 2, 2, 1)


def conv(x: jax.Array, kernel: jax.Array) -> jax.Array:
    return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def average_pool(x: jax.Array) -> jax.Array:
    return lax.reduce_window(x, 0.0, lax.add, WINDOW, WINDOW, "VALID") / 4


def max_pool(x: jax.Array) -> jax.Array:
    return lax.reduce_window(x, -jnp.inf, lax.max, WINDOW, WINDOW, "VALID")


def local_layer(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """Two convolutions of one input, relu and average pooling: a layer with the `local` estimator, its noise fixed."""
    scale = jnp.sqrt(conv(x * x, jnp.full_like(kernel, 1e-4)) + 1e-16)
    return average_pool(jax.nn.relu(conv(x, kernel) + scale))


def neighbours64(x: np.ndarray) -> np.ndarray:
    """The 3 x 3 neighbours of every pixel in the last two axes, 0 beyond the border."""
    padded = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    return np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))


def conv64(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """The convolution by its definition: a product for every position in the window."""
    return np.tensordot(neighbours64(x), kernel.astype(np.float64), ((4, 5, 3), (0, 1, 2)))


def input_gradient64(slope: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """The convolution's transpose: the convolution with the kernel rotated by 180 degrees."""
    return conv64(slope, kernel[::-1, ::-1].transpose(0, 1, 3, 2))


def kernel_gradient64(x: np.ndarray, slope: np.ndarray) -> np.ndarray:
    return np.einsum("nrcxab,nrco->abxo", neighbours64(x), slope.astype(np.float64))


def windows64(x: np.ndarray) -> np.ndarray:
    """The entries of every 2 x 2 window in the last axis."""
    return np.stack([x[:, a::2, b::2].astype(np.float64) for a in (0, 1) for b in (0, 1)], axis=-1)


def from_windows64(windows: np.ndarray) -> np.ndarray:
    """The inverse of `windows64`."""
    n, rows, columns, channels, _ = windows.shape
    cut = windows.reshape(n, rows, columns, channels, 2, 2).transpose(0, 1, 4, 2, 5, 3)
    return cut.reshape(n, 2 * rows, 2 * columns, channels)


def _spread(x: np.ndarray, slope: np.ndarray) -> np.ndarray:
    return from_windows64(np.repeat(slope[..., None] / 4, 4, axis=-1))


def _max(x: np.ndarray) -> Truth:
    return Truth(windows64(x).max(-1), 0.0)


def _max_gradient(x: np.ndarray, slope: np.ndarray) -> Truth:
    windows = windows64(x)
    return Truth(from_windows64((windows == windows.max(-1, keepdims=True)) * slope[..., None].astype(np.float64)), 0.0)


def _local_layer(x: np.ndarray, kernel: np.ndarray) -> Truth:
    small = np.full(kernel.shape, np.float32(1e-4))
    scale = np.sqrt(conv64(x.astype(np.float64) ** 2, small) + 1e-16)
    terms = np.prod(kernel.shape[:-1]) + SLACK
    # rounding of all steps, relative to the sum of magnitudes: the square root halves it, relu and pooling keep it
    bound = 2 * terms * U * (conv64(np.abs(x), np.abs(kernel)) + scale)
    return Truth(windows64(np.maximum(conv64(x, kernel) + scale, 0)).mean(-1), windows64(bound).mean(-1))


def gradient(function: Callable[..., jax.Array], argument: int = 0) -> Callable[..., jax.Array]:
    """The gradient with respect to one argument; its last input is the slope of the result."""
    return lambda *inputs: jax.vjp(function, *inputs[:-1])[1](inputs[-1])[argument]


IMAGES, KERNEL, SLOPE, POOLED = (3, 8, 8, 5), (3, 3, 5, 7), (3, 8, 8, 7), (3, 4, 4, 5)
FORWARD = sums_of_products(conv64, 9 * 5 + SLACK)
IN_INPUT = sums_of_products(lambda x, kernel, slope: input_gradient64(slope, kernel), 9 * 7 + SLACK)
IN_KERNEL = sums_of_products(lambda x, kernel, slope: kernel_gradient64(x, slope), 3 * 8 * 8 + SLACK)
AVERAGE = sums_of_products(lambda x: windows64(x).mean(-1), SLACK)
CONVOLUTION_CHECKS = (
    Check("convolution", conv, FORWARD, normals(IMAGES, KERNEL)),
    Check("convolution, gradient of the input", gradient(conv), IN_INPUT, normals(IMAGES, KERNEL, SLOPE)),
    Check("convolution, gradient of the kernel", gradient(conv, 1), IN_KERNEL, normals(IMAGES, KERNEL, SLOPE)),
    Check("average pooling", average_pool, AVERAGE, normals(IMAGES)),
    Check(
        "average pooling, gradient",
        gradient(average_pool),
        sums_of_products(_spread, SLACK),
        normals(IMAGES, POOLED),
    ),
    Check("max pooling", max_pool, _max, normals(IMAGES)),
    Check("max pooling, gradient", gradient(max_pool), _max_gradient, normals(IMAGES, POOLED)),
    Check("two convolutions, relu, pooling", local_layer, _local_layer, normals((3, 6, 6, 32), (3, 3, 32, 64))),
    Check("the same, fewer channels", local_layer, _local_layer, normals((3, 8, 8, 8), (3, 3, 8, 16))),
)

# jax-ml/jax issues 39257 and 40412: this one ended the process. It comes last, so that all others have reported
AXES = (3, 1, 2, 2, 8, 8, 8)
LAST = product_check("sum of products of seven axes", _sum_of_products, _sum_of_products, SLACK, AXES, AXES)
CHECKS = (*REDUCTION_CHECKS, *CONVOLUTION_CHECKS, LAST)


# --- running them ---

REPEATS = 3  # with different inputs: errors may vary from run to run


def largest_excess(check: Check, repeats: int = REPEATS) -> float:
    """The largest error of a check's program over its bound."""
    program = jax.jit(check.program)
    rng = np.random.default_rng(0)
    inputs = [check.inputs(rng) for _ in range(repeats)]
    return max(excess(program(*arrays), check.truth(*arrays)) for arrays in inputs)


def main() -> None:
    jax.config.update("jax_enable_compilation_cache", False)  # examine what this installation compiles
    with jax.default_matmul_precision("float32"):  # accelerators use fewer bits by default
        for check in CHECKS:
            print(json.dumps({"starts": check.name}), flush=True)
            print(json.dumps({"name": check.name, "excess": largest_excess(check)}), flush=True)


if __name__ == "__main__":
    main()
