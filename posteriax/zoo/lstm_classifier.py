"""LSTMs that classify a sequence by its last state."""

from typing import Any

import equinox as eqx
import jax

from posteriax.zoo.parts.dense import Dense, Embedding, glorot_uniform, he_normal
from posteriax.zoo.parts.lstm import LSTM


class LSTMClassifier(eqx.Module):
    """Tokens to embeddings, an LSTM over them, and a dense layer on its last state."""

    embedding: Embedding
    lstm: LSTM
    out: Dense

    def __init__(self, words: int, features: int, units: int, outputs: int, *, key: Any):
        keys = jax.random.split(key, 3)
        self.embedding = Embedding(words, features, key=keys[0])
        self.lstm = LSTM(features, units, init=he_normal, recurrent_init=he_normal, key=keys[1])
        self.out = Dense(units, outputs, init=glorot_uniform, key=keys[2])

    def __call__(self, tokens: jax.Array) -> jax.Array:
        return self.out(self.lstm(self.embedding(tokens))[-1])


def lstm(*, words: int = 20_000, units: int = 128, outputs: int = 1, key: Any) -> LSTMClassifier:
    """The LSTM of the k-tied Normal (Swiatkowski et al. 2020) for IMDB: embeddings and states of 128, one logit.

    He initialisation in the LSTM, as the paper says, and Keras's elsewhere. Reviews shorter than the sequence are
    padded at their beginning, so that the last state has read all of them.

    >>> sum(leaf.size for leaf in jax.tree.leaves(lstm(key=jax.random.key(0))))
    2691713
    """
    return LSTMClassifier(words, units, units, outputs, key=key)
