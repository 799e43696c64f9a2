"""Predictions of counts: a mixture of one distribution over 0, 1, 2, ... per draw."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import xlogy
from scipy.special import entr

from posteriax._internal.checks import check_count
from posteriax._internal.memory import DENSITY_VALUES, fitting
from posteriax.problem.predictive.mixtures import check_levels
from posteriax.problem.predictive.numbers import NumberPredictive

DEVIATIONS = 12  # standard deviations above a mean; larger counts have negligible probability
LONGEST_TABLE = 2**14  # counts; larger ones are treated as real numbers


@dataclass(frozen=True, eq=False)
class CountPredictive(NumberPredictive):
    """Predictions of counts: a mixture of one distribution over 0, 1, 2, ... per draw.

    Args:
        likelihood: the noise model.
        outputs: the network's outputs for every draw, (S, N, ...).
        latents: the likelihood's own latent variables for every draw.

    >>> import posteriax as px
    >>> predictive = px.CountPredictive(px.Poisson(), np.log(np.full((1, 1, 1), 2.0, np.float32)), {})
    >>> predictive.pmf(3)[0, 0].round(3).tolist(), predictive.quantile(0.9).item()
    ([0.135, 0.271, 0.271, 0.18], 4.0)
    """

    whole_numbers: ClassVar[bool] = True

    def pmf(self, largest: int) -> np.ndarray:
        """The probability of every count from 0 to `largest`, (N, D, largest + 1)."""
        tables = self._tables(check_count("largest", largest) + 1)
        return np.concatenate([np.moveaxis(probs, 0, -1) for probs, _ in tables])

    def quantile(self, q: Any) -> np.ndarray:
        """Quantiles of y, (len(q), N, D), or (N, D) for one q: the smallest counts whose cdf reaches q."""
        levels = check_levels(q)
        if self._counts > LONGEST_TABLE:
            return np.round(super().quantile(q)).astype(np.float64)
        found = np.concatenate(
            [_smallest(probs, levels.reshape(-1)) for probs, _ in self._tables(self._counts)], axis=1
        )
        return found.reshape(*levels.shape, *found.shape[1:]).astype(np.float64)

    def entropy(self) -> np.ndarray:
        """Entropy of each target's mixture over all draws, in nats, (N, D)."""
        if self._counts > LONGEST_TABLE:
            return super().entropy()
        return np.concatenate([entr(probs).sum(axis=0) for probs, _ in self._tables(self._counts)])

    def mutual_information(self) -> np.ndarray:
        """Between each target and the weights, in nats, (N, D): the mixture's entropy minus the mean over draws."""
        if self._counts > LONGEST_TABLE:
            return super().mutual_information()
        tables = self._tables(self._counts)
        return np.concatenate([np.maximum((entr(probs) - own).sum(axis=0), 0.0) for probs, own in tables])

    def distance(self, other: NumberPredictive) -> np.ndarray:
        """1-Wasserstein distance of every target's mixture from another prediction's, (N, D): sum_k |F(k) - F'(k)|."""
        if not isinstance(other, CountPredictive) or max(self._counts, other._counts) > LONGEST_TABLE:
            return super().distance(other)
        both = zip(*(p._tables(max(self._counts, other._counts)) for p in (self, other)), strict=True)
        return np.concatenate([np.abs((a - b).cumsum(axis=0)).sum(axis=0) for (a, _), (b, _) in both])

    @cached_property
    def _counts(self) -> int:
        """How many counts have non-negligible probability under any draw."""
        mean, std = map(np.asarray, self.standard_moments)
        largest = float((mean + DEVIATIONS * np.maximum(std, 1.0)).max())
        return 2 ** int(np.ceil(np.log2(largest + 2)))  # few sizes to compile for

    def _tables(self, counts: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """For every count below `counts`, the mixture's probability and the mean over draws of -p log p.

        A few examples at a time: (counts, rows, D) each.
        """
        outputs, n = jnp.asarray(self.outputs), self.outputs.shape[1]
        rows = fitting(DENSITY_VALUES, counts * int(np.prod(self.outputs.shape[2:])), n)
        for start in range(0, n, rows):
            index = np.minimum(np.arange(start, start + rows), n - 1)
            tables = _tabulate(self.likelihood, counts, self.latents, outputs[:, index])
            probs, entropies = (np.asarray(table, np.float64)[:, : n - start] for table in tables)
            yield probs, entropies


def _smallest(probs: np.ndarray, levels: np.ndarray) -> np.ndarray:
    below = probs.cumsum(axis=0)  # (counts, rows, D)
    below /= below[-1]  # float32 sums to 1 only nearly, and a level above the sum would be the end of the table
    return np.stack([(below < level - 1e-7).sum(axis=0) for level in levels])  # float32 was rounded


@partial(jax.jit, static_argnums=(0, 1))
def _tabulate(likelihood: Any, counts: int, latents: Any, outputs: jax.Array) -> tuple[jax.Array, jax.Array]:
    def at(count: jax.Array) -> tuple[jax.Array, jax.Array]:
        probs = jax.vmap(lambda u, o: jnp.exp(likelihood.distribution(u, o).log_prob(count)))(latents, outputs)
        return probs.mean(axis=0), -xlogy(probs, probs).mean(axis=0)

    return jax.lax.map(at, jnp.arange(counts))  # one after another: all at once would hold every draw for each
