"""Layers over sequences: long short-term memory and self-attention."""

import equinox as eqx
import jax
import jax.numpy as jnp

from posteriax.zoo.parts.dense import Dense, Initializer, glorot_uniform, he_normal

orthogonal = jax.nn.initializers.orthogonal()


class LSTM(eqx.Module):
    """The state after every element of a sequence, (time, inputs) to (time, units) (Hochreiter and Schmidhuber 1997).

        i, f, g, o = x W + h U + b
        c <- sigmoid(f) c + sigmoid(i) tanh(g),    h <- sigmoid(o) tanh(c)

    The products with the inputs are taken for all times at once, before the loop. By default initialised as in Keras:
    Glorot, orthogonal for the recurrent weights, and a bias of 1 for the forget gate f, so that it starts open.

    Args:
        inputs, units: features of an element of the sequence and of the state.
        init, recurrent_init: of W and of U.
        forget_offset: a constant added to f. With 1, as in Haiku, the gate starts open with a bias of 0, where a prior
            around 0 has its mode.

    >>> LSTM(3, 5, key=jax.random.key(0))(jnp.ones((7, 3))).shape
    (7, 5)
    """

    weight: jax.Array
    recurrent: jax.Array
    bias: jax.Array
    forget_offset: float = eqx.field(static=True)

    def __init__(
        self,
        inputs: int,
        units: int,
        *,
        key: jax.Array,
        init: Initializer = glorot_uniform,
        recurrent_init: Initializer = orthogonal,
        forget_offset: float = 0.0,
    ):
        input_key, state_key = jax.random.split(key)
        self.weight = init(input_key, (inputs, 4 * units), jnp.float32)
        self.recurrent = recurrent_init(state_key, (units, 4 * units), jnp.float32)
        self.bias = jnp.zeros(4 * units).at[units : 2 * units].set(1.0 - forget_offset)
        self.forget_offset = forget_offset

    def __call__(self, sequence: jax.Array) -> jax.Array:
        units, inputs = self.recurrent.shape[0], self.weight.shape[0]
        if sequence.ndim != 2 or sequence.shape[1] != inputs or len(sequence) == 0:
            raise ValueError(f"an LSTM takes one sequence of shape (time, {inputs}), but got {sequence.shape}")
        zeros = jnp.zeros(units, sequence.dtype)

        def advance(
            carry: tuple[jax.Array, jax.Array], gates: jax.Array
        ) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
            hidden, cell = carry
            i, f, g, o = jnp.split(gates + hidden @ self.recurrent, 4)
            cell = jax.nn.sigmoid(f + self.forget_offset) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
            hidden = jax.nn.sigmoid(o) * jnp.tanh(cell)
            return (hidden, cell), hidden

        return jax.lax.scan(advance, (zeros, zeros), sequence @ self.weight + self.bias)[1]


class SelfAttention(eqx.Module):
    """Every position of (positions, features) takes a mean of all values, weighted by its query (Vaswani et al. 2017).

        q, k, v = x W + b,    softmax(q k' / sqrt(features / heads)) v,    and a dense layer over all heads

    >>> SelfAttention(6, heads=2, key=jax.random.key(0))(jnp.ones((5, 6))).shape
    (5, 6)
    """

    qkv: Dense
    out: Dense
    heads: int = eqx.field(static=True)

    def __init__(self, features: int, heads: int, *, key: jax.Array, init: Initializer = he_normal):
        if features % heads:
            raise ValueError(f"features must be a multiple of heads, got {features} features and {heads} heads")
        qkv_key, out_key = jax.random.split(key)
        self.qkv = Dense(features, 3 * features, init=init, key=qkv_key)
        self.out = Dense(features, features, init=init, key=out_key)
        self.heads = heads

    def __call__(self, x: jax.Array) -> jax.Array:
        positions, features = x.shape
        q, k, v = jnp.moveaxis(self.qkv(x).reshape(positions, 3, self.heads, -1), 1, 0)
        scores = jnp.einsum("qhf,khf->hqk", q, k) / (features // self.heads) ** 0.5
        mixed = jnp.einsum("hqk,khf->qhf", jax.nn.softmax(scores), v)
        return self.out(mixed.reshape(positions, features))
