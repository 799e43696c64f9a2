"""Checks of products, sums, sorting, scans and random bits."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteriax.cli.doctor.checks import SLACK, Check, Truth, U, normals, sums_of_products

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


def threefry(key: tuple[int, int], first: Any, second: Any) -> tuple[np.ndarray, np.ndarray]:
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


def of_products(
    name: str, program: Callable[..., Any], exact: Callable[..., np.ndarray], terms: int, *shapes: tuple[int, ...]
) -> Check:
    """A check of a program that sums so many products."""
    return Check(name, program, sums_of_products(exact, terms), normals(*shapes))


def _sum_of_products(a: Any, b: Any) -> Any:
    return (a * b).sum(axis=3)


CHECKS = (
    of_products("matrix product", jnp.matmul, np.matmul, 129 + SLACK, (37, 129), (129, 53)),
    of_products("batch of small products", jnp.matmul, np.matmul, 7 + SLACK, (33, 5, 7), (33, 7, 3)),
    of_products("sum", lambda x: x.sum(0), lambda x: x.sum(0), 1001, (1001, 33)),
    of_products("sums of squares of 32,769 rows", quadratics, lambda x: np.square(x).sum(1), 3 + SLACK, (32_769, 3)),
    of_products(
        "product with a constant vector", constant_product, lambda x, s: (x * s).sum(1), 129 + SLACK, (67, 129), ()
    ),
    of_products("cumulative sum", lambda x: jnp.cumsum(x, axis=1), lambda x: x.cumsum(1), 301, (5, 301)),
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
    of_products("scan", recurrence, recurrence64, (17 + SLACK) * LENGTH, (LENGTH, 9, 17), (17, 13)),
    Check("random bits", bits, _bits, lambda rng: (rng.integers(0, 2**31, 1).astype(np.uint32),)),
)

# jax-ml/jax issues 39257 and 40412: this one ended the process. It comes last, so that all others have reported
AXES = (3, 1, 2, 2, 8, 8, 8)
LAST = of_products("sum of products of seven axes", _sum_of_products, _sum_of_products, SLACK, AXES, AXES)
