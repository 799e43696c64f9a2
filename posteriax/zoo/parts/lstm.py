"""Long short-term memory (Hochreiter and Schmidhuber 1997)."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from posteriax.zoo.parts.dense import glorot_uniform


class LSTM(eqx.Module):
    """The state after every element of a sequence, (time, inputs) to (time, units).

        i, f, g, o = x W + h U + b
        c <- sigmoid(f) c + sigmoid(i) tanh(g),    h <- sigmoid(o) tanh(c)

    The products with the inputs are taken for all times at once, before the loop. Initialised as in Keras: Glorot,
    orthogonal for the recurrent weights, a forget bias of 1.

    >>> LSTM(3, 5, key=jax.random.key(0))(jnp.ones((7, 3))).shape
    (7, 5)
    """

    weight: jax.Array
    recurrent: jax.Array
    bias: jax.Array

    def __init__(self, inputs: int, units: int, *, key: Any):
        of_inputs, of_state = jax.random.split(key)
        self.weight = glorot_uniform(of_inputs, (inputs, 4 * units), jnp.float32)
        self.recurrent = jax.nn.initializers.orthogonal()(of_state, (units, 4 * units), jnp.float32)
        self.bias = jnp.zeros(4 * units).at[units : 2 * units].set(1.0)

    def __call__(self, sequence: jax.Array) -> jax.Array:
        units = self.recurrent.shape[0]
        zeros = jnp.zeros(units, sequence.dtype)

        def advance(carry: tuple[jax.Array, jax.Array], of_input: jax.Array) -> tuple[Any, jax.Array]:
            hidden, cell = carry
            i, f, g, o = jnp.split(of_input + hidden @ self.recurrent, 4)
            cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
            hidden = jax.nn.sigmoid(o) * jnp.tanh(cell)
            return (hidden, cell), hidden

        return jax.lax.scan(advance, (zeros, zeros), sequence @ self.weight + self.bias)[1]
