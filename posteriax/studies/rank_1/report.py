"""What is shown of the study of rank-1 networks, from its results alone: measures of the claims, tables, figures.

Differences are between two methods with the same seed; negative is better for NLL and ECE.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from posteriax._internal.plot_style import PALETTE
from posteriax.metrics import mean_corruption_error
from posteriax.studies.figures import Curve, Figure, Means, Panel, draw_panels
from posteriax.studies.rank_1.demonstrations import CHECKPOINTS, EDGES, FACTORS, PRIORS, THEOREM
from posteriax.studies.rank_1.settings import (
    ABLATIONS,
    BATCH_ENSEMBLE,
    CAUCHY,
    DEEP,
    DETERMINISTIC,
    DROPOUT,
    EQUAL,
    GAUSSIAN,
    INPUT,
    MEAN_FIELD,
    OUTPUT,
    SCALES,
    size_name,
)
from posteriax.studies.results import (
    CellResult,
    Conditional,
    Measure,
    Parts,
    Results,
    combine,
    depending,
    entry,
    has,
    look_up,
)
from posteriax.studies.tables import Column, PageTable, Row, Values, make_table, mean_with_error

IMAGES, HUNDRED, CLOTHES, RECORDS = "cifar10", "cifar100", "fashion", "physionet2012"  # how names of data begin
DATA = {IMAGES: "CIFAR-10", HUNDRED: "CIFAR-100", CLOTHES: "Fashion-MNIST"}

# ---- measures: numbers by seed


def score(data: str, method: str, path: str) -> Measure:
    """An entry of a method's results; of the deterministic baseline, the mean over an ensemble's members."""
    if method == DETERMINISTIC:
        method, path = DEEP, path if path == "parameters" else f"member.{path}"
    return Measure(
        lambda results: {c.seed: look_up(c.result, path) for c in _runs(results, data, method) if has(c, path)}
    )


def _runs(results: Results, data: str, method: str) -> list[CellResult]:
    stored = dict.fromkeys(cell.settings["data"] for cell in (*results.cells, *results.waiting))
    return [cell for name in stored if is_data(name, data) for cell in results.select(data=name, method=method)]


def is_data(stored: str, name: str) -> bool:
    """Whether a cell's data set is the one that is meant.

    >>> is_data("made-up/cifar10", "cifar10"), is_data("cifar100", "cifar10"), is_data("fashion_small", "fashion")
    (True, False, True)
    """
    real = stored.removeprefix("made-up/")
    return real == name or (name == CLOTHES and real.startswith(CLOTHES))


cifar10 = partial(score, IMAGES)
fashion = partial(score, CLOTHES)
cifar100 = partial(score, HUNDRED)
mortality = partial(score, RECORDS)


def corruption_error(data: str, method: str, other: str) -> Measure:
    """mCE of one method with the errors of another as its baseline, minus 1: below 0 is better than that baseline."""

    def errors(name: str) -> Callable[[Results], dict[int, np.ndarray]]:
        run, path = (DEEP, "member.kinds") if name == DETERMINISTIC else (name, "kinds")
        return lambda results: {
            c.seed: np.array(look_up(c.result, path), float) for c in _runs(results, data, run) if has(c, path)
        }

    def by_seed(results: Results) -> dict[int, float]:
        ours, theirs = errors(method)(results), errors(other)(results)
        return {
            seed: float(mean_corruption_error(ours[seed][:, None], theirs[seed])) - 1
            for seed in ours.keys() & theirs.keys()
        }

    return Measure(by_seed)


def checkpoint_runs(results: Results, method: str) -> list[CellResult]:
    return results.select(experiment=CHECKPOINTS, method=f"{method}, {CHECKPOINTS}")


def at_checkpoints(path: str) -> Measure:
    """The mean of a reading over the last half of a run, rank-1 Gaussian less BatchEnsemble."""

    def reading(method: str) -> Measure:
        return Measure(
            lambda results: {c.seed: float(np.mean(c.result[path])) for c in checkpoint_runs(results, method)}
        )

    return reading(GAUSSIAN) - reading(BATCH_ENSEMBLE)


def if_tuned(measure: Measure) -> Conditional:
    """A comparison along the run; decides nothing if the table chooses weight decay by trials, and they did not."""

    def objection(results: Results) -> str:
        tables = results.settings.get("tables", ())
        table: Mapping[str, Any] = next((t for t in tables if is_data(t["data"], ablated_data(results))), {})
        runs = [c for method in (GAUSSIAN, BATCH_ENSEMBLE) for c in checkpoint_runs(results, method)]
        if not table.get("trials") or all(has(run, "tuning") for run in runs):
            return ""
        return "both methods had the same weight decay, where each should choose its own on held-out images"

    return Conditional(measure, objection)


def diversity_against_accuracy() -> Parts:
    """The correlation between accuracy and diversity over the readings of a run, by method."""

    def correlation(method: str) -> Measure:
        return Measure(
            lambda results: {
                c.seed: correlation_coefficient(c.result["accuracy"], c.result["diversity"])
                for c in checkpoint_runs(results, method)
            }
        )

    return Parts(lambda results: {method: correlation(method) for method in (BATCH_ENSEMBLE, GAUSSIAN)})


def correlation_coefficient(x: Values, y: Values) -> float:
    """Pearson's; 0 if either does not vary.

    >>> correlation_coefficient([1.0, 2.0, 3.0], [2.0, 2.0, 2.0])
    0.0
    """
    varies = np.ptp(x) > 0 and np.ptp(y) > 0
    return float(np.corrcoef(x, y)[0, 1]) if varies else 0.0


def induced(path: str) -> Measure:
    """An entry of the results on induced priors."""
    return entry(path, experiment=PRIORS)


def theorem(path: str) -> Measure:
    """An entry of the results on theorem 1."""
    return entry(path, experiment=THEOREM)


def ablation(method: str, path: str) -> Measure:
    """A score of a variant of the rank-1 network, on the data that the ablations have."""
    return depending(lambda results: score(ablated_data(results), method, path))


def ablated_data(results: Results) -> str:
    """The data set of the ablations, by the name that measures use."""
    listed = results.settings.get("tables", ())
    name = results.settings.get("ablated") or (listed[-1]["data"] if listed else CLOTHES)
    real = name.removeprefix("made-up/")
    return CLOTHES if real.startswith(CLOTHES) else real


def parameter_ratio(data: str, method: str, other: str) -> Measure:
    """Parameters of one method over those of the other."""

    def choose(results: Results) -> Measure:
        members = _networks(results, other)
        ratio = lambda first, second: members * first / second  # noqa: E731
        return combine(ratio, score(data, method, "parameters"), score(data, other, "parameters"))

    return depending(choose)


def _networks(results: Results, method: str) -> int:
    """In how many networks the run of a method results: the deterministic one is a member of an ensemble."""
    return results.settings["members"] if method == DETERMINISTIC and results.settings else 1


def doublings(path: str, last: int) -> Parts:
    """A score with twice as many components less that with half of them, up to `last` components, by doubling."""

    def parts(results: Results) -> dict[str, Measure]:
        usual = results.settings.get("members", 4)
        sizes = sorted({*results.settings.get("sizes", ()), usual})

        def of_size(size: int) -> Measure:
            return ablation(GAUSSIAN if size == usual else size_name(size), path)

        return {f"{k} to {2 * k}": of_size(2 * k) - of_size(k) for k in sizes if 2 * k in sizes and 2 * k <= last}

    return Parts(parts)


def both_less_either(path: str) -> Parts:
    """A score with factors on inputs and outputs, less that with factors on one side."""
    both = ablation(GAUSSIAN, path)
    return Parts(lambda results: {side: both - ablation(side, path) for side in (INPUT, OUTPUT)})


def if_other_side_is_a_point(measure: Parts) -> Conditional:
    """A comparison of sides; decides nothing unless the side without noise is a point estimate, as in the paper."""

    def objection(results: Results) -> str:
        if results.settings.get("other_side") == "point":
            return ""
        return "factors on one side leave out the other side, where the paper's are point estimates for each component"

    return Conditional(measure, objection)


STARVED = 0.02  # accuracy that the networks of an ensemble of equal parameters may lack


def if_not_starved(data: str, measure: Measure) -> Conditional:
    """A comparison with the ensemble of equal parameters; decides nothing if its networks are too small to learn."""

    def objection(results: Results) -> str:
        small, usual = (
            score(data, method, "member.clean.accuracy" if method == EQUAL else "clean.accuracy")(results)
            for method in (EQUAL, DETERMINISTIC)
        )
        if not len(small) or usual.mean() - small.mean() <= STARVED:
            return ""
        return (
            f"with a quarter of the parameters each, the networks of that ensemble have {small.mean():.1%} right where "
            f"the deterministic one has {usual.mean():.1%} (in the paper 0.3 % separate the ensembles)"
        )

    return Conditional(measure, objection)


def step_time(results: Results, data: str, method: str) -> float:
    """Processor time of a step in ms, the mean over seeds; NaN if it was not taken."""
    run = DEEP if method == DETERMINISTIC else method
    times = [
        time["processor_seconds_per_step"]
        for name, time in results.times.items()
        if f", {run}, seed" in name and is_data(name.split(", ")[1], data) and "processor_seconds_per_step" in time
    ]
    return 1000 * float(np.mean(times)) / _networks(results, method) if times else float("nan")


# ---- tables, beside the paper's

ROWS = (DETERMINISTIC, BATCH_ENSEMBLE, DROPOUT, MEAN_FIELD, GAUSSIAN, CAUCHY, EQUAL, DEEP)
SCORES = (
    Column("NLL", "clean.nll"),
    Column("accuracy (%)", "clean.accuracy", mean_with_error(1, 100)),
    Column("ECE", "clean.ece"),
    Column("cNLL", "corrupted.nll"),
    Column("cA (%)", "corrupted.accuracy", mean_with_error(1, 100)),
    Column("cECE", "corrupted.ece"),
)
CLINICAL = tuple(
    Column(heading + ending, f"{part}.{name}", mean_with_error(digits))
    for part, ending in (("clean", ""), ("fewer", ", fewer"))
    for heading, name, digits in (("NLL", "nll", 4), ("AUC-PR", "auc_pr", 3), ("ECE", "ece", 4))
)
# CIFAR-10 with WRN-28-10: NLL, accuracy in per cent, ECE; the same corrupted
PAPER_IMAGES = {
    DETERMINISTIC: "0.159 / 96.0 / 0.023; 1.05 / 76.1 / 0.153",
    BATCH_ENSEMBLE: "0.143 / 96.2 / 0.020; 1.02 / 77.5 / 0.129",
    DROPOUT: "0.160 / 95.9 / 0.024; 1.27 / 68.8 / 0.166",
    MEAN_FIELD: "0.214 / 94.7 / 0.029; 1.46 / 71.3 / 0.181",
    GAUSSIAN: "0.128 / 96.3 / 0.008; 0.84 / 76.7 / 0.080",
    CAUCHY: "0.120 / 96.5 / 0.009; 0.74 / 80.5 / 0.090",
    EQUAL: "0.115 / 96.3 / 0.008; 0.84 / 77.2 / 0.089",
    DEEP: "0.114 / 96.6 / 0.010; 0.81 / 77.9 / 0.087",
}
PAPER_HUNDRED = {
    DETERMINISTIC: "0.875 / 79.8 / 0.085; 2.70 / 51.3 / 0.239",
    BATCH_ENSEMBLE: "0.734 / 81.5 / 0.033; 2.49 / 54.1 / 0.191",
    DROPOUT: "0.830 / 79.6 / 0.050; 2.33 / 51.5 / 0.148",
    MEAN_FIELD: "1.030 / 77.3 / 0.111; 3.48 / 48.0 / 0.299",
    GAUSSIAN: "0.692 / 81.3 / 0.018; 2.24 / 53.8 / 0.117",
    CAUCHY: "0.689 / 82.4 / 0.012; 2.04 / 57.8 / 0.142",
    EQUAL: "0.694 / 81.5 / 0.017; 2.19 / 53.7 / 0.111",
    DEEP: "0.666 / 82.7 / 0.021; 2.27 / 54.1 / 0.138",
}
# MIMIC-III: NLL, AUC-PR, ECE
PAPER_RECORDS = {
    DETERMINISTIC: "0.213 / 0.390 / 0.0135",
    BATCH_ENSEMBLE: "0.215 / 0.391 / 0.0162",
    MEAN_FIELD: "0.221 / 0.373 / 0.0161",
    GAUSSIAN: "0.209 / 0.391 / 0.0132",
    CAUCHY: "0.211 / 0.383 / 0.0130",
    DEEP: "0.206 / 0.396 / 0.0103",
}


def tables(results: Results) -> list[PageTable]:
    return [
        _main(results, IMAGES, PAPER_IMAGES),
        *([_main(results, HUNDRED, PAPER_HUNDRED)] if _has(results, HUNDRED) else []),
        _main(results, CLOTHES, {}),
        _ablations(results),
        _mortality(results),
        _cost(results),
    ]


def _has(results: Results, data: str) -> bool:
    return any(is_data(cell.settings["data"], data) for cell in results.cells)


def _row(results: Results, data: str, method: str, *end: str) -> Row:
    return Row((method,), lambda path: score(data, method, path)(results), end)


def _parameters(results: Results, data: str, method: str) -> str:
    counts = score(data, method, "parameters")(results)
    return f"{counts[0] / _networks(results, method):,.0f}" if len(counts) else ""


def _size_and_time(results: Results, data: str, method: str) -> tuple[str, str]:
    time = step_time(results, data, method)
    return _parameters(results, data, method), f"{time:.1f}" if np.isfinite(time) else "-"


def _main(results: Results, data: str, paper: Mapping[str, str]) -> PageTable:
    rows = []
    for method in ROWS:
        # a single network has nothing to disagree with
        values: Values = [] if method == DETERMINISTIC else score(data, method, "diversity")(results)
        end = (mean_with_error(2)(values), *_size_and_time(results, data, method))
        rows.append(_row(results, data, method, *end, *([paper[method]] if paper else [])))
    caption = (
        f"{DATA[data]}: NLL in nats; c: averages over 15 kinds of corruption; diversity: disagreement of members over "
        "the error rate; step: processor time of both cores together. Deterministic is the mean over the members of "
        "the deep ensemble."
    )
    headings = ("diversity", "parameters", "step (ms)", *(["paper: NLL / % / ECE; corrupted"] if paper else []))
    return make_table(caption, ("",), SCORES, rows, headings)


def _ablations(results: Results) -> PageTable:
    sizes = sorted(results.settings["sizes"]) if results.settings else []
    data = ablated_data(results)
    rows = [
        _row(results, data, method, _parameters(results, data, method))
        for method in (GAUSSIAN, CAUCHY, *ABLATIONS, *map(size_name, sizes))
        if len(score(data, method, "clean.nll")(results))
    ]
    caption = f"Variants of the rank-1 network on {DATA[data]}, all with the same rows and steps"
    columns = (*SCORES, Column("NLL of one draw", "member.clean.nll"))
    return make_table(caption, ("",), columns, rows, ("parameters",))


def _mortality(results: Results) -> PageTable:
    rows = [
        _row(results, RECORDS, method, *_size_and_time(results, RECORDS, method), PAPER_RECORDS[method])
        for method in ROWS
        if method in PAPER_RECORDS
    ]
    missing = [cell.result["missing"] for cell in results.cells if "missing" in cell.result]
    share = f"{100 * missing[0]:.0f} % of the hourly values are missing" if missing else "most values are missing"
    caption = (
        f"Mortality on PhysioNet 2012 ({share}); fewer: with half of the measurements removed from the test records"
    )
    return make_table(
        caption, ("",), CLINICAL, rows, ("parameters", "step (ms)", "paper, MIMIC-III: NLL / AUC-PR / ECE")
    )


def _cost(results: Results) -> PageTable:
    """What was run, and what the paper's number of steps and seeds would cost with the same networks."""
    paper = SCALES["paper"]
    plans = {table.data: table.steps for table in paper.tables} | {RECORDS: paper.mortality.steps}
    rows = []
    for data, full in plans.items():
        if not _has(results, data):
            continue
        methods = dict.fromkeys(c.settings["method"] for c in results.cells if is_data(c.settings["data"], data))
        times = [time for method in methods if np.isfinite(time := step_time(results, data, method))]
        steps, total = _steps(results, data), sum(times) / 1000
        as_run, as_paper = total * steps * results.seeds / 60, total * full * paper.seeds / 3600
        row = [data, str(len(times)), str(steps), f"{1000 * total:.0f}", f"{as_run:.1f}", f"{full:,}"]
        rows.append([*row, f"{as_paper:,.0f}"])
    headings = ["data", "methods", "steps", "one step of each (ms)", "as run (min)", "full steps", "full (h)"]
    caption = (
        "Processor time of training, of both cores together, by the measured time of a step. Full: as many steps and "
        f"seeds ({paper.seeds}) as the paper scale, with the small networks used here"
    )
    return PageTable(caption, headings, rows)


def _steps(results: Results, data: str) -> int:
    plans = [*results.settings["tables"], results.settings["mortality"]] if results.settings else []
    return int(next((plan["steps"] for plan in plans if is_data(plan["data"], data)), 0))


# ---- figures

COLOURS = {
    GAUSSIAN: PALETTE[3],
    CAUCHY: PALETTE[1],
    BATCH_ENSEMBLE: PALETTE[0],
    DEEP: PALETTE[7],
    EQUAL: "0.55",
    DROPOUT: PALETTE[2],
    MEAN_FIELD: PALETTE[4],
    DETERMINISTIC: PALETTE[5],
}
LABELS = {"nll": "NLL (nats)", "accuracy": "accuracy (%)", "ece": "ECE"}
UNITS = {"nll": 1.0, "accuracy": 100.0, "ece": 1.0}


def shown_data(results: Results) -> dict[str, str]:
    """The data sets of the tables that were run, and what pages call them."""
    return {data: called for data, called in DATA.items() if _has(results, data)}


def scores(results: Results) -> Figure:
    """NLL and ECE by method; each dot is a seed, a bar is their mean."""
    panels = []
    for data, called in shown_data(results).items():
        for name in ("nll", "ece"):
            lines = []
            for height, method in enumerate(reversed(ROWS)):
                values = score(data, method, f"clean.{name}")(results)
                if len(values):
                    options = {"markersize": 4, "alpha": 0.6}
                    lines.append(Curve(values, np.full(len(values), height), "o", COLOURS[method], options=options))
                    bar = {"markersize": 14, "markeredgewidth": 2}
                    lines.append(Curve([values.mean()], [height], "|", COLOURS[method], options=bar))
            ticks = {"yticks": range(len(ROWS)), "yticklabels": ROWS[::-1]}
            panels.append(Panel(lines, {"xlabel": f"{LABELS[name]}, {called}", **ticks}))
    return draw_panels(panels, 3.6, 2.9, columns=4, sharey=True)[0]


def severity(results: Results) -> Figure:
    """Scores by severity of corruption, 0 is clean, less those of the deep ensemble; means and standard errors."""

    def curves(data: str, method: str, name: str) -> np.ndarray:
        runs = [cell.result for cell in _runs(results, data, method)]
        return np.array([[run["clean"][name], *run["severity"][name]] for run in runs])

    panels = []
    methods = (BATCH_ENSEMBLE, DROPOUT, MEAN_FIELD, GAUSSIAN, CAUCHY)
    for data, called in shown_data(results).items():
        for name, label in LABELS.items():
            base = curves(data, DEEP, name)
            lines = []
            for number, method in enumerate(methods):
                values = curves(data, method, name)
                if len(values) and values.shape == base.shape:
                    gaps = UNITS[name] * (values - base)
                    x = np.arange(gaps.shape[1]) + 0.07 * (number - (len(methods) - 1) / 2)
                    options = {"markersize": 3, "linewidth": 1, "capsize": 2}
                    lines.append(Means(x, list(gaps.T), "o-", COLOURS[method], method, options))
            settings = {"xlabel": "severity", "ylabel": f"{label}, difference"}
            panels.append(Panel(lines, settings, called, reference=(0.0, COLOURS[DEEP], DEEP)))
    return draw_panels(panels, 3.6, 2.7, columns=3, below=6)[0]


def components(results: Results) -> Figure:
    """Scores by the number of components, at the same number of rows and steps; each dot is a seed."""
    sizes = sorted({*(results.settings["sizes"] if results.settings else ()), 4})
    members = results.settings["members"] if results.settings else 4
    colours = {"clean": PALETTE[0], "corrupted": PALETTE[3]}
    panels, names = [], []
    for name, label in LABELS.items():
        lines, starts = [], []
        for part, colour in colours.items():
            means = []
            for size in sizes:
                method = GAUSSIAN if size == members else size_name(size)
                values = UNITS[name] * ablation(method, f"{part}.{name}")(results)
                options = {"markersize": 3.5, "alpha": 0.6}
                lines.append(Curve(np.full(len(values), size), values, "o", colour, options=options))
                means.append(values.mean() if len(values) else np.nan)
            lines.append(Curve(sizes, means, "-", colour))
            starts += [(sizes[i], means[i], part) for i in np.flatnonzero(np.isfinite(means))[:1]]
        panels.append(Panel(lines, {"xlabel": "components K", "ylabel": label}))
        names.append(starts)
    figure, axes = draw_panels(panels, 3.4, 2.9)
    for axis, starts in zip(axes, names, strict=True):
        for size, value, part in starts:
            axis.text(size, value, f"{part}  ", color=colours[part], ha="right", fontsize="small")
        axis.set_xscale("log", base=2)
        axis.set(xticks=sizes, xticklabels=sizes)
        axis.set_xlim(sizes[0] / 2.6, sizes[-1] * 1.2)
    return figure


def diversity(results: Results) -> Figure:
    """Disagreement of members over the error rate, against the accuracy of their average; each dot is a seed."""
    panels = []
    for data, called in shown_data(results).items():
        lines = []
        for method in (BATCH_ENSEMBLE, GAUSSIAN, CAUCHY, DEEP, EQUAL, DROPOUT):
            accuracy, diverse = (score(data, method, path)(results) for path in ("clean.accuracy", "diversity"))
            if len(accuracy):
                options = {"markersize": 6, "alpha": 0.8}
                lines.append(Curve(100 * accuracy, diverse, "o", COLOURS[method], method, options))
        panels.append(Panel(lines, {"xlabel": "accuracy (%)", "ylabel": "disagreement / error rate"}, called))
    figure, axes = draw_panels(panels, 4.4, 3.4, below=3)
    for axis in axes:
        axis.margins(x=0.1, y=0.1)
    return figure


def variants(results: Results) -> Figure:
    """What is changed in the rank-1 network: NLL, clean and corrupted; each dot is a seed."""
    names = (GAUSSIAN, CAUCHY, *ABLATIONS)
    panels = []
    for part in ("clean", "corrupted"):
        lines = []
        for height, method in enumerate(reversed(names)):
            values, colour = ablation(method, f"{part}.nll")(results), COLOURS.get(method, "0.4")
            options = {"markersize": 5, "alpha": 0.8}
            lines.append(Curve(values, np.full(len(values), height), "o", colour, options=options))
        ticks = {"yticks": range(len(names)), "yticklabels": names[::-1]}
        panels.append(Panel(lines, {"xlabel": f"NLL, {part} (nats)", **ticks}))
    return draw_panels(panels, 4.6, 3.2, sharey=True)[0]


def checkpoints(results: Results) -> Figure:
    """Disagreement over error rate against accuracy and NLL at the readings of the last half of each run."""
    panels = []
    for path, label, unit in (("accuracy", "accuracy (%)", 100.0), ("nll", "NLL (nats)", 1.0)):
        lines: list[Curve | Means] = []
        for method in (BATCH_ENSEMBLE, GAUSSIAN):
            for number, cell in enumerate(checkpoint_runs(results, method)):
                x, y = unit * np.array(cell.result[path], float), np.array(cell.result["diversity"], float)
                options = {"markersize": 3.5, "linewidth": 0.6, "alpha": 0.7}
                name = method if number == 0 else None
                lines.append(Curve(x, y, "o-", COLOURS[method], name, options))
        panels.append(Panel(lines, {"xlabel": label, "ylabel": "disagreement / error rate"}))
    figure, axes = draw_panels(panels, 4.2, 3.2, below=2)
    for axis in axes:
        axis.locator_params(axis="x", nbins=6)
    return figure


def induced_priors(results: Results) -> Figure:
    """The densities of weights under the priors of their factors; the first seed."""
    runs, lines = results.select(experiment=PRIORS), []
    middle = (EDGES[1:] + EDGES[:-1]) / 2
    for name, colour in zip(FACTORS, ("0.2", PALETTE[3], PALETTE[0], "0.65"), strict=True):
        if runs:
            density = np.array(runs[0].result[name]["density"], float)
            label = "normal weights" if name == "none" else f"{name} factors"
            lines.append(Curve(middle, np.where(density > 0, density, np.nan), "-", colour, label))
    panel = Panel(lines, {"xlabel": "weight", "ylabel": "density", "yscale": "log"}, legend={})
    return draw_panels([panel], 4.6, 3.2)[0]


FIGURES = {
    "scores": scores,
    "severity": severity,
    "variants": variants,
    "components": components,
    "diversity": diversity,
    "checkpoints": checkpoints,
    "induced_priors": induced_priors,
}
NEEDS = {
    "checkpoints": lambda results: bool(checkpoint_runs(results, GAUSSIAN)),
    "induced_priors": lambda results: bool(results.select(experiment=PRIORS)),
}
