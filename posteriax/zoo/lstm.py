"""Networks with an LSTM: over words, over words after a convolution, and over time series with missing values."""

import equinox as eqx
import jax
import jax.numpy as jnp

from posteriax.zoo.layers import LSTM, Conv, Dense, Embedding, glorot_uniform, haiku_normal, he_normal, max_pool


class LSTMClassifier(eqx.Module):
    """Tokens to embeddings, an LSTM over them, and a dense layer on its last state."""

    embedding: Embedding
    lstm: LSTM
    out: Dense

    def __init__(self, words: int, features: int, units: int, outputs: int, *, key: jax.Array):
        keys = jax.random.split(key, 3)
        self.embedding = Embedding(words, features, key=keys[0])
        self.lstm = LSTM(features, units, init=he_normal, recurrent_init=he_normal, key=keys[1])
        self.out = Dense(units, outputs, init=glorot_uniform, key=keys[2])

    def __call__(self, tokens: jax.Array) -> jax.Array:
        return self.out(self.lstm(self.embedding(tokens))[-1])


def lstm(*, words: int = 20_000, units: int = 128, outputs: int = 1, key: jax.Array) -> LSTMClassifier:
    """The LSTM of the k-tied Normal (Swiatkowski et al. 2020) for IMDB: embeddings and states of 128, one logit.

    He initialisation in the LSTM, as the paper says, and Keras's elsewhere. Reviews shorter than the sequence are
    padded at their beginning, so that the last state has read all of them.

    >>> sum(leaf.size for leaf in jax.tree.leaves(lstm(key=jax.random.key(0))))
    2691713
    """
    return LSTMClassifier(words, units, units, outputs, key=key)


SHORTEST = 8  # words: four places for a convolution of five, which are pooled into one


class CNNLSTM(eqx.Module):
    """Embeddings, a convolution of five words with ReLU, max-pooling of four, an LSTM, its last state."""

    embedding: Embedding
    convolution: Conv
    lstm: LSTM
    out: Dense

    def __init__(self, words: int, features: int, channels: int, units: int, classes: int, *, key: jax.Array):
        keys = jax.random.split(key, 4)
        normal = jax.nn.initializers.truncated_normal
        gate_init = normal((channels + units) ** -0.5)  # Haiku has one matrix for inputs and state
        self.embedding = Embedding(words, features, init=normal(1.0), key=keys[0])
        self.convolution = Conv(features, channels, 5, axes=1, padding="VALID", init=haiku_normal, key=keys[1])
        self.lstm = LSTM(channels, units, init=gate_init, recurrent_init=gate_init, forget_offset=1.0, key=keys[2])
        self.out = Dense(units, classes, init=haiku_normal, key=keys[3])

    def __call__(self, tokens: jax.Array) -> jax.Array:
        if len(tokens) < SHORTEST:
            raise ValueError(f"it takes sequences of at least {SHORTEST} words, but got {len(tokens)}")
        words = max_pool(jax.nn.relu(self.convolution(self.embedding(tokens))), 4)
        return self.out(self.lstm(words)[-1])


def cnn_lstm(*, words: int = 20_000, classes: int = 2, key: jax.Array) -> CNNLSTM:
    """The network of Izmailov et al. (2021) for IMDB, reviews of 100 words: 128 features, 64 channels, 128 units.

    Initialised as in Haiku, their library.

    >>> sum(leaf.size for leaf in jax.tree.leaves(cnn_lstm(key=jax.random.key(0))))
    2700098
    """
    return CNNLSTM(words, 128, 64, 128, classes, key=key)


class MortalityLSTM(eqx.Module):
    """An LSTM over hourly measurements and their mask; static features of the patient join its last state.

    Args of a call:
        values: (time, variables), standardised; where nothing was measured, anything: it is taken as 0, the mean.
        observed: (time, variables), 1 where a value was measured and 0 where it was not.
        static: (features,), what does not change with time.
    """

    lstm: LSTM
    out: Dense

    def __init__(self, variables: int, static: int, units: int, outputs: int, *, key: jax.Array):
        keys = jax.random.split(key)
        self.lstm = LSTM(2 * variables, units, key=keys[0])
        self.out = Dense(units + static, outputs, init=glorot_uniform, key=keys[1])

    def __call__(self, values: jax.Array, observed: jax.Array, static: jax.Array) -> jax.Array:
        measured = jnp.concatenate([jnp.where(observed > 0, values, 0.0), observed], axis=-1)
        return self.out(jnp.concatenate([self.lstm(measured)[-1], static]))


def mortality_lstm(
    *, variables: int = 37, static: int = 4, units: int = 64, outputs: int = 1, key: jax.Array
) -> MortalityLSTM:
    """Predicts in-hospital death from two days of records, the task of Dusenberry et al. (2020) on public data.

    Their data and network are not public; this is the same kind of model: an LSTM over values and a mask, one logit.

    >>> net = mortality_lstm(key=jax.random.key(0))
    >>> net(jnp.zeros((48, 37)), jnp.ones((48, 37)), jnp.zeros(4)).shape
    (1,)
    """
    return MortalityLSTM(variables, static, units, outputs, key=key)
