"""HMC, with what every figure from it must state: acceptance, R-hat and effective draws."""

import math
from contextlib import nullcontext
from typing import Any

import jax
import numpy as np

from posteriax.diagnostics import ess_bulk, rhat, rhat_between
from posteriax.methods import HMC
from posteriax.posterior import Posterior
from posteriax.priors import CorrelatedNormal
from posteriax.problem import Problem
from posteriax.studies.bnn_posteriors.settings import Sampling
from posteriax.studies.workbench import Workbench

FAR = 1.1  # R-hat above it: chains disagree
EXAMINED = 2000  # weights
POINTS = 200  # test points
LONGEST = 200_000  # leapfrogs of a trajectory with a fixed step size
LARGE = 100_000  # weights: energies in float32 are then too coarse to accept or reject by


def sample(
    bench: Workbench, problem: Problem, train: Any, sampling: Sampling, key: int, start: Posterior | None = None
) -> Posterior:
    """Draws of HMC; chains start at random weights, or at draws of a posterior. Fixed step sizes are those of T = 1.

    Of large networks the energies are computed in double precision. The paper's CNN-LSTM at its random weights has an
    energy of 1.6e8 under a prior of variance 1/160, which float32 has to the nearest 16.
    """
    fixed = sampling.step_size > 0
    large = sum(leaf.size for leaf in jax.tree.leaves(problem.network.params)) > LARGE
    method = HMC(
        warmup=sampling.warmup,
        step_size=sampling.step_size * math.sqrt(problem.temperature) if fixed else None,
        trajectory=sampling.trajectory or None,
        masses="prior" if fixed or sampling.trajectory or correlated(problem) else "adapted",
        max_leapfrogs=LONGEST if fixed else sampling.leapfrogs,
        start=start or "network",
        float64_accept=large,
    )
    with jax.enable_x64(True) if large else nullcontext():
        return bench.fit(problem, train, method, draws=sampling.draws, chains=sampling.chains, key=key)


def correlated(problem: Problem) -> bool:
    """Whether a prior has correlated weights: masses then come from the priors."""
    return any(isinstance(prior, CorrelatedNormal) for prior in problem.leaf_priors)


def probabilities(posterior: Posterior, x: Any) -> np.ndarray:
    """What every draw predicts, (chains, draws, examples, classes)."""
    chains, each = jax.tree.leaves(posterior.draws)[0].shape[:2]  # type: ignore[attr-defined]
    predictive: Any = posterior.predict(x)
    probs = np.exp(np.asarray(predictive.log_probs_per_draw))
    return probs.reshape(chains, each, *probs.shape[1:])


def quality(posterior: Posterior, predicted: np.ndarray) -> dict[str, Any]:
    """How well chains sampled and mixed, in predictions and in weights.

    R-hat of predictions is that of every number that is predicted at every test point: "rhat" is the largest
    rank-normalised split R-hat and "rhat_far" the share above 1.1; "plain" is R-hat as the paper has it, from means and
    variances.

    Args:
        posterior: of HMC.
        predicted: by every draw, (chains, draws, examples, ...).
    """
    draws = posterior.draws  # type: ignore[attr-defined]
    chains, each = predicted.shape[:2]
    functions = predicted[:, :, :POINTS].reshape(chains, each, -1).astype(np.float64)
    trace = {name: np.atleast_2d(np.asarray(posterior.trace[name], np.float64)) for name in RECORDED}
    after = {name: values[:, posterior.trace.warmup :] for name, values in trace.items()}
    found = {f"function_{name}": value for name, value in mixing_of(functions).items()}
    found |= {f"weight_{name}": value for name, value in mixing_of(some_weights(draws)).items()}
    return {
        **found,
        "acceptance": after["acceptance"].mean(),
        "divergent": after["divergent"].mean(),
        "leapfrogs": after["leapfrogs"].mean(),
        "step_size": np.median(after["step_size"]),
        "chains": chains,
        "draws": each,
    }


RECORDED = ("acceptance", "divergent", "leapfrogs", "step_size")


def mixing_of(values: np.ndarray) -> dict[str, float]:
    """R-hat and effective draws of columns, (chains, draws, columns)."""
    ranked, plain, effective = rhat(values), rhat_between(values), ess_bulk(values)
    return {
        "rhat": float(np.nanmax(ranked)),
        "rhat_median": float(np.nanmedian(ranked)),
        "rhat_far": float((ranked > FAR).mean()),
        "plain": float(np.nanmax(plain)),
        "plain_median": float(np.nanmedian(plain)),
        "plain_far": float((plain > FAR).mean()),
        "effective": float(np.median(effective)),
        "effective_least": float(effective.min()),
    }


def some_weights(draws: Any) -> np.ndarray:
    """A seeded sample of all weights, (chains, draws, weights)."""
    leaves = [np.asarray(leaf).reshape(*leaf.shape[:2], -1) for leaf in jax.tree.leaves(draws)]
    whole = np.concatenate(leaves, axis=2)
    count = whole.shape[2]
    chosen = np.random.default_rng(0).permutation(count)[:EXAMINED]
    return whole[:, :, np.sort(chosen)].astype(np.float64)
