"""Predictions of counts: a mixture of one distribution over 0, 1, 2, ... per draw."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import xlogy

from posteriax._internal.checks import check_count
from posteriax._internal.compiler import jit
from posteriax._internal.memory import DENSITY_VALUES, fitting
from posteriax.problem.predictive.mixtures import check_levels
from posteriax.problem.predictive.numbers import NumberPredictive

DEVIATIONS = 12  # standard deviations above a mean, beyond which no draw expects a count
LONGEST_TABLE = 2**14  # counts; beyond, they are as good as real numbers


@dataclass(frozen=True, eq=False)
class CountPredictive(NumberPredictive):
    """Predictions of counts: a mixture of one distribution over 0, 1, 2, ... per draw.

    Args:
        likelihood: the noise model.
        outputs: the network's outputs for every draw, (S, N, ...).
        unknowns: the likelihood's own unknowns for every draw.

    >>> import posteriax as px
    >>> predictive = px.CountPredictive(px.Poisson(), np.log(np.full((1, 1, 1), 2.0, np.float32)), {})
    >>> predictive.pmf(3)[0, 0].round(3).tolist(), predictive.quantile(0.9).item()
    ([0.135..., 0.270..., 0.270..., 0.18...], 4.0)
    """

    def pmf(self, largest: int) -> np.ndarray:
        """The probability of every count from 0 to `largest`, (N, D, largest + 1)."""
        return self._by_tables(check_count("largest", largest) + 1, lambda probs, _: np.moveaxis(probs, 0, -1))

    def quantile(self, q: Any) -> np.ndarray:
        """Quantiles of y, (len(q), N, D), or (N, D) for one q: the smallest counts that reach them."""
        levels = check_levels(q)
        if self._counts > LONGEST_TABLE:
            return np.round(super().quantile(q)).astype(np.float64)

        def smallest(probs: np.ndarray, _: Any) -> np.ndarray:
            below = np.cumsum(probs, axis=0, dtype=np.float64)  # (counts, rows, D)
            return np.stack([(below < level - 1e-7).sum(axis=0) for level in levels.reshape(-1)], axis=1)

        found = np.moveaxis(self._by_tables(self._counts, smallest), 1, 0)
        return found.reshape(*levels.shape, *found.shape[1:]).astype(np.float64)

    def entropy(self) -> np.ndarray:
        """Entropy of each target's mixture over all draws, in nats, (N, D)."""
        if self._counts > LONGEST_TABLE:
            return super().entropy()
        return self._by_tables(self._counts, lambda probs, _: -np.asarray(xlogy(probs, probs)).sum(axis=0))

    def mutual_information(self) -> np.ndarray:
        """Between each target and the weights, in nats, (N, D): the mixture's entropy less the draws' own."""
        if self._counts > LONGEST_TABLE:
            return super().mutual_information()
        own = self._by_tables(self._counts, lambda _, entropies: entropies.sum(axis=0))
        return np.maximum(self.entropy() - own, 0.0)

    @cached_property
    def _counts(self) -> int:
        """How many counts any draw could expect."""
        mean, std = map(np.asarray, self.standard_moments)
        largest = float((mean + DEVIATIONS * np.maximum(std, 1.0)).max())
        return 2 ** int(np.ceil(np.log2(largest + 2)))  # few sizes to compile for

    def _by_tables(self, counts: int, function: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
        """A function of the tables of some examples at a time: of every count below `counts`, the mixture's probability
        and the mean over draws of -p log p, (counts, rows, D) each. It returns a leading axis of examples."""
        outputs, n = jnp.asarray(self.outputs), self.outputs.shape[1]
        rows = fitting(DENSITY_VALUES, counts * int(np.prod(self.outputs.shape[2:])), n)
        found = []
        for start in range(0, n, rows):
            index = np.minimum(np.arange(start, start + rows), n - 1)
            tables = jax.device_get(_tabulate(self.likelihood, counts, self.unknowns, outputs[:, index]))
            found.append(function(*tables)[: n - start])
        return np.concatenate(found)


@partial(jit, static_argnums=(0, 1))
def _tabulate(likelihood: Any, counts: int, unknowns: Any, outputs: jax.Array) -> tuple[jax.Array, jax.Array]:
    def at(count: jax.Array) -> tuple[jax.Array, jax.Array]:
        probs = jax.vmap(lambda u, o: jnp.exp(likelihood.distribution(u, o).log_prob(count)))(unknowns, outputs)
        return probs.mean(axis=0), -xlogy(probs, probs).mean(axis=0)

    return jax.lax.map(at, jnp.arange(counts))  # one after another: all at once would hold every draw for each
