"""The experiments: images, clean and corrupted, and clinical records; how methods are built, trained and measured.

predictions     log p(y | x, w_s), s = 1..S, (S, examples, classes): S draws, spread evenly over the components
NLL             -log 1/S sum_s p(y | x, w_s): the mixture, whatever the training objective was
ECE             15 bins of equal width of the highest probability
cNLL, cA, cECE  the same on corrupted images: means over the 15 kinds, of severities 1 to 5 together
kinds           the error rate on each kind, for mCE
members         means of the scores of single draws
diversity       pairs of members that predict different classes, divided by the error rate of their mean

Every kind of corruption is applied to five groups of test images, one for each severity. Images are corrupted
at full resolution; averaging pixels, where a network takes fewer, comes after.
"""

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from scipy.special import logsumexp

from posteriax import families as q
from posteriax import metrics
from posteriax.data import DataSet, RandomCrop, RandomFlip, corrupt
from posteriax.methods import MAP, VI, Ensemble, Method
from posteriax.posterior import Posterior, with_batch_statistics
from posteriax.problem import Problem
from posteriax.studies.rank_1.networks import INPUTS, WRN, image_problem, mortality_problem
from posteriax.studies.rank_1.settings import (
    ADDITIVE,
    BATCH_ENSEMBLE,
    CAUCHY,
    DEEP,
    DROPOUT,
    EMBEDDINGS,
    EQUAL,
    GAUSSIAN,
    HALF_CAUCHY,
    INPUT,
    LOG_NORMAL,
    MEAN_FIELD,
    MIXTURE,
    OUTPUT,
    Images,
    Mortality,
    Rank1Settings,
)
from posteriax.studies.results import Json, mean_entries
from posteriax.studies.study import Cell
from posteriax.studies.workbench import Examples, Workbench, average_pixels, linear_annealing

_corrupted: dict[Hashable, Examples] = {}  # the same for all cells


class ImageParts(NamedTuple):
    """Training and test examples; the corrupted ones by kind and severity, (kinds x severities x images, ...)."""

    train: Examples
    test: Examples
    corrupted: Examples
    classes: int


def load_images(plan: Images, bench: Workbench, seed: int = 0) -> ImageParts:
    """The data of a table. Pixels are centred and scaled by the mean and standard deviation of the training images."""
    data = bench.load(plan.data)
    (x, y), (x_test, y_test) = data.train, data.test
    if plan.own_images:
        order = np.random.default_rng((seed, 7)).permutation(len(y))[: plan.examples or None]
        x, y = x[order], y[order]
    x, y = x[: plan.examples or None], y[: plan.examples or None]
    centre, scale = float(x.mean()), float(x.std())

    def prepare(images: np.ndarray) -> np.ndarray:
        return (average_pixels(images, plan.pool) - centre) / scale

    worse, labels = corrupted_images(data, plan)
    tests = plan.tests or None
    return ImageParts(
        (prepare(x), y), (prepare(x_test[:tests]), y_test[:tests]), (prepare(worse), labels), len(data.classes)
    )


def corrupted_images(data: DataSet, plan: Images) -> Examples:
    """The first test images, so many for every severity, in all kinds of corruption."""
    count, kinds, severities = plan.corrupted, plan.kinds, plan.severities
    key = (data.name, count, kinds, severities)
    if key not in _corrupted:
        images, labels = data.test
        groups = [slice(i * count, (i + 1) * count) for i in range(len(severities))]
        made = [
            corrupt(images[group], kind, severity, 0)
            for kind in kinds
            for severity, group in zip(severities, groups, strict=True)
        ]
        repeated = np.concatenate([labels[group] for _ in kinds for group in groups])
        _corrupted[key] = np.concatenate(made), repeated
    return _corrupted[key]


CHANGES: Mapping[str, Mapping[str, Any]] = {
    GAUSSIAN: {},
    BATCH_ENSEMBLE: {"noise": "point"},
    CAUCHY: {"noise": "cauchy"},
    INPUT: {"place": "input"},
    OUTPUT: {"place": "output"},
    ADDITIVE: {"form": "additive"},
    MIXTURE: {"likelihood": "mixture"},
    LOG_NORMAL: {"noise": "log_normal"},
    HALF_CAUCHY: {"noise": "half_cauchy", "prior_scale": 1.0},  # the prior of a factor around 1 must reach it
}
NORMS = "**/norm/*"


def component_count(method: str, settings: Rank1Settings) -> int:
    """Components of a mixture or members of an ensemble; 1 for one network with random weights."""
    if method in (DROPOUT, MEAN_FIELD, EMBEDDINGS):
        return 1
    return int(method.removeprefix("K = ")) if method.startswith("K = ") else settings.members


def variational_families(method: str, settings: Rank1Settings) -> dict[str, q.Family]:
    """The variational families, by path; batch normalisations are point estimates that all components share."""
    if method == DROPOUT:
        return {"**": q.Dropout(settings.dropout)}
    if method == MEAN_FIELD:
        return {"**": q.Normal()}
    if method == EMBEDDINGS:
        return {INPUTS: q.Normal(), "**": q.Point()}
    scale = settings.cauchy_scale if method == CAUCHY else settings.factor_scale
    prior: dict[str, Any] = {} if method == HALF_CAUCHY else {"prior_scale": scale}
    # the authors start BatchEnsemble around 1, whatever the start of rank-1 factors
    around = "normal" if method == BATCH_ENSEMBLE else settings.start
    changes = CHANGES.get(method, {})
    changes = {**changes, "other": settings.other_side} if "place" in changes else changes
    positive = changes.get("noise") in ("log_normal", "half_cauchy")  # these start around 1, whatever is asked for
    start: dict[str, Any] = {} if positive else {"start": around, "start_value": settings.start_value}
    return {"**": q.Rank1(component_count(method, settings), **start, **prior, **changes)}


def build_method(
    method: str, plan: Images | Mortality, settings: Rank1Settings, *, norms: bool, examples: int
) -> Method | Ensemble:
    """What is fitted. `norms` says whether the network has batch normalisations."""
    rate = plan.rate if isinstance(plan, Images) else 0.0
    optimizer = falling_sgd(rate, plan.batch_size, examples, plan.steps) if rate else None
    if method in (DEEP, EQUAL):
        return Ensemble(MAP(optimizer), settings.members)
    families = variational_families(method, settings) | ({NORMS: q.Point()} if norms else {})
    if optimizer is not None and method == BATCH_ENSEMBLE:
        optimizer = optax.chain(optimizer, optax.masked(optax.scale(settings.fast_rate), factor_mask))
    annealed = method not in (BATCH_ENSEMBLE, DROPOUT)  # these have no KL, only weight decay
    return VI(
        families,
        estimator="flipout" if method in (MEAN_FIELD, EMBEDDINGS) else "auto",
        optimizer=optimizer,
        kl_schedule=linear_annealing(plan.annealing, plan.steps) if annealed else None,
    )


def factor_mask(variational: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, bool]]:
    """Which parameters are factors, on inputs or outputs.

    >>> factor_mask({"weight": {"kernel": 0, "in": 0, "out": 0}})
    {'weight': {'kernel': False, 'in': True, 'out': True}}
    """
    return {leaf: {name: name in ("in", "out") for name in params} for leaf, params in variational.items()}


def falling_sgd(rate: float, batch_size: int, examples: int, steps: int) -> optax.GradientTransformation:
    """The paper's optimiser: momentum, a warm-up of one epoch, and three falls to a fifth.

    The objective here is a sum over the training set, the paper's a mean.
    """
    full = rate * batch_size / 128 / examples
    warm = max(1, min(steps // 2, examples // batch_size))
    falling = optax.piecewise_constant_schedule(
        full, {round(share * steps) - warm: 0.2 for share in (0.4, 0.8, 0.9) if round(share * steps) > warm}
    )
    schedule = optax.join_schedules([optax.linear_schedule(0.0, full, warm), falling], [warm])
    return optax.sgd(schedule, momentum=0.9, nesterov=True)


EVALUATION_KEY = 1
CROP = 4  # pixels around an image of full resolution
CLOCKED = 4  # parts of a run whose time is taken


TRAIN_SCORED = 1000  # training images on which the fit is scored
HELD_OUT = 0.2  # of the training images, while scales are chosen


def run_images(cell: Cell, settings: Rank1Settings, bench: Workbench) -> dict[str, Json]:
    """Train one method on images, and measure it."""
    plan = next(plan for plan in settings.tables if plan.data == cell["data"])
    method, parts = cell["method"], load_images(plan, bench, cell.seed)
    plan, tuning = choose_scales(method, plan, parts, settings, bench, cell.seed)
    problem = image_problem(method, plan, settings, parts.train[0].shape[1:], parts.classes, cell.seed)
    posterior = train(method, problem, parts.train, plan, settings, bench, cell.seed)
    result = {"parameters": stored_parameters(posterior), **({"tuning": tuning} if tuning else {})}
    return result | measure(with_statistics(posterior, parts.train, plan, settings), parts, method, plan, settings)


def choose_scales(
    method: str, plan: Images, parts: ImageParts, settings: Rank1Settings, bench: Workbench, seed: int
) -> tuple[Images, dict[str, float]]:
    """The plan with prior scales multiplied by the factor whose NLL on held-out training images is the lowest.

    Every method has the same number of trials, each as long as the run itself. Without trials the plan as it is.
    """
    if not plan.trials:
        return plan, {}
    (x, y), kept = parts.train, round(len(parts.train[1]) * (1 - HELD_OUT))
    found: dict[float, float] = {}
    for factor in plan.trials:
        scaled = scale_priors(plan, factor)
        problem = image_problem(method, scaled, settings, x.shape[1:], parts.classes, seed)
        posterior = train(method, problem, (x[:kept], y[:kept]), scaled, settings, bench, seed)
        posterior = with_statistics(posterior, (x[:kept], y[:kept]), scaled, settings)
        log_probs = predict(posterior, x[kept:], draw_count(method, settings), settings.examples_per_draw)
        found[factor] = scores(log_probs, y[kept:])["nll"]
    best = min(found, key=lambda factor: found[factor])
    return scale_priors(plan, best), {f"{factor:g}": nll for factor, nll in found.items()}


def scale_priors(plan: Images, factor: float) -> Images:
    """The same plan with all prior scales multiplied."""
    names = ("prior_scale", "batch_scale", "rank_1_scale", "mean_field_scale")
    return replace(plan, **{name: getattr(plan, name) * factor for name in names})


def with_statistics(posterior: Posterior, data: Examples, plan: Images, settings: Rank1Settings) -> Posterior:
    """The posterior with batch statistics of its draws, if the network has batch normalisations."""
    if plan.network != WRN:
        return posterior
    few = data[0][: settings.statistics]
    return with_batch_statistics(posterior, few, batch_size=min(plan.batch_size, len(few)))


def train(
    method: str,
    problem: Problem,
    data: Any,
    plan: Images | Mortality,
    settings: Rank1Settings,
    bench: Workbench,
    seed: int,
) -> Posterior:
    """The run of a method."""
    examples, norms = len(data[1]), isinstance(plan, Images) and plan.network == WRN
    crops = isinstance(plan, Images) and plan.augment
    return bench.fit_timed(
        problem,
        data,
        build_method(method, plan, settings, norms=norms, examples=examples),
        steps=plan.steps,
        batch_size=min(examples, images_per_step(method, plan, settings)),
        key=seed,
        every=max(1, plan.steps // CLOCKED),
        augment=[RandomCrop(max(1, CROP // plan.pool)), RandomFlip()] if crops else None,  # type: ignore[union-attr]
    )


def images_per_step(method: str, plan: Images | Mortality, settings: Rank1Settings) -> int:
    """New examples per step: a mixture of another size than the usual K sees as many rows, its components together."""
    components = component_count(method, settings) if method.startswith("K = ") else settings.members
    return max(1, plan.batch_size * settings.members // components)


def stored_parameters(posterior: Any) -> int:
    """Those that are stored, of all members together."""
    if hasattr(posterior, "num_parameters"):
        return int(posterior.num_parameters)
    return int(posterior.problem.network.num_parameters * posterior.members)


def draw_count(method: str, settings: Rank1Settings) -> int:
    """Draws for predictions: one of each member of a deep ensemble, as many for all others."""
    if method in (DEEP, EQUAL):
        return settings.members
    components = component_count(method, settings)
    draws = settings.draws if method in (CAUCHY, HALF_CAUCHY) else settings.gaussian_draws
    # one network with random weights gets as many draws as the mixture
    return draws * (component_count(GAUSSIAN, settings) if components == 1 else components)


def predict(posterior: Posterior, x: Any, draws: int, shared: int = 0) -> np.ndarray:
    """Log probabilities of every draw, (draws, examples, classes).

    Args:
        posterior: of any method.
        x: the inputs.
        draws: how many.
        shared: how many inputs share a draw; 0 for all of them.
    """
    count = len(jax.tree.leaves(x)[0])
    size = shared or count
    blocks = []
    for i, start in enumerate(range(0, count, size)):
        block = jax.tree.map(lambda a, rows=slice(start, start + size): a[rows], x)
        predictive: Any = posterior.predict(block, draws, key=EVALUATION_KEY + i)
        blocks.append(np.asarray(predictive.log_probs_per_draw, np.float64))
    return np.concatenate(blocks, axis=1)


def measure(
    posterior: Posterior, parts: ImageParts, method: str, plan: Images, settings: Rank1Settings
) -> dict[str, Json]:
    """Scores on clean and corrupted images, of the average and of single draws, and the diversity of these."""
    draws, kinds = draw_count(method, settings), len(plan.kinds)
    components = max(2, component_count(method, settings))
    (x, y), (x_worse, y_worse) = parts.test, parts.corrupted
    (x_train, y_train), shared = parts.train, settings.examples_per_draw
    fit = predict(posterior, x_train[:TRAIN_SCORED], draws, shared)
    clean, worse = predict(posterior, x, draws, shared), predict(posterior, x_worse, draws, shared)
    single = clean[: min(components, draws)]
    result: dict[str, Json] = {
        "train": scores(fit, y_train[:TRAIN_SCORED]),
        "clean": scores(clean, y),
        "corrupted": by_kind(worse, y_worse, kinds),
        "severity": by_severity(worse, y_worse, kinds, len(plan.severities)),
        "kinds": error_by_kind(worse, y_worse, kinds),
        "member": {
            "clean": mean_entries([scores(draw[None], y) for draw in single]),
            "kinds": np.mean([error_by_kind(draw[None], y_worse, kinds) for draw in worse[: len(single)]], axis=0),
            "corrupted": mean_entries([by_kind(draw[None], y_worse, kinds) for draw in worse[: len(single)]]),
        },
    }
    if len(single) > 1:
        probs = np.exp(single).astype(np.float32)
        result["diversity"] = float(np.mean(metrics.disagreement_over_error(probs, y)))
        result["disagreement"] = float(np.mean(metrics.disagreement(probs)))
    return result


def scores(log_probs: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """NLL in nats, accuracy and ECE of the average over draws.

    >>> scored = scores(np.log([[[0.9, 0.1]], [[0.7, 0.3]]]), np.array([0]))
    >>> {name: round(value, 3) for name, value in scored.items()}
    {'nll': 0.223, 'accuracy': 1.0, 'ece': 0.2}
    """
    mean = logsumexp(log_probs, axis=0) - np.log(len(log_probs))
    probs = np.exp(mean)
    return {
        "nll": float(-np.take_along_axis(mean, y[:, None], axis=1).mean()),
        "accuracy": float((probs.argmax(axis=-1) == y).mean()),
        "ece": float(metrics.ece_equal_width(probs.astype(np.float32), y)),
    }


def by_kind(log_probs: np.ndarray, y: np.ndarray, kinds: int) -> dict[str, float]:
    """Scores of each kind of corruption, all severities together; their means over kinds."""
    parts = zip(np.split(log_probs, kinds, axis=1), np.split(y, kinds), strict=True)
    return mean_entries([scores(kind, labels) for kind, labels in parts])


def error_by_kind(log_probs: np.ndarray, y: np.ndarray, kinds: int) -> list[float]:
    """The error rate on each kind of corruption, all severities together."""
    right = np.exp(log_probs).mean(axis=0).argmax(axis=-1) == y
    return (1 - right.reshape(kinds, -1).mean(axis=1)).tolist()


def by_severity(log_probs: np.ndarray, y: np.ndarray, kinds: int, severities: int) -> dict[str, list[float]]:
    """Scores by severity, all kinds together."""
    rows = np.arange(len(y)).reshape(kinds, severities, -1)
    groups = [rows.ravel() for rows in np.moveaxis(rows, 1, 0)]
    by_group = [scores(log_probs[:, group], y[group]) for group in groups]
    return {name: [group[name] for group in by_group] for name in by_group[0]}


Records = dict[str, np.ndarray]
ClinicalRecords = tuple[Records, np.ndarray]  # x and y


def run_mortality(cell: Cell, settings: Rank1Settings, bench: Workbench) -> dict[str, Json]:
    """Train one method on the records, and measure it on those of other patients, as they are and with more missing."""
    plan, method = settings.mortality, cell["method"]
    data = bench.load(plan.data)
    x, y = select(data.train, plan.examples, plan)
    x_test, y_test = select(data.test, plan.tests, plan)
    shape = x["values"].shape[-1], x["static"].shape[-1]
    problem = mortality_problem(method, plan, settings, shape, cell.seed)
    posterior = train(method, problem, (x, y), plan, settings, bench, cell.seed)
    draws = draw_count(method, settings)
    clean, fewer = predict(posterior, x_test, draws), predict(posterior, remove(x_test, plan.removed), draws)
    single = clean[: settings.members]
    return {
        "parameters": stored_parameters(posterior),
        "clean": clinical_scores(clean, y_test),
        "fewer": clinical_scores(fewer, y_test),
        "member": {
            "clean": mean_entries([clinical_scores(draw[None], y_test) for draw in single]),
            "fewer": mean_entries([clinical_scores(draw[None], y_test) for draw in fewer[: len(single)]]),
        },
        "missing": float(1 - x_test["observed"].mean()),
    }


def select(part: ClinicalRecords, count: int, plan: Mortality) -> ClinicalRecords:
    """The first stays, and their last hours."""
    x, y = part
    rows = slice(count or None)
    return {name: a[rows] if name == "static" else a[rows, -plan.hours :] for name, a in x.items()}, y[rows]


def remove(x: Records, share: float) -> Records:
    """The same records with a share of the measurements missing, chosen at random."""
    kept = (np.random.default_rng(0).random(x["values"].shape) >= share).astype(np.float32)
    return x | {"values": x["values"] * kept, "observed": x["observed"] * kept}


def clinical_scores(log_probs: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """NLL, accuracy and ECE, and the area under the precision-recall curve."""
    risk = np.exp(logsumexp(log_probs[..., 1], axis=0) - np.log(len(log_probs)))
    return scores(log_probs, y) | {"auc_pr": float(metrics.average_precision(risk.astype(np.float32), y))}
