"""Made-up comparisons: scores and charts as `px.compare` gives them, without fitting anything."""

from functools import cache

import numpy as np

from posteriax.data.corruptions.corrupt import Corruption
from posteriax.evaluation import Feature, PartialDependence, ReportContext, TableRows
from posteriax.evaluation.chart_summaries import COVERAGE_LEVELS, ChartSummary, Disagreement, Example
from posteriax.evaluation.comparison import Comparison, Cost
from posteriax.evaluation.uncertainty_deciles import Deciles
from posteriax.metrics import Estimate

NAMES = ("MAP", "mean-field", "k-tied", "SWAG", "deep ensemble", "HMC", "SGHMC", "rank-1", "dropout", "NUTS")
NAMES += ("Laplace", "MCLMC", "SGLD")
LABELS = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")


def classes(methods=6, examples=500, kinds=("fog", "gaussian_noise", "jpeg"), side=28, seed=0):
    """A classifier of images: corrupted sets, inputs from elsewhere, an attack, a reference."""
    rng = np.random.default_rng(seed)
    names = NAMES[:methods]
    test_sets = ["test"] + [f"{kind} {severity}" for kind in kinds for severity in range(1, 6)]
    sets = {name: {own: _class_scores(i, name) for i, own in enumerate(names)} for name in test_sets}
    charts = {name: {own: _class_chart(rng, i, examples, side) for i, own in enumerate(names)} for name in test_sets}
    for place, name in enumerate(["out: digits", "out: noise"]):
        sets[name] = {own: {"auroc": Estimate(0.7 + 0.03 * i), "fpr95": Estimate(0.5)} for i, own in enumerate(names)}
        charts[name] = {own: ChartSummary(entropies=rng.beta(4 + place, 3, examples) * np.log(10)) for own in names}
    sets["attacked"] = {own: {"attack_success": Estimate(0.4 + 0.05 * i, 0.02)} for i, own in enumerate(names)}
    charts["attacked"] = {own: ChartSummary(attack=_attack(i)) for i, own in enumerate(names)}
    best = {"test": {"nll": ("HMC", "deep ensemble", "SWAG"), "accuracy": ("MAP",), "total_variation": ("k-tied",)}}
    costs = {own: Cost(10_000 * (i + 1), 3.0 * (i + 1), 0.7 * (i + 1)) for i, own in enumerate(names)}
    corruptions = {f"{kind} {severity}": Corruption(kind, severity) for kind in kinds for severity in range(1, 6)}
    return Comparison(sets, "HMC" if "HMC" in names else None, costs, best, charts, LABELS, corruptions)


def numbers(examples=300, seed=1):
    """Regression on a few features, with inputs from elsewhere and no reference."""
    rng = np.random.default_rng(seed)
    names = NAMES[:3]
    sets = {
        "test": {
            own: {
                "rmse": Estimate(1.2 - 0.1 * i, 0.03),
                "nll": Estimate(0.9 - 0.1 * i, 0.04),
                "coverage_90": Estimate(0.85, 0.02),
            }
            for i, own in enumerate(names)
        },
        "out: shifted": {own: {"auroc": Estimate(0.8)} for own in names},
    }
    pick = lambda: tuple(Example(i, rng.normal(size=11), *rng.normal(size=2), 0.3) for i in range(4))  # noqa: E731
    charts = {
        "test": {
            own: ChartSummary(
                entropies=rng.gamma(4, 0.1, examples),
                levels=COVERAGE_LEVELS,
                coverage=COVERAGE_LEVELS ** (1.3 - 0.2 * i),
                surest_wrong=pick(),
                surest=pick(),
                deciles=_deciles(i, np.linspace(0.95, 0.8, 10)),
            )
            for i, own in enumerate(names)
        },
        "out: shifted": {own: ChartSummary(entropies=rng.gamma(9, 0.1, examples)) for own in names},
    }
    cases = tuple(
        Disagreement(
            k, rng.normal(size=11), 1.5, dict(zip(names, (1.0, 2.0, 3.0), strict=True)), dict.fromkeys(names, 0.3)
        )
        for k in range(5)
    )
    best = {"test": {"nll": ("k-tied", "mean-field")}}
    return Comparison(sets, None, {}, best, charts, disagreements=cases)


def context(column="age"):
    """What a report is told about the rows of `numbers`."""
    grid = np.linspace(10, 60, 6)[:, None]
    line = lambda shift: np.linspace(1, 2, 6)[:, None] + shift  # noqa: E731
    curve = PartialDependence(
        Feature(column, (0,), 40.0, 12.0, "years"),
        grid[:, 0],
        *(line(shift) for shift in (0, -0.1, 0.1, -1, 1)),
        uncertainty=np.ones(6),
        influence=1.0,
        observed=np.linspace(12, 58, 9),
    )
    bars = PartialDependence(
        Feature("kind", (1, 2), levels={"elm": (1.0, 0.0), "oak": (0.0, 1.0)}),
        np.arange(2.0),
        *(line(shift)[:2] for shift in (0, -0.1, 0.1, -1, 1)),
        uncertainty=np.ones(2),
        influence=0.5,
        observed=np.array([0.3, 0.7]),
    )
    columns = ("height", "weight (kg)", *(f"c{i}" for i in range(6)), "age (years)", "kind")
    cells = [[f"row {i}", *("7" for _ in columns[1:])] for i in range(300)]
    return ReportContext(
        target="height",
        unit="m",
        rows=TableRows(columns, cells, lines=range(100, 400), file="trees.csv"),
        effects=(curve, bars),
        methods={"MAP": "An ordinary network."},
        done={"Rows": "80 & 20"},
        command="posteriax compare trees.csv --target height",
        log="map: 3 s\nhmc: 4 s",
    )


def tiny():
    """One posterior, one test set, nothing to draw."""
    return Comparison({"test": {"MAP": {"accuracy": Estimate(0.9, 0.02), "nll": Estimate(0.3, 0.03)}}})


def _class_scores(i, test_set):
    severity = int(test_set[-1]) if test_set[-1].isdigit() else 0
    worse = 0.04 * severity * (1.3 - 0.1 * i) * (1 + len(test_set) / 40 if severity else 1)
    return {
        "accuracy": Estimate(0.9 - worse, 0.008),
        "nll": Estimate(0.42 - 0.02 * i + 3 * worse, 0.012),
        "ece": Estimate(0.06 - 0.008 * (i % 6) + worse / 3, 0.004),
        "brier": Estimate(0.15 + worse, 0.006),
        "agreement": Estimate(1.0 if i == 5 else 0.9 + 0.01 * (i % 5), 0.004),
        "total_variation": Estimate(0.0 if i == 5 else 0.13 - 0.02 * (i % 5), 0.002),
    }


def _class_chart(rng, i, examples, side):
    confidence = (np.arange(4, 15) + 0.6) / 15
    count = np.r_[3, 6, 12, 20, 25, 30, 40, 50, 70, 90, examples]
    right = np.clip(confidence - (0.12 - 0.03 * (i % 6)) * np.sin(np.pi * confidence) + rng.normal(0, 0.01, 11), 0, 1)
    example = lambda true, k: Example(k, _picture(side, k), 3, true, 0.9999 - 0.01 * k)  # noqa: E731
    return ChartSummary(
        confidence=confidence,
        right=right,
        count=count,
        entropies=rng.beta(0.6 + 0.1 * i, 4, examples) * np.log(10),
        surest_wrong=tuple(example(6, k) for k in range(6)),
        surest=tuple(example(3, k) for k in range(6, 12)),
        deciles=_deciles(i, np.zeros(0)),
        confusion=rng.integers(0, 9, (10, 10)) + 90 * np.eye(10, dtype=int),
        auroc=rng.uniform(0.8, 1.0, 10),
        average_precision=rng.uniform(0.7, 1.0, 10),
    )


def _deciles(i, covered):
    expected = np.linspace(0.05, 0.5, 10)
    return Deciles(expected, expected * (1.3 - 0.1 * i), covered, np.full(10, 30), 0.5)


@cache
def _picture(side, k):
    across, down = np.meshgrid(np.linspace(-1, 1, side), np.linspace(-1, 1, side))
    return np.clip(1.2 - np.hypot(across, down * (1 + k / 6)), 0, 1)


def _attack(i):
    steps = np.arange(21)
    success = 1 - np.exp(-steps / (8 + 3 * i))
    return {"success": success, "accuracy": 0.9 * (1 - success), "entropy": 0.3 + 0.02 * i + 0.04 * steps}
