"""Gaussian noise for methods that keep one set of weights, unless the rows far outnumber these.

    max over w and sigma of   log p(y | w, sigma) + log p(w)        sigma^2 ~ squared residuals / N

Weights take the residuals below the noise, so the noise at the mode is too small, by the factor sqrt(1 - gamma / N) if
the N rows determine gamma weights. Weights that can fit every row take the residuals towards 0, and sigma follows until
its own prior stops it. The evidence, in which weights are integrated out, has its maximum at squared residuals /
(N - gamma) (MacKay 1992), so such methods take the noise from there and look for the mode under it. Methods that infer
a distribution of all weights infer the noise with them.
"""

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from posteriax import priors as p
from posteriax.methods.curvature.tuning import TunedProblem, has_small_curvature
from posteriax.posterior.draws import DrawsPosterior
from posteriax.posterior.posterior import Posterior
from posteriax.problem import Problem

ENOUGH_ROWS = 10  # per weight: the noise at the mode is then at most 5 % too small, 1 - sqrt(1 - 1 / 10)


def underestimates_noise(problem: Problem, rows: int) -> bool:
    """Whether the most probable noise of a problem is too small, and the marginal likelihood gives a better one.

    It is if the noise is learned from less than :data:`ENOUGH_ROWS` rows per weight. For networks too large for the
    full curvature, whose tuning is slower and less exact, only if there are no more rows than weights.

    >>> import posteriax as px
    >>> problem = px.Problem((lambda w, x: x @ w, np.zeros((3, 1), np.float32)), px.Normal(scale="learned"))
    >>> underestimates_noise(problem, rows=29), underestimates_noise(problem, rows=30)
    (True, False)
    """
    weights = sum(leaf.size for leaf in jax.tree.leaves(problem.network.params))
    enough = ENOUGH_ROWS * weights if has_small_curvature(rows, weights) else weights + 1
    return problem.likelihood.log_noise is not None and rows < enough


def with_settled_noise(
    problem: Problem, data: Any, key: Any, mode: Posterior | None = None
) -> tuple[Problem, tuple[str, ...]]:
    """The problem with the noise under which the data are most probable, if that at the mode would be too small; and a
    note.

    A problem that :func:`posteriax.priors.tune` made has had its noise chosen, and so has a `mode` to start at: if its
    noise was learned, it is left to be learned.
    """
    if not underestimates_noise(problem, len(data[1])):
        return problem, ()
    noise: float | None
    if mode is not None:
        noise = mode.problem.likelihood.noise
    elif isinstance(problem, TunedProblem):
        noise = problem.tuning.noise
    else:
        try:
            noise = p.tune(problem, data, per="none", key=key).tuning.noise
        except (FloatingPointError, ValueError, RuntimeError) as error:
            return problem, (f"the noise is that at the mode, which may be far too small: it was not tuned ({error})",)
    if noise is None:
        return problem, ()
    settled = Problem(
        problem.network,
        problem.likelihood.with_noise(noise),
        prior=problem.prior,
        temperature=problem.temperature,
        fixed=problem.fixed,
    )
    return settled, (f"noise {noise:.3g} by the marginal likelihood: there are few rows for the number of weights",)


def with_inferred_noise(posterior: Posterior, problem: Problem) -> Posterior:
    """A mode under a given noise as one of the problem in which the noise is inferred, to start there."""
    name, noise = problem.likelihood.log_noise, posterior.problem.likelihood.noise
    if name is None or noise is None or not isinstance(posterior, DrawsPosterior):
        return posterior
    shape = (posterior.chains, posterior.draws_per_chain)
    log_noise = np.full((*shape, *np.shape(problem.latents.likelihood[name])), np.log(noise), np.float32)
    draws = posterior.draws._replace(likelihood=posterior.draws.likelihood | {name: log_noise})
    return replace(posterior, problem=problem, draws=draws)
