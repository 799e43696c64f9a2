"""What is measured of a trained network: scores, spectra, truncations, and the course of training.

    -ELBO = KL(q || p) / N + E_q[-log p(y | x, w)] on test examples            N training examples

as in the paper's tables, in nats per example; point estimates have no KL. The NLL is that of the averaged predictions.
"""

import time
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from posteriax import analysis
from posteriax import families as q
from posteriax.evaluation.evaluate import evaluate
from posteriax.methods.map import MAP
from posteriax.methods.vi import VI
from posteriax.posterior.posterior import Posterior
from posteriax.posterior.variational import VariationalPosterior
from posteriax.problem import Problem
from posteriax.run.gradient_noise import GradientNoise
from posteriax.run.watch import Watch
from posteriax.studies.k_tied.networks import LEAVES, MEAN_FIELD, RANKS, Training, family_of
from posteriax.studies.workbench import Workbench

WINDOW = 10  # batches over which signal and noise are measured
KEPT = 10  # singular values
POINTS = 60  # of a curve
DENSE_2 = "layers/1/weight/"  # whose signal-to-noise ratio the paper reports
EVALUATION_KEY = 1  # draws for predictions: the same noise for every truncation


def train(
    network: str,
    family: str,
    problem: Problem,
    data: Any,
    training: Training,
    seed: int,
    bench: Workbench,
    first: Posterior | None,
) -> VariationalPosterior:
    """The run to convergence, from where the first steps ended, if there are any."""
    ramp = max(1.0, training.annealing * training.steps)
    method = VI(
        family_of(network, family),
        optimizer=optax.adam(training.rate) if training.rate else None,
        kl_schedule=(lambda step: jnp.minimum(1.0, (step + 1) / ramp)) if training.annealing else None,
        # one draw of the weights for the whole batch, as in the paper, or noise per example: the optimum is the same
        estimator="weight" if training.rate else "auto",
        start="network" if first is None else first,
    )
    batch_size = min(training.batch_size, len(data[1]))
    posterior = bench.fit(problem, data, method, steps=training.steps, batch_size=batch_size, key=seed)
    assert isinstance(posterior, VariationalPosterior)
    return posterior


def kl_of_random(posterior: VariationalPosterior) -> float:
    """KL(q || p) in nats of the leaves that are random."""
    priors, total = posterior.problem.leaf_priors, 0.0
    for block in posterior.blocks:
        if block.family.random:
            own = jax.tree.map(lambda leaf: leaf[0], posterior.variational[block.name])
            total += float(block.family.kl(own, block.prior(priors), jax.random.key(0)))
    return total


def untied(posterior: VariationalPosterior) -> VariationalPosterior:
    """The same distribution as mean-field: one compiled program then draws from all families and truncations."""
    families, variational = dict(posterior.families), dict(posterior.variational)
    for name, family in posterior.families.items():
        if isinstance(family, q.KTied):
            mean, scale = jax.vmap(family.moments)(variational[name])
            families[name], variational[name] = q.Normal(), {"mean": mean, "log_scale": jnp.log(scale)}
    return replace(posterior, families=families, variational=variational)


def scores(posterior: VariationalPosterior, test: Any, examples: int, draws: int) -> dict[str, float]:
    """-ELBO, NLL and accuracy in per cent on the test examples."""
    x, y = test
    predictive: Any = untied(posterior).predict(x, draws, key=EVALUATION_KEY)
    found = evaluate(predictive, y, scores=("nll", "accuracy"))
    return {
        "negative_elbo": kl_of_random(posterior) / examples + expected_nll(predictive, y),
        "nll": found["nll"],
        "accuracy": 100 * found["accuracy"],
    }


def expected_nll(predictive: Any, y: np.ndarray) -> float:
    """The negative log-likelihood per example, averaged over draws."""
    log_probs = np.asarray(predictive.log_probs_per_draw, np.float64)
    return float(-np.take_along_axis(log_probs, np.asarray(y)[None, :, None], axis=2).mean())


def low_rank(network: str, posterior: VariationalPosterior, test: Any, examples: int, draws: int) -> dict[str, Any]:
    """Spectra of a mean-field posterior's matrices, and its scores once their scales are truncated."""
    leaves = LEAVES[network]
    found = analysis.spectra(posterior, leaves)
    return {
        "spectra": {
            name: {
                "shape": list(one.scale.shape),
                "scales": one.scale_explained[:KEPT],
                "means": one.mean_explained[:KEPT],
                "mean_scale": float(one.scale.mean()),
            }
            for name, one in found.items()
        },
        "mean_scale": float(np.concatenate([one.scale.ravel() for one in found.values()]).mean()),
        "truncation": {str(k): scores(analysis.truncate(posterior, k, leaves), test, examples, draws) for k in RANKS},
    }


def curve(posterior: Posterior, examples: int) -> dict[str, list[float]]:
    """-ELBO per training example during a run, averaged over parts of it."""
    values = -np.asarray(posterior.trace["elbo"], np.float64).reshape(-1) / examples
    parts = np.array_split(np.arange(len(values)), min(POINTS, len(values)))
    return {
        "step": [float(part.mean()) + 1 for part in parts],
        "negative_elbo": [float(values[part].mean()) for part in parts],
    }


def settling(posterior: Posterior, examples: int) -> float:
    """How much -ELBO still fell between the last two tenths of a run, in nats per example."""
    values = -np.asarray(posterior.trace["elbo"], np.float64).reshape(-1) / examples
    tenth = max(1, len(values) // 10)
    if len(values) < 2:
        return float("nan")
    return float(values[-2 * tenth : -tenth].mean() - values[-tenth:].mean())


def first_steps(
    family: str,
    problem: Problem,
    data: Any,
    rate: float,
    every: int,
    last: int,
    batch_size: int,
    seed: int,
    bench: Workbench,
) -> tuple[Posterior, dict[str, Any]]:
    """The posterior after the first steps with Adam, as in the paper; signal-to-noise ratio and -ELBO on the way.

    Windows of ten batches begin at steps 0, `every`, ..., `last`. There is no annealing, and one draw of the weights
    for each batch. The ratio is sum E[g^2] / sum Var[g] over the parameters of the second layer's scales: an average of
    ratios is dominated by units that have died, whose gradient is that of the KL alone and hardly varies.
    """
    method = VI(family_of("MLP", family), optimizer=optax.adam(rate), estimator="weight")
    posterior = _timed_fit(problem, data, method, last + WINDOW, every, batch_size, seed, bench)
    signal = analysis.gradient_noise(posterior)
    names = [name for name in signal.pooled if name.startswith(DENSE_2) and not name.endswith("/mean")]
    elbo = np.asarray(posterior.trace["elbo"], np.float64).reshape(-1)
    begins = np.asarray(signal.steps) - WINDOW
    return (
        posterior,
        {
            "step": begins.tolist(),
            "signal": np.mean([signal.pooled[name] for name in names], axis=0),  # log u and log v have as many entries
            "mean_ratio": np.mean([signal.paper[name] for name in names], axis=0),
            "negative_elbo": [-elbo[begin : begin + WINDOW].mean() / len(data[1]) for begin in begins],
        },
    )


def point_steps(
    problem: Problem, data: Any, rate: float, every: int, last: int, batch_size: int, seed: int, bench: Workbench
) -> None:
    """The time of a step without any posterior, into the bench's times."""
    _timed_fit(problem, data, MAP(optax.adam(rate)), last + WINDOW, every, batch_size, seed, bench)


def _timed_fit(
    problem: Problem, data: Any, method: Any, steps: int, every: int, batch_size: int, seed: int, bench: Workbench
) -> Posterior:
    """A fit; the median time of a step, without compilation, goes into the bench's times."""
    posterior = bench.fit(
        problem,
        data,
        method,
        steps=steps,
        batch_size=min(batch_size, len(data[1])),
        key=seed,
        record=GradientNoise(window=WINDOW, every=every),
        watch=Watch(lambda posterior: {"clock": time.monotonic()}, every=every),
    )
    clock, at = posterior.trace["clock"], posterior.trace["watched_step"]
    if len(at) > 1:
        bench.times["seconds_per_step"] = float(np.median(np.diff(clock) / np.diff(at)))
    return posterior


def measure_converged(
    network: str,
    family: str,
    posterior: VariationalPosterior,
    test: Any,
    examples: int,
    draws: int,
) -> dict[str, Any]:
    """Everything that a claim, table or figure needs from a run to convergence."""
    result: dict[str, Any] = {
        "scores": scores(posterior, test, examples, draws),
        "parameters": posterior.num_parameters,
        "curve": curve(posterior, examples),
        "settling": settling(posterior, examples),
    }
    if family == MEAN_FIELD:
        result |= low_rank(network, posterior, test, examples, draws)
    return result
