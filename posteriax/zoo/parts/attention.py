"""Self-attention with several heads (Vaswani et al. 2017)."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from posteriax.zoo.parts.dense import Dense, Initializer, he_normal


class SelfAttention(eqx.Module):
    """Every position of (positions, features) takes a mean of all values, weighted by its query.

        q, k, v = x W + b,    softmax(q k' / sqrt(features / heads)) v,    and a dense layer over all heads

    >>> SelfAttention(6, heads=2, key=jax.random.key(0))(jnp.ones((5, 6))).shape
    (5, 6)
    """

    qkv: Dense
    out: Dense
    heads: int = eqx.field(static=True)

    def __init__(self, features: int, heads: int, *, key: Any, init: Initializer = he_normal):
        if features % heads:
            raise ValueError(f"features must be a multiple of heads, got {features} features and {heads} heads")
        of_qkv, of_out = jax.random.split(key)
        self.qkv = Dense(features, 3 * features, init=init, key=of_qkv)
        self.out = Dense(features, features, init=init, key=of_out)
        self.heads = heads

    def __call__(self, x: jax.Array) -> jax.Array:
        positions, features = x.shape
        q, k, v = jnp.moveaxis(self.qkv(x).reshape(positions, 3, self.heads, -1), 1, 0)
        scores = jnp.einsum("qhf,khf->hqk", q, k) / (features // self.heads) ** 0.5
        mixed = jnp.einsum("hqk,khf->qhf", jax.nn.softmax(scores), v)
        return self.out(mixed.reshape(positions, features))
