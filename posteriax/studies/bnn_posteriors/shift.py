"""HMC on noisy pixels, and EmpCov, the prior that remedies it.

Pixels that are black in all training images leave their weights at the prior: under the posterior they are as wide as
before, at the MAP solution they are 0. Noise on such pixels then reaches the draws of HMC, but not MAP. (Izmailov,
Nicholson, Lotfi and Wilson 2021)
"""

import math
from typing import Any

import jax
import numpy as np

from posteriax import priors as p
from posteriax.data import corrupt
from posteriax.posterior import Posterior
from posteriax.studies.bnn_posteriors.examples import Examples, load_examples, prepare, problem_of
from posteriax.studies.bnn_posteriors.methods import chains_of, fit_ensemble, mean_of
from posteriax.studies.bnn_posteriors.sampling import probabilities, quality, sample
from posteriax.studies.bnn_posteriors.settings import Settings, Target
from posteriax.studies.study import Cell
from posteriax.studies.workbench import Workbench

FIRST_LAYER = "layers/0/weight"
SEVERITY = 5
ROWS = ("HMC", "HMC, EmpCov", "MAP", "deep ensemble")


def run_shift(cell: Cell, settings: Settings, bench: Workbench) -> dict[str, Any]:
    """Accuracies by noise and corruption of HMC under both priors, of MAP and of a deep ensemble."""
    target = settings.shifted
    examples = load_examples(bench, target, cell.seed)
    scale = math.sqrt(target.prior_variance)
    empirical = {"**": p.Normal(scale), FIRST_LAYER: p.EmpCov(examples.train[0], scale)}
    problems = [problem_of(target, examples, prior=prior) for prior in (None, empirical)]
    plain, remedied = (
        sample(bench, problem, examples.train, sampling, cell.seed)
        for problem, sampling in zip(problems, (settings.short, settings.remedied), strict=True)
    )
    ensemble = fit_ensemble(bench, problems[0], examples.train, target.recipe, cell.seed)
    sets = shifted_sets(target, examples, settings, cell.seed)
    x, y = np.concatenate(list(sets.values())), examples.test[1]
    found: dict[str, Any] = {}
    for row, posterior in (("HMC", plain), ("HMC, EmpCov", remedied), ("deep ensemble", ensemble)):
        predictive: Any = posterior.predict(x, reduce=True)
        found[row] = accuracies(predictive.probs, y, sets)
    members = [chain.predict(x, reduce=True) for chain in chains_of(ensemble)]
    found["MAP"] = mean_of([accuracies(one.probs, y, sets) for one in members])  # type: ignore[attr-defined]
    tests = [probabilities(posterior, examples.test[0]) for posterior in (plain, remedied)]
    return {
        **found,
        "quality": quality(plain, tests[0]),
        "quality_empcov": quality(remedied, tests[1]),
        "unlit": unlit_weights(plain, ensemble, examples.train[0], scale),
    }


def shifted_sets(target: Target, examples: Examples, settings: Settings, seed: int) -> dict[str, np.ndarray]:
    """Test inputs by name: with noise added to the network's inputs, and corrupted before they are averaged down."""
    rng, x = np.random.default_rng((seed, 5)), examples.test[0]
    sets = {noise_name(noise): (x + noise * rng.normal(size=x.shape)).astype(np.float32) for noise in settings.noises}
    for kind in settings.shifts:
        sets[kind] = prepare(target, np.asarray(corrupt(examples.images, kind, SEVERITY, seed)))
    return sets


def noise_name(noise: float) -> str:
    return f"noise {noise:g}".replace(".", "_")  # a point separates the names of a path


def accuracies(probs: Any, y: np.ndarray, sets: dict[str, np.ndarray]) -> dict[str, float]:
    """The accuracy on each of the sets, which were predicted one after the other."""
    right = (np.asarray(probs).argmax(axis=-1) == np.tile(y, len(sets))).reshape(len(sets), -1)
    return dict(zip(sets, right.mean(axis=1).tolist(), strict=True))


def unlit_weights(truth: Posterior, ensemble: Posterior, x: np.ndarray, scale: float) -> dict[str, float]:
    """Weights of pixels that are black in all training images, in units of the prior's scale: their standard deviation
    under HMC, and their root mean square at the MAP solutions."""
    unlit = ~x.reshape(len(x), -1).any(axis=0)
    if not unlit.any():
        return {"pixels": 0.0, "hmc": math.nan, "map": math.nan}
    ours, modes = (_first_layer(posterior)[:, unlit] for posterior in (truth, ensemble))
    return {
        "pixels": float(unlit.sum()),
        "hmc": float(np.sqrt(np.square(ours).mean()) / scale),
        "map": float(np.sqrt(np.square(modes).mean()) / scale),
    }


def _first_layer(posterior: Posterior) -> np.ndarray:
    """All draws of the first layer's matrix, (draws, inputs, units)."""
    names = posterior.problem.leaf_names
    leaf = np.asarray(jax.tree.leaves(posterior.draws)[names.index(FIRST_LAYER)])  # type: ignore[attr-defined]
    return leaf.reshape(-1, *leaf.shape[2:])
