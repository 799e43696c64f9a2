"""An LSTM over time series with missing values, for clinical records."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from posteriax.zoo.parts.dense import Dense, glorot_uniform
from posteriax.zoo.parts.lstm import LSTM


class MortalityLSTM(eqx.Module):
    """An LSTM over hourly measurements and their mask; static features of the patient join its last state.

    Args of a call:
        values: (time, variables), standardised; where nothing was measured, anything: it is taken as 0, the mean.
        observed: (time, variables), 1 where a value was measured and 0 where it was not.
        static: (features,), what does not change with time.
    """

    lstm: LSTM
    out: Dense

    def __init__(self, variables: int, static: int, units: int, outputs: int, *, key: Any):
        keys = jax.random.split(key)
        self.lstm = LSTM(2 * variables, units, key=keys[0])
        self.out = Dense(units + static, outputs, init=glorot_uniform, key=keys[1])

    def __call__(self, values: jax.Array, observed: jax.Array, static: jax.Array) -> jax.Array:
        measured = jnp.concatenate([jnp.where(observed > 0, values, 0.0), observed], axis=-1)
        return self.out(jnp.concatenate([self.lstm(measured)[-1], static]))


def mortality_lstm(
    *, variables: int = 37, static: int = 4, units: int = 64, outputs: int = 1, key: Any
) -> MortalityLSTM:
    """Predicts in-hospital death from two days of records, the task of Dusenberry et al. (2020) on public data.

    Their data and network are not public; this is the same kind of model: an LSTM over values and a mask, one logit.

    >>> net = mortality_lstm(key=jax.random.key(0))
    >>> net(jnp.zeros((48, 37)), jnp.ones((48, 37)), jnp.zeros(4)).shape
    (1,)
    """
    return MortalityLSTM(variables, static, units, outputs, key=key)
