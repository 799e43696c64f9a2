"""The experiments beside the comparison of methods: temperatures, priors, mixing, shift and regression.

- HMC at other temperatures and with other priors, and SGHMC with and without augmentation.
- HMC with unit masses and fixed step size, as the paper has it: trajectory length, step size, burn-in.
- HMC on noisy pixels, and EmpCov, the prior that remedies it. Pixels that are black in all training images leave their
  weights at the prior: under the posterior they are as wide as before, at the MAP solution they are 0. Noise on such
  pixels then reaches the draws of HMC, but not MAP. (Izmailov, Nicholson, Lotfi and Wilson 2021)
- UCI regression over standard splits: HMC beside a deep ensemble, mean-field VI, SGLD and MAP.
"""

import math
from typing import Any

import jax
import numpy as np

from posteriax import priors as p
from posteriax import zoo
from posteriax.data import DataSet, RandomCrop, RandomFlip, corrupt
from posteriax.evaluation import evaluate
from posteriax.likelihoods import Normal
from posteriax.methods import HMC
from posteriax.posterior import Posterior
from posteriax.problem import Problem
from posteriax.studies.bnn_posteriors.methods import (
    ENSEMBLE_ROW,
    HMC_ROW,
    LONGEST,
    MAP_ROW,
    VI_ROW,
    class_scores,
    fit_ensemble,
    fit_mean_field,
    fit_sg_mcmc,
    mean_nll,
    probabilities,
    quality,
    sample,
)
from posteriax.studies.bnn_posteriors.networks import (
    FIRST_LAYERS,
    LENET_KERNEL,
    TargetExamples,
    build_problem,
    load_examples,
    prepare,
)
from posteriax.studies.bnn_posteriors.settings import Mixing, PosteriorsSettings, Regression, Target, TrainingRecipe
from posteriax.studies.results import Json, mean_entries
from posteriax.studies.study import Cell
from posteriax.studies.workbench import Examples, Workbench, split_members

CROP = 1  # pixels around an image
AUGMENTATIONS = ("none", "crop and flip")
ATTEMPTS, AGAIN = 5, 1000  # with a large step size, and what is added to the key of the next
FIRST_LAYER = FIRST_LAYERS["MLP"]
GAUSSIAN = "Normal"
SEVERITY = 5
SHIFT_ROWS = ("HMC", "HMC, EmpCov", "MAP", "deep ensemble")
REGRESSION_ROWS = (HMC_ROW, "SGLD", ENSEMBLE_ROW, VI_ROW, MAP_ROW)


def run_temperature(cell: Cell, settings: PosteriorsSettings, bench: Workbench) -> dict[str, Json]:
    """HMC on p(D | w)^(1/T) p(w)^(1/T)."""
    (target,) = (target for target in settings.tempered if target.name == cell["target"])
    examples = load_examples(bench, target, cell.seed)
    problem = build_problem(target, examples, temperature=float(cell["temperature"]))
    posterior = sample(bench, problem, examples.train, settings.short, cell.seed)
    return sampled_scores(posterior, examples.test)


def run_augmentation(cell: Cell, settings: PosteriorsSettings, bench: Workbench) -> dict[str, Json]:
    """SGHMC at a temperature, with or without augmentation."""
    target = settings.augmented
    examples = load_examples(bench, target, cell.seed)
    problem = build_problem(target, examples, temperature=float(cell["temperature"]))
    augment = [RandomCrop(CROP), RandomFlip()] if cell["augmentation"] != AUGMENTATIONS[0] else None
    posterior = fit_sg_mcmc(bench, "SGHMC", problem, examples.train, target.recipe, cell.seed, augment=augment)
    return class_scores(probabilities(posterior, examples.test[0]).mean(axis=(0, 1)), examples.test[1], None)


def run_prior(cell: Cell, settings: PosteriorsSettings, bench: Workbench) -> dict[str, Json]:
    """HMC under a prior of some family and variance."""
    target = settings.varied
    examples = load_examples(bench, target, cell.seed)
    prior = prior_with_variance(cell["family"], float(cell["variance"]))
    problem = build_problem(target, examples, prior=prior)
    posterior = sample(bench, problem, examples.train, settings.short, cell.seed)
    result = sampled_scores(posterior, examples.test)
    if cell["family"] != GAUSSIAN:
        return result
    ensemble = fit_ensemble(bench, problem, examples.train, target.recipe, cell.seed)
    single = [probabilities_of(member, examples.test[0]) for member in split_members(ensemble)]
    return {**result, "map": mean_entries([class_scores(probs, examples.test[1], None) for probs in single])}


def probabilities_of(posterior: Posterior, x: np.ndarray) -> np.ndarray:
    """What the average over a posterior's draws predicts."""
    predictive: Any = posterior.predict(x, reduce=True)
    return np.asarray(predictive.probs, np.float64)


def run_grid(cell: Cell, settings: PosteriorsSettings, bench: Workbench) -> dict[str, Json]:
    """HMC at a temperature, under a Gaussian prior of some variance, scored on training images held out as well."""
    target = settings.varied
    examples = load_examples(bench, target, cell.seed)
    prior = prior_with_variance(GAUSSIAN, float(cell["variance"]))
    problem = build_problem(target, examples, temperature=float(cell["temperature"]), prior=prior)
    posterior = sample(bench, problem, examples.train, settings.short, cell.seed)
    held_out = load_examples(bench, target, cell.seed, held_out=True).test
    probs = probabilities_of(posterior, held_out[0])
    return {**sampled_scores(posterior, examples.test), "held_out_nll": mean_nll(probs, held_out[1])}


def run_architecture(cell: Cell, settings: PosteriorsSettings, bench: Workbench) -> dict[str, Json]:
    """HMC on one of several networks, with the same images and prior."""
    (target,) = (target for target in settings.architectures if target.name == cell["target"])
    examples = load_examples(bench, target, cell.seed)
    posterior = sample(bench, build_problem(target, examples), examples.train, target.sampling, cell.seed)
    return sampled_scores(posterior, examples.test)


def prior_with_variance(family: str, variance: float) -> p.Prior:
    """One prior for all weights.

    >>> prior_with_variance("Normal", 0.25)
    Normal(scale=0.5, loc=0.0)
    """
    (prior,) = p.scale_sweep([variance], family).values()
    return prior


def sampled_scores(posterior: Posterior, test: Examples) -> dict[str, Json]:
    """Scores of the average over HMC's draws, and how well they were sampled."""
    draws = probabilities(posterior, test[0])
    return {
        "quality": quality(posterior, draws),
        **class_scores(draws.mean(axis=(0, 1), dtype=np.float64), test[1], None),
    }


def quarter_period(variance: float) -> float:
    """The paper's trajectory for a prior N(0, variance): pi / 2 times its scale.

    >>> round(quarter_period(1 / 5), 4)
    0.7025
    """
    return math.pi / 2 * math.sqrt(variance)


def run_mixing(cell: Cell, settings: PosteriorsSettings, bench: Workbench) -> dict[str, Json]:
    """Chains from initial weights, for one trajectory length and step size."""
    mixing, target = settings.mixing, settings.mixing.target
    examples = load_examples(bench, target, cell.seed)
    problem = build_problem(target, examples)
    trajectory = float(cell["trajectory"]) * quarter_period(target.prior_variance)
    step_size = min(float(cell["step"]) * mixing.step_size, trajectory)
    method = HMC(
        step_size=step_size,
        trajectory=trajectory,
        warmup=mixing.burn_in,
        start="network",
        max_leapfrogs=LONGEST,
        jitter=0.0,
    )
    posterior = _fit(bench, problem, examples.train, method, mixing, cell.seed)
    x, y = examples.test
    draws = probabilities(posterior, x)
    nll = [[mean_nll(probs, y) for probs in chain] for chain in draws]
    return {
        "quality": quality(posterior, draws),
        "log_joint": np.atleast_2d(posterior.trace["log_joint"]).mean(axis=0),
        "draw_nll": np.mean(nll, axis=0),  # of single draws, by iteration after the burn-in
        **class_scores(draws.mean(axis=(0, 1), dtype=np.float64), y, None),
    }


def _fit(bench: Workbench, problem: Problem, train: Examples, method: HMC, mixing: Mixing, key: int) -> Posterior:
    """The chains; if one of them has not moved by the end of the burn-in, all start again from other weights."""
    for attempt in range(ATTEMPTS):
        try:
            return bench.fit(
                problem, train, method, draws=mixing.draws, chains=mixing.chains, key=key + AGAIN * attempt
            )
        except RuntimeError as error:
            if "warm-up proposals" not in str(error) or attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def run_shift(cell: Cell, settings: PosteriorsSettings, bench: Workbench) -> dict[str, Json]:
    """Accuracies by noise and corruption of HMC under both priors, of MAP and of a deep ensemble."""
    (target,) = (t for t in (settings.shifted, *settings.also_shifted) if t.name == cell["target"])
    examples = load_examples(bench, target, cell.seed)
    scale, first = math.sqrt(target.prior_variance), FIRST_LAYERS[target.network]
    kernel = LENET_KERNEL if target.network == "LeNet" else None
    empirical = {"**": p.Normal(scale), first: p.EmpCov(examples.train[0], scale, kernel=kernel)}
    problems = [build_problem(target, examples, prior=prior) for prior in (None, empirical)]
    plain, remedied = (
        sample(bench, problem, examples.train, sampling, cell.seed)
        for problem, sampling in zip(problems, (settings.short, settings.remedied), strict=True)
    )
    ensemble = fit_ensemble(bench, problems[0], examples.train, target.recipe, cell.seed)
    sets = shifted_sets(target, examples, settings, cell.seed)
    x, y = np.concatenate(list(sets.values())), examples.test[1]
    scored: dict[str, Json] = {}
    for row, posterior in (("HMC", plain), ("HMC, EmpCov", remedied), ("deep ensemble", ensemble)):
        predictive: Any = posterior.predict(x, reduce=True)
        scored[row] = accuracies(predictive.probs, y, sets)
    members = [chain.predict(x, reduce=True) for chain in split_members(ensemble)]
    scored["MAP"] = mean_entries([accuracies(member.probs, y, sets) for member in members])  # type: ignore[attr-defined]
    tests = [probabilities(posterior, examples.test[0]) for posterior in (plain, remedied)]
    return {
        **scored,
        "quality": quality(plain, tests[0]),
        "quality_empcov": quality(remedied, tests[1]),
        **({} if kernel else {"unlit": unlit_weights(plain, ensemble, examples.train[0], scale)}),
    }


def shifted_sets(
    target: Target, examples: TargetExamples, settings: PosteriorsSettings, seed: int
) -> dict[str, np.ndarray]:
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


def run_regression(cell: Cell, settings: PosteriorsSettings, bench: Workbench) -> dict[str, Json]:
    """All methods on one split of one set."""
    name = cell["data"]
    chosen, data = settings.regression.for_set(name), bench.load(name, split=cell.seed)
    train = training_rows(data.train, chosen.rows, cell.seed)
    return {"rows": len(train[1]), **fit_all(bench, chosen, train, data, cell.seed)}


def fit_all(bench: Workbench, chosen: Regression, train: Examples, data: DataSet, seed: int) -> dict[str, Json]:
    """The scores of every method on `data.test`, in the units of the data, from training on `train`."""
    problem = regression_problem(chosen, train[0].shape[1])
    ensemble = fit_ensemble(bench, problem, train, chosen.recipe, seed)
    truth = sample(bench, problem, train, chosen.sampling, seed, start=ensemble)
    scored = {
        HMC_ROW: scores_in_units(truth, data),
        ENSEMBLE_ROW: scores_in_units(ensemble, data),
        MAP_ROW: single_members(ensemble, data),
        VI_ROW: scores_in_units(fit_mean_field(bench, problem, train, chosen.recipe, seed, ensemble), data),
        "SGLD": scores_in_units(fit_sg_mcmc(bench, "SGLD", problem, train, chosen.recipe, seed), data),
    }
    shape = (chosen.sampling.chains, chosen.sampling.draws, -1)
    means = truth.predict(data.test[0]).per_draw().reshape(shape)
    return {**scored, "quality": quality(truth, means)}


def regression_problem(chosen: Regression, inputs: int) -> Problem:
    outputs = 2 if chosen.scale == "predicted" else 1
    net = zoo.uci_mlp(inputs=inputs, hidden=(chosen.hidden,), outputs=outputs, key=jax.random.key(0))
    return Problem(net, Normal(scale=chosen.scale), p.Normal(math.sqrt(chosen.prior_variance)))


def training_rows(train: Examples, most: int, seed: int) -> Examples:
    """All training rows, or a random part of them."""
    x, y = train
    rows = np.sort(np.random.default_rng((seed, 6)).permutation(len(y))[:most])
    return x[rows], y[rows]


def scores_in_units(posterior: Posterior, data: DataSet) -> dict[str, float]:
    """RMSE and mean log-likelihood, in the units of the data: those of the average over draws, a mixture."""
    predictive = posterior.predict(data.test[0], None if posterior.support else TrainingRecipe.vi_draws)
    return _in_units(evaluate(predictive, data.test[1], scores=["rmse", "nll"]), data)


def single_members(ensemble: Posterior, data: DataSet) -> dict[str, float]:
    """The same for single members of an ensemble, on average."""
    return mean_entries([scores_in_units(member, data) for member in split_members(ensemble)])


def _in_units(scored: dict[str, float], data: DataSet) -> dict[str, float]:
    assert data.target_scaling is not None
    unit = float(np.asarray(data.target_scaling.scale).reshape(-1)[0])
    return {"rmse": scored["rmse"] * unit, "log_likelihood": -scored["nll"] - math.log(unit)}
