"""Gaussian noise for methods that keep one set of weights, where these outnumber the rows.

    max over w and sigma of   log p(y | w, sigma) + log p(w)

Weights that can fit every row take the residuals towards 0, and sigma follows until its own prior stops it: the noise
at the mode says nothing about new rows. The evidence, in which weights are integrated out, does have a useful maximum
(MacKay 1992), so such methods take the noise from there and look for the mode under it. Methods that infer a
distribution of all weights infer the noise with them.
"""

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from posteriax import priors as p
from posteriax.methods import TunedProblem
from posteriax.posterior import DrawsPosterior, Posterior
from posteriax.problem import Problem


def has_vanishing_noise(problem: Problem, rows: int) -> bool:
    """Whether the most probable noise of a problem would vanish: it is learned, with no fewer weights than rows.

    >>> import posteriax as px
    >>> problem = px.Problem((lambda w, x: x @ w, np.zeros((3, 1), np.float32)), px.Normal(scale="learned"))
    >>> has_vanishing_noise(problem, rows=3), has_vanishing_noise(problem, rows=4)
    (True, False)
    """
    weights = sum(leaf.size for leaf in jax.tree.leaves(problem.network.params))
    return problem.likelihood.log_noise is not None and rows <= weights


def with_settled_noise(problem: Problem, data: Any, key: Any) -> tuple[Problem, tuple[str, ...]]:
    """The problem with the noise under which the data are most probable, if its own would vanish; and a note.

    A problem that :func:`posteriax.priors.tune` made has had its noise chosen.
    """
    if not has_vanishing_noise(problem, len(data[1])):
        return problem, ()
    if isinstance(problem, TunedProblem):
        noise = problem.tuning.noise
    else:
        try:
            noise = p.tune(problem, data, per="none", key=key).tuning.noise
        except (FloatingPointError, ValueError, RuntimeError) as error:
            return problem, (f"the noise is that at the mode, which may be far too small: it was not tuned ({error})",)
    settled = Problem(
        problem.network,
        problem.likelihood.with_noise(noise),
        prior=problem.prior,
        temperature=problem.temperature,
        fixed=problem.fixed,
    )
    return settled, (f"noise {noise:.3g} by the marginal likelihood: there are no more rows than weights",)


def with_own_noise(posterior: Posterior, problem: Problem) -> Posterior:
    """A mode under a given noise as one of the problem in which the noise is inferred, to start there."""
    name, noise = problem.likelihood.log_noise, posterior.problem.likelihood.noise
    if name is None or noise is None or not isinstance(posterior, DrawsPosterior):
        return posterior
    shape = jax.tree.leaves(posterior.draws)[0].shape[:2]
    log_noise = np.full((*shape, *np.shape(problem.latents.likelihood[name])), np.log(noise), np.float32)
    draws = posterior.draws._replace(likelihood=posterior.draws.likelihood | {name: log_noise})
    return replace(posterior, problem=problem, draws=draws)
