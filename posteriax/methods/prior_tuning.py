"""Prior scales and noise by the marginal likelihood: what :func:`posteriax.priors.tune` does.

The rounds are in tuning_rounds.py, the search for the mode in mode_search.py, the evidence in evidence.py.
"""

import math
from typing import Any, Literal

import jax
import numpy as np
import numpyro.distributions as dist

from posteriax._internal.checks import as_key, check_choice, check_count
from posteriax.data import Examples, is_loader
from posteriax.families.arrays import spec_of_example
from posteriax.methods.laplace_gaussian import structure_of
from posteriax.methods.method import Task
from posteriax.methods.mode_search import ModeSearch, Prior
from posteriax.methods.starts import check_same_network
from posteriax.methods.tuned_problem import TunedProblem, Tuning
from posteriax.methods.tuning_rounds import Round, Tuner
from posteriax.posterior import DrawsPosterior, Posterior
from posteriax.priors import Given, Normal, has_density
from posteriax.problem import Latents, Problem

LARGEST_ROWS = 25_000_000  # numbers in the rows of the curvature
LARGEST_PRODUCT = 4_000_000_000  # multiplications to decompose it

Structure = Literal["auto", "full", "kronecker", "diagonal"]


def tune_prior(
    problem: Problem,
    data: Any,
    *,
    per: Literal["leaf", "network", "none"] = "leaf",
    structure: Structure = "auto",
    noise: Literal["fixed", "learned"] = "fixed",
    start: Literal["network"] | Posterior = "network",
    rounds: int = 100,
    key: Any = 0,
) -> TunedProblem:
    """See :func:`posteriax.priors.tune`."""
    check_choice("per", per, ("leaf", "network", "none"))
    check_choice("structure", structure, ("auto", "full", "kronecker", "diagonal"))
    check_choice("noise", noise, ("fixed", "learned"))
    check_count("rounds", rounds)
    _check_problem(problem, data)
    examples = problem.check_weighted(data)
    problem = problem.for_data(data)
    problem, _ = problem.reading(jax.tree.map(lambda a: np.asarray(a[:2]), examples.x))
    tuner = Tuner(_search(problem, examples, structure), _given_priors(problem), as_key(key))
    found = tuner.run(_start(problem, start), rounds, per)
    return _tuned_problem(tuner, found, noise)


def has_small_curvature(rows: int, weights: int) -> bool:
    """Whether the curvature of all weights is small enough to decompose in every round."""
    return rows * weights <= LARGEST_ROWS and rows * weights * min(rows, weights) <= LARGEST_PRODUCT


def _tuned_problem(tuner: Tuner, found: list[Round], noise: str) -> TunedProblem:
    """The problem with the scales of the last round."""
    scales, latents, measured = found[-1]
    search, problem = tuner.search, tuner.search.problem
    prior, names = tuner.prior(scales), problem.leaf_names
    with_noise = math.exp(scales.log_noise) if search.noise else None
    likelihood, own = problem.likelihood, jax.device_get(latents)
    if with_noise is not None and noise == "fixed":
        likelihood = likelihood.with_noise(with_noise)
        own = own._replace(likelihood={k: v for k, v in own.likelihood.items() if k != search.noise})
    tuning = Tuning(
        scales={names[i]: float(np.sqrt(np.mean(1 / p))) for i, p in enumerate(prior.precisions)},
        noise=with_noise,
        log_evidence=measured.log_evidence,
        history=np.array([one.log_evidence for one in found]),
        effective={names[i]: value for i, value in sorted(measured.effective.items())},
        sizes={names[i]: p.size for i, p in enumerate(prior.precisions)},
        structure=search.structure,
    )
    return TunedProblem(
        network=problem.network,
        likelihood=likelihood,
        prior={names[i]: _as_prior(*one) for i, one in enumerate(zip(*prior, strict=True))},
        temperature=problem.temperature,
        fixed=problem.fixed,
        tuning=tuning,
        latents_at_mode=own,
    )


def _check_problem(problem: Any, data: Any) -> None:
    if not isinstance(problem, Problem):
        raise TypeError(f"p.tune takes a px.Problem, got {type(problem).__name__}")
    if is_loader(data):
        raise ValueError("p.tune passes over the data many times: give arrays (x, y), not a loader")
    if problem.temperature != 1.0:
        raise ValueError(
            f"the marginal likelihood is that of temperature 1, but the problem has {problem.temperature:g}: tune it "
            f"at 1, then set the temperature"
        )


def _given_priors(problem: Problem) -> Prior:
    """The means and precisions of the network's weights."""
    means, precisions = [], []
    for name, leaf, prior in zip(
        problem.leaf_names, jax.tree.leaves(problem.network.params), problem.leaf_priors, strict=False
    ):
        base = prior.base_dist if isinstance(prior, dist.ExpandedDistribution) else prior
        if not isinstance(base, dist.Normal):
            why = "" if has_density(prior) else ", which has no density"
            raise ValueError(
                f"p.tune chooses the scales of Gaussian priors with independent weights, but {name} has "
                f"{type(base).__name__}{why}: start from p.Normal() or p.HeNormal()"
            )
        means.append(np.broadcast_to(np.asarray(base.loc, np.float64), leaf.shape))
        precisions.append(np.broadcast_to(np.asarray(base.scale, np.float64) ** -2, leaf.shape))
    return Prior(means, precisions)


def _as_prior(mean: np.ndarray, precision: np.ndarray) -> Any:
    """The prior of one leaf: one scale for all weights if that is so."""
    scale = 1 / np.sqrt(precision)
    if np.ptp(mean) == 0 and np.ptp(precision) == 0:
        return Normal(float(scale.flat[0]), float(mean.flat[0]))
    return Given(dist.Normal(mean.astype(np.float32), scale.astype(np.float32)))


def _start(problem: Problem, start: Any) -> Latents:
    if not isinstance(start, Posterior):
        check_choice("start", start, ("network",))
        return problem.latents
    if not isinstance(start, DrawsPosterior) or start.support > 1:
        raise ValueError(f"start must be one set of weights, such as that of px.MAP(), got {start!r}")
    check_same_network(start, problem)
    return jax.tree.map(lambda leaf: leaf[0], start.draw(jax.random.key(0), np.arange(1), 1))


def _search(problem: Problem, examples: Examples, structure: Structure) -> ModeSearch:
    sample = jax.tree.map(lambda a: np.asarray(a[:8]), examples.x)
    task = Task(
        problem=problem,
        example=spec_of_example(sample),
        num_examples=len(examples.y),
        steps=1,
        couples_examples=problem.couples_examples(sample),
    )
    if task.couples_examples:
        raise ValueError(
            "the network's outputs for one example depend on the others in its batch (batch statistics), so the "
            f"curvature of its likelihood is not a sum over examples. {problem.network.how_to_uncouple}"
        )
    leaves = jax.tree.leaves(problem.network.params)
    weights = sum(leaf.size for leaf in leaves)
    rows = len(examples.y) * math.prod(problem.output_spec(sample).shape[1:])
    if structure == "auto":
        structure = "full" if has_small_curvature(rows, weights) else "kronecker"
    if structure == "full" and not has_small_curvature(rows, weights):
        raise ValueError(
            f"the curvature of {rows:,} outputs by {weights:,} weights is too large to decompose in every round: use "
            f'structure="kronecker"'
        )
    plan = None if structure == "full" else structure_of(structure, task, range(len(leaves)))
    return ModeSearch(problem, examples, structure, plan, problem.likelihood.log_noise)
