"""``px.loo``: how well a posterior would have predicted each training row without it, from a single run.

    log p(y_i | D without i) = log [ sum_s v_is p(y_i | x_i, w_s) / sum_s v_is ]        v_is ~ 1 / p(y_i | x_i, w_s)

The largest weights v are smoothed by a Pareto distribution, whose shape k says whether the estimate can be trusted
(Vehtari, Gelman and Gabry 2017; Vehtari et al. 2024). The smoothing is ArviZ's.
"""

import math
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree
from scipy.special import logsumexp

from posteriax._internal.checks import check_data
from posteriax._internal.memory import DENSITY_VALUES, fitting
from posteriax.diagnostics.chains import ess_bulk
from posteriax.posterior.draws import DrawsPosterior
from posteriax.posterior.posterior import Posterior

FEWEST_DRAWS = 100
LISTED = 5


@dataclass(frozen=True, eq=False)
class Loo:
    """Leave-one-out log scores; prints as a summary.

    Args:
        pointwise: log p(y_i | x_i, all other rows), in nats, (N,).
        khat: the Pareto shape of each row, (N,): above `limit` the row's value cannot be trusted.
        limit: min(1 - 1 / log10(S), 0.7) for S draws.
        in_sample: log p(y_i | x_i, D), (N,).
    """

    pointwise: np.ndarray
    khat: np.ndarray
    limit: float
    in_sample: np.ndarray

    @property
    def elpd(self) -> float:
        """The expected log predictive density of N new rows: the sum of `pointwise`."""
        return float(self.pointwise.sum())

    @property
    def error(self) -> float:
        """The standard error of `elpd`."""
        return float(math.sqrt(len(self.pointwise)) * self.pointwise.std(ddof=1))

    @property
    def effective_parameters(self) -> float:
        """How much better the rows are predicted with themselves in the data, in nats."""
        return float((self.in_sample - self.pointwise).sum())

    @property
    def bad(self) -> np.ndarray:
        """The rows whose value cannot be trusted, the worst first."""
        rows = np.flatnonzero(~(self.khat <= self.limit))
        return rows[np.argsort(-self.khat[rows])]

    def __str__(self) -> str:
        lines = [
            f"log score of {len(self.pointwise):,} rows, each left out: {self.elpd:.1f} ± {self.error:.1f} nats "
            f"({self.pointwise.mean():.3f} per row), {self.effective_parameters:.1f} effective parameters"
        ]
        if len(self.bad):
            listed = ", ".join(f"{row} ({self.khat[row]:.2f})" for row in self.bad[:LISTED])
            more = f" and {len(self.bad) - LISTED} others" if len(self.bad) > LISTED else ""
            rows = "1 row has" if len(self.bad) == 1 else f"{len(self.bad)} rows have"
            lines.append(
                f"{rows} a k above {self.limit:.2f}: the posterior without such a row is too different to be reached "
                f"from these draws: {listed}{more}. Draw more, hold them out in a cross-validation, or, if the "
                f"likelihood is Gaussian, try one with heavy tails, which outliers pull less"
            )
        return "\n".join(lines)


def loo(posterior: Posterior, data: PyTree, *, draws: int | None = None) -> Loo:
    """Leave-one-out log scores of the rows that a posterior was inferred from, without inferring it again.

    Args:
        posterior: with at least 100 draws from the posterior itself, as a sampler gives. Of an approximation the scores
            are those of the approximation, if it would change with each row as the posterior does.
        data: ``(x, y)``, the rows that it was inferred from.
        draws: how many; by default all, or 1,000 if there is no limit.

    Needs ArviZ: the extra `arviz`.

    >>> import numpy as np, posteriax as px
    >>> x = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    >>> problem = px.Problem((lambda w, x: x @ w, np.zeros((2, 1), np.float32)), px.Normal(scale=1.0))
    >>> posterior = px.fit(problem, (x, x[:, 0]), px.HMC(warmup=50), draws=100, chains=2, key=0)
    >>> print(loo(posterior, (x, x[:, 0])))
    log score of 50 rows, each left out: -4... ± ... nats (-0.9... per row), ... effective parameters
    """
    try:
        import arviz
    except ImportError as error:
        raise ImportError("px.loo needs ArviZ: pip install 'posteriax[arviz]'") from error
    x, y = check_data(data)
    log_likelihood = log_scores_by_draw(posterior, x, y, draws or (None if posterior.support else 1000))
    count, rows = log_likelihood.shape
    if count < FEWEST_DRAWS:
        raise ValueError(
            f"leave-one-out scores need at least {FEWEST_DRAWS} draws, got {count}: for a mode or an ensemble, hold "
            f"rows out and use px.evaluate, or px.stack(..., held_out=True)"
        )
    weights, khat = arviz.psislw(-log_likelihood.T, reff=_relative_efficiency(posterior, log_likelihood))
    pointwise = logsumexp(np.asarray(weights) + log_likelihood.T, axis=1)
    in_sample = logsumexp(log_likelihood, axis=0) - math.log(count)
    return Loo(pointwise, np.asarray(khat).reshape(rows), min(1 - 1 / math.log10(count), 0.7), in_sample)


def log_scores_by_draw(posterior: Posterior, x: PyTree, y: np.ndarray, draws: int | None = None) -> np.ndarray:
    """log p(y_i | x_i, w_s), (draws, rows), in float64."""
    predictive: Any = posterior.predict(x, draws)
    likelihood, targets = predictive.likelihood, predictive.check(y)
    by_draw = jax.jit(jax.vmap(likelihood.log_prob, in_axes=(0, 0, None)))
    at_once = fitting(DENSITY_VALUES, max(predictive.outputs[0].size, 1))
    parts = []
    for first in range(0, len(predictive.outputs), at_once):
        some = slice(first, first + at_once)
        latents = jax.tree.map(lambda leaf, some=some: np.asarray(leaf)[some], predictive.latents)
        parts.append(np.asarray(by_draw(latents, predictive.outputs[some], targets), np.float64))
    return np.concatenate(parts)


def _relative_efficiency(posterior: Posterior, log_likelihood: np.ndarray) -> float:
    """Effective draws, on average over rows, as a share of all: draws of a chain are correlated."""
    source = posterior.drawn_from
    if not isinstance(source, DrawsPosterior) or source.support != len(log_likelihood) or source.draws_per_chain < 4:
        return 1.0
    chains = log_likelihood.reshape(source.chains, source.draws_per_chain, -1)
    return float(np.clip(ess_bulk(chains).mean() / len(log_likelihood), 1e-3, 1.0))
