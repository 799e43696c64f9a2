"""HMC, with what every figure from it must state, and all methods on one target beside it.

HMC comes with its acceptance, R-hat and effective draws. The others are scored by how well they predict, and by how
close they are to HMC.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from posteriax import families as q
from posteriax.data import corrupt
from posteriax.diagnostics import ess_bulk, rhat, rhat_between
from posteriax.methods import HMC, MAP, MCLMC, SGHMC, SGLD, VI, Ensemble
from posteriax.metrics import agreement, auroc, ece_equal_mass, total_variation
from posteriax.posterior import Posterior
from posteriax.priors import CorrelatedNormal, Normal
from posteriax.problem import Problem
from posteriax.studies.bnn_posteriors.detectors import STEP, detectors
from posteriax.studies.bnn_posteriors.networks import (
    TargetExamples,
    build_problem,
    load_examples,
    load_outside,
    prepare,
)
from posteriax.studies.bnn_posteriors.settings import SG_MCMC, PosteriorsSettings, Sampling, Target, TrainingRecipe
from posteriax.studies.results import Json, mean_entries
from posteriax.studies.study import Cell
from posteriax.studies.workbench import Examples, Workbench, split_members

HMC_ROW, ENSEMBLE_ROW, MAP_ROW, VI_ROW, MCLMC_ROW = "HMC", "deep ensemble", "MAP", "mean-field VI", "MCLMC"
METHODS = (HMC_ROW, MCLMC_ROW, *SG_MCMC, ENSEMBLE_ROW, VI_ROW, MAP_ROW)
SPACED = 5  # every fifth draw of HMC alone
BINS = 20  # of equal mass, as the paper has it
RELIABILITY_BINS = 10  # of the diagrams
SMALLEST = 1e-30  # probability
FAR = 1.1  # R-hat above it: chains disagree
EXAMINED = 2000  # weights
POINTS = 200  # test points
LONGEST = 200_000  # leapfrogs of a trajectory with a fixed step size
RECORDED = ("acceptance", "divergent", "leapfrogs", "step_size")  # of every transition
LARGE = 100_000  # weights: energies in float32 are then too coarse to accept or reject by


def sample(
    bench: Workbench, problem: Problem, train: Examples, sampling: Sampling, key: int, start: Posterior | None = None
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
        masses="prior"
        if fixed or sampling.trajectory or correlated(problem)
        else "dense"
        if sampling.dense
        else "adapted",
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
    chains, draws = posterior.chains, posterior.draws_per_chain  # type: ignore[attr-defined]
    predictive: Any = posterior.predict(x)
    probs = np.exp(np.asarray(predictive.log_probs_per_draw))
    return probs.reshape(chains, draws, *probs.shape[1:])


def quality(posterior: Posterior, predicted: np.ndarray) -> dict[str, Json]:
    """How well chains sampled and mixed, in predictions and in weights.

    R-hat of predictions is that of every number that is predicted at every test point: "rhat" is the largest
    rank-normalised split R-hat and "rhat_far" the share above 1.1; "plain" is R-hat as the paper has it, from means and
    variances.

    Args:
        posterior: of HMC.
        predicted: by every draw, (chains, draws, examples, ...).
    """
    weights = sample_weights(posterior.draws)  # type: ignore[attr-defined]
    chains, draws = predicted.shape[:2]
    functions = predicted[:, :, :POINTS].reshape(chains, draws, -1).astype(np.float64)
    trace = {name: np.atleast_2d(np.asarray(posterior.trace[name], np.float64)) for name in RECORDED}
    after = {name: values[:, posterior.trace.warmup :] for name, values in trace.items()}
    return {
        **{f"function_{name}": value for name, value in chain_mixing(functions).items()},
        **{f"weight_{name}": value for name, value in chain_mixing(weights).items()},
        "acceptance": after["acceptance"].mean(),
        "divergent": after["divergent"].mean(),
        "leapfrogs": after["leapfrogs"].mean(),
        "step_size": np.median(after["step_size"]),
        "chains": chains,
        "draws": draws,
    }


def chain_mixing(values: np.ndarray) -> dict[str, float]:
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


def sample_weights(draws: Any) -> np.ndarray:
    """A seeded sample of all weights, (chains, draws, weights)."""
    leaves = [np.asarray(leaf).reshape(*leaf.shape[:2], -1) for leaf in jax.tree.leaves(draws)]
    weights = np.concatenate(leaves, axis=2)
    count = weights.shape[2]
    chosen = np.random.default_rng(0).permutation(count)[:EXAMINED]
    return weights[:, :, np.sort(chosen)].astype(np.float64)


class Inputs(NamedTuple):
    """What is predicted: test examples, corrupted ones and inputs from elsewhere; None if there are none."""

    test: tuple[np.ndarray, np.ndarray]
    corrupted: tuple[np.ndarray, np.ndarray] | None
    outside: np.ndarray | None
    corrupted_images: int = 1  # of each kind and severity


def run_methods(cell: Cell, settings: PosteriorsSettings, bench: Workbench) -> dict[str, Json]:
    """HMC and every approximation on one target."""
    (target,) = (target for target in settings.targets if target.name == cell["target"])
    examples = load_examples(bench, target, cell.seed)
    problem = build_problem(target, examples)
    corrupted = corrupt_all(target, examples, settings, cell.seed)
    images = min(settings.corrupted_test, len(examples.test[1]))
    inputs = Inputs(examples.test, corrupted, load_outside(bench, target, cell.seed), images)
    ensemble = fit_ensemble(bench, problem, examples.train, target.recipe, cell.seed)
    start = ensemble if target.start == "ensemble" else None
    truth = sample(bench, problem, examples.train, target.sampling, cell.seed, start)
    draws = probabilities(truth, examples.test[0])
    single = mean_entries(
        [class_scores(probs, examples.test[1], None) for probs in draws[:, ::SPACED].reshape(-1, *draws.shape[2:])]
    )
    reference = predict_chains(truth, inputs)
    result: dict[str, Json] = {"quality": quality(truth, draws), "single": single}
    result[HMC_ROW] = score_reference(reference, inputs)
    reference_mean = average(reference)
    halves = Halves.split(draws, target.recipe.draws)
    result["halves"] = {HMC_ROW: halves.second_half()}
    for name, posterior in approximations(bench, problem, examples.train, target, cell.seed, ensemble):
        members = predict_chains(posterior, inputs, target.recipe.vi_draws)
        result[name] = score(average(members), inputs, reference_mean)
        result["halves"][name] = halves.distance(average(members).test)
        if name == ENSEMBLE_ROW:
            result[MAP_ROW] = mean_entries([score(member, inputs, reference_mean) for member in members])
            result["halves"][MAP_ROW] = float(np.mean([halves.distance(member.test) for member in members]))
    by_severity(result, len(settings.severities))
    if inputs.outside is not None:
        step = STEP / target.spread
        result["detectors"] = detectors(ensemble, examples.train, inputs.test[0], inputs.outside, step)
    return result


class Halves(NamedTuple):
    """The test predictions of two halves of HMC's chains: how far methods, and HMC itself, are from the first one."""

    first: np.ndarray
    second: np.ndarray  # of as many draws as a method has

    @classmethod
    def split(cls, draws: np.ndarray, most: int) -> "Halves":
        """Of predictions by every draw, (chains, draws, examples, classes); `most` draws of a chain in the second."""
        middle = max(1, len(draws) // 2)
        thin = max(1, draws.shape[1] // most)
        second = draws[middle:] if len(draws) > 1 else draws
        return cls(*(part.mean(axis=(0, 1), dtype=np.float64) for part in (draws[:middle], second[:, ::thin])))

    def distance(self, probs: np.ndarray) -> float:
        return float(total_variation(probs, self.first))

    def second_half(self) -> float:
        return self.distance(self.second)


def by_severity(result: dict[str, Json], severities: int) -> None:
    """Replace the hits on corrupted images, kind by kind and severity by severity, by the accuracy by severity."""
    for row in result.values():
        hits = row.pop("corrupted_hits", None) if isinstance(row, dict) else None
        if hits is not None:
            row["severity"] = np.asarray(hits, np.float64).reshape(-1, severities).mean(axis=0).tolist()


def approximations(
    bench: Workbench, problem: Problem, train: Examples, target: Target, key: int, ensemble: Posterior
) -> Iterator[tuple[str, Posterior]]:
    """Posteriors by name, one after the other; VI and MCLMC start at members of the ensemble."""
    recipe = target.recipe
    yield ENSEMBLE_ROW, ensemble
    yield VI_ROW, fit_mean_field(bench, problem, train, recipe, key, ensemble)
    for name in target.kinds:
        if name == MCLMC_ROW:
            method = MCLMC(warmup=recipe.mclmc_warmup, thin=recipe.mclmc_thin, start=ensemble)
            yield name, bench.fit(problem, train, method, draws=recipe.draws, chains=recipe.chains, key=key)
        else:
            yield name, fit_sg_mcmc(bench, name, problem, train, recipe, key)


def fit_ensemble(bench: Workbench, problem: Problem, train: Examples, recipe: TrainingRecipe, key: int) -> Posterior:
    """Members trained by Adam, or by SGD with momentum and a weight decay of its own."""
    optimizer = falling_adam(recipe.rate, recipe.epochs, train, recipe)
    if recipe.momentum:
        steps = recipe.epochs * -(-len(train[1]) // batch_size(train, recipe))
        optimizer = optax.sgd(optax.cosine_decay_schedule(recipe.rate, steps), momentum=recipe.momentum)
    if recipe.weight_decay:
        problem = replace(problem, prior=Normal(1 / math.sqrt(recipe.weight_decay)))
    method = Ensemble(MAP(optimizer), recipe.members)
    return bench.fit(problem, train, method, epochs=recipe.epochs, batch_size=batch_size(train, recipe), key=key)


def fit_mean_field(
    bench: Workbench, problem: Problem, train: Examples, recipe: TrainingRecipe, key: int, start: Posterior
) -> Posterior:
    optimizer = falling_adam(recipe.vi_rate, recipe.vi_epochs, train, recipe)
    method = VI(q.Normal(), optimizer=optimizer, start=start)
    return bench.fit(problem, train, method, epochs=recipe.vi_epochs, batch_size=batch_size(train, recipe), key=key)


def fit_sg_mcmc(
    bench: Workbench, name: str, problem: Problem, train: Examples, recipe: TrainingRecipe, key: int, **settings: Any
) -> Posterior:
    """SGLD and its relatives; step sizes are those of T = 1, times T."""
    common: dict[str, Json] = {"warmup_epochs": recipe.warmup_epochs, "epochs_per_draw": recipe.epochs_per_draw}
    kinds: dict[str, Callable[[], SGHMC]] = {
        "SGLD": lambda: SGLD(recipe.sgld * problem.temperature, **common),
        "SGHMC": lambda: SGHMC(recipe.sghmc * problem.temperature, **common),
        "cyclical SGHMC": lambda: SGHMC(recipe.cyclical * problem.temperature, 0.95, cyclical=True, **common),
        "preconditioned SGHMC": lambda: SGHMC(
            recipe.preconditioned * problem.temperature, 0.95, cyclical=True, preconditioner="rmsprop", **common
        ),
    }
    if "cyclical" in name or "preconditioned" in name:
        common["epochs_per_draw"] = recipe.cycle_epochs or recipe.epochs_per_draw
    draws = max(1, recipe.draws * recipe.epochs_per_draw // common["epochs_per_draw"])
    length = {"draws": draws, "chains": recipe.chains, "batch_size": batch_size(train, recipe)}
    return bench.fit(problem, train, kinds[name](), key=key, **length, **settings)


def batch_size(train: Examples, recipe: TrainingRecipe) -> int:
    return min(recipe.batch_size, len(train[1]))


def falling_adam(rate: float, epochs: int, train: Examples, recipe: TrainingRecipe) -> optax.GradientTransformation:
    """Adam, with a rate that falls to 0 along a cosine."""
    steps = epochs * -(-len(train[1]) // batch_size(train, recipe))
    return optax.adam(optax.cosine_decay_schedule(rate, steps))


def corrupt_all(
    target: Target, examples: TargetExamples, settings: PosteriorsSettings, seed: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Some test images under every corruption and severity, one after the other; None for reviews."""
    if target.words or not settings.corruptions:
        return None
    images, y = examples.images[: settings.corrupted_test], examples.test[1][: settings.corrupted_test]
    kinds = [(kind, severity) for kind in settings.corruptions for severity in settings.severities]
    changed = [prepare(target, np.asarray(corrupt(images, *kind, seed))) for kind in kinds]
    return np.concatenate(changed), np.tile(y, len(kinds))


class Predicted(NamedTuple):
    """Probabilities for each of the inputs."""

    test: np.ndarray
    corrupted: np.ndarray | None
    outside: np.ndarray | None


def predict_chains(posterior: Posterior, inputs: Inputs, vi_draws: int = 100) -> list[Predicted]:
    """The averages over the draws of each chain, or the predictions of each member of an ensemble; of VI, one average.

    All inputs are predicted together, and chain by chain: few programs have to be compiled.
    """
    given = [inputs.test[0], None if inputs.corrupted is None else inputs.corrupted[0], inputs.outside]
    x = np.concatenate([part for part in given if part is not None])
    ends = np.cumsum([0 if part is None else len(part) for part in given])[:-1]
    predicted = []
    for chain in split_members(posterior):
        predictive: Any = chain.predict(x, None if chain.support else vi_draws, reduce=True)
        parts = np.split(np.asarray(predictive.probs, np.float64), ends)
        predicted.append(Predicted(*(part if len(part) else None for part in parts)))  # type: ignore[arg-type]
    return predicted


def average(members: list[Predicted]) -> Predicted:
    return Predicted(*(None if part[0] is None else np.mean(part, axis=0) for part in zip(*members, strict=True)))  # type: ignore[arg-type]


def score(predicted: Predicted, inputs: Inputs, reference: Predicted) -> dict[str, Json]:
    """Scores on test examples, the same on corrupted ones, and the detection of inputs from elsewhere."""
    scored: dict[str, Json] = class_scores(predicted.test, inputs.test[1], reference.test)
    scored["reliability"] = reliability_bins(predicted.test, inputs.test[1])
    if inputs.corrupted is not None and predicted.corrupted is not None:
        labels = inputs.corrupted[1]
        scored["corrupted"] = class_scores(predicted.corrupted, labels, reference.corrupted)
        sets = len(labels) // inputs.corrupted_images
        scored["corrupted_hits"] = (
            (predicted.corrupted.argmax(axis=-1) == labels).reshape(sets, -1).mean(axis=1).tolist()
        )
    if predicted.outside is not None:
        scored["auroc"] = detection(predicted.test, predicted.outside)
    return scored


def score_reference(chains: list[Predicted], inputs: Inputs) -> dict[str, Json]:
    """All chains together; their agreement and total variation are those of one chain with the others, on average."""
    together = average(chains)
    scored = score(together, inputs, together)
    others = [average([*chains[:i], *chains[i + 1 :]]) for i in range(len(chains))]
    single = mean_entries([score(chain, inputs, other) for chain, other in zip(chains, others, strict=True)])
    for target, source in ((scored, single), (scored.get("corrupted", {}), single.get("corrupted", {}))):
        target |= {name: source[name] for name in ("agreement", "total_variation") if name in source}
        target |= {f"one_chain_{name}": source[name] for name in ("accuracy", "nll") if name in source}
    return scored


def class_scores(probs: np.ndarray, y: np.ndarray, reference: np.ndarray | None) -> dict[str, float]:
    scored = {
        "accuracy": float((probs.argmax(axis=-1) == y).mean()),
        "nll": mean_nll(probs, y),
        "ece": float(ece_equal_mass(probs, y, bins=BINS)),
        "confidence": float(probs.max(axis=-1).mean()),
    }
    if reference is not None:
        scored["agreement"] = float(agreement(probs, reference))
        scored["total_variation"] = float(total_variation(probs, reference))
    return scored


def reliability_bins(probs: np.ndarray, y: np.ndarray) -> list[list[float]]:
    """Mean confidence and accuracy in bins of equal mass.

    >>> reliability_bins(np.array([[0.6, 0.4]] * 10 + [[0.9, 0.1]] * 10), np.array([0, 1] * 5 + [0] * 10))[0][::9]
    [0.6, 0.9]
    """
    confidence, right = probs.max(axis=-1), probs.argmax(axis=-1) == y
    bins = np.array_split(np.argsort(confidence, kind="stable"), RELIABILITY_BINS)
    return [[float(values[rows].mean()) for rows in bins if len(rows)] for values in (confidence, right)]


def mean_nll(probs: np.ndarray, y: np.ndarray) -> float:
    """Mean negative log probability of the labels.

    >>> mean_nll(np.array([[0.5, 0.5]]), np.array([1])).__round__(3)
    0.693
    """
    return float(-np.log(np.maximum(probs[np.arange(len(y)), y], SMALLEST)).mean())


def detection(inside: np.ndarray, outside: np.ndarray) -> float:
    """Area under the ROC curve of finding inputs from elsewhere by 1 - max p."""
    doubt = 1 - np.concatenate([inside, outside]).max(axis=-1)
    return float(auroc(doubt, np.repeat([0, 1], [len(inside), len(outside)])))
