"""CNN-LSTM: a convolution over words, pooled, then an LSTM."""

from typing import Any

import equinox as eqx
import jax

from posteriax.zoo.parts.convolution import Conv
from posteriax.zoo.parts.dense import Dense, Embedding, haiku_normal
from posteriax.zoo.parts.lstm import LSTM
from posteriax.zoo.parts.pooling import max_pool

SHORTEST = 8  # words: four places for a convolution of five, which are pooled into one


class CNNLSTM(eqx.Module):
    """Embeddings, a convolution of five words with ReLU, max-pooling of four, an LSTM, its last state."""

    embedding: Embedding
    convolution: Conv
    lstm: LSTM
    out: Dense

    def __init__(self, words: int, features: int, channels: int, units: int, classes: int, *, key: Any):
        keys = jax.random.split(key, 4)
        normal = jax.nn.initializers.truncated_normal
        of_gates = normal((channels + units) ** -0.5)  # Haiku has one matrix for inputs and state
        self.embedding = Embedding(words, features, init=normal(1.0), key=keys[0])
        self.convolution = Conv(features, channels, 5, axes=1, padding="VALID", init=haiku_normal, key=keys[1])
        self.lstm = LSTM(channels, units, init=of_gates, recurrent_init=of_gates, forget_offset=1.0, key=keys[2])
        self.out = Dense(units, classes, init=haiku_normal, key=keys[3])

    def __call__(self, tokens: jax.Array) -> jax.Array:
        if len(tokens) < SHORTEST:
            raise ValueError(f"it takes sequences of at least {SHORTEST} words, but got {len(tokens)}")
        words = max_pool(jax.nn.relu(self.convolution(self.embedding(tokens))), 4)
        return self.out(self.lstm(words)[-1])


def cnn_lstm(*, words: int = 20_000, classes: int = 2, key: Any) -> CNNLSTM:
    """The network of Izmailov et al. (2021) for IMDB, reviews of 100 words: 128 features, 64 channels, 128 units.

    Initialised as in Haiku, their library.

    >>> sum(leaf.size for leaf in jax.tree.leaves(cnn_lstm(key=jax.random.key(0))))
    2700098
    """
    return CNNLSTM(words, 128, 64, 128, classes, key=key)
