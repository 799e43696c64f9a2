"""The tables of the study, beside the paper's.

The figures of the page, drawn from the results alone.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from posteriax._internal.plot_style import PALETTE, legend_below, subplots
from posteriax.studies.rank_1.comparisons import CLOTHES, IMAGES, RECORDS, by_seed
from posteriax.studies.rank_1.settings import (
    ABLATIONS,
    BATCH_ENSEMBLE,
    CAUCHY,
    DEEP,
    DETERMINISTIC,
    DROPOUT,
    EQUAL,
    GAUSSIAN,
    MEAN_FIELD,
    PAPER,
    size_name,
)
from posteriax.studies.results import Results
from posteriax.studies.study import Table

ROWS = (DETERMINISTIC, BATCH_ENSEMBLE, DROPOUT, MEAN_FIELD, GAUSSIAN, CAUCHY, EQUAL, DEEP)
SCORES = ("nll", "accuracy", "ece")
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
# MIMIC-III: NLL, AUC-PR, ECE
PAPER_RECORDS = {
    DETERMINISTIC: "0.213 / 0.390 / 0.0135",
    BATCH_ENSEMBLE: "0.215 / 0.391 / 0.0162",
    MEAN_FIELD: "0.221 / 0.373 / 0.0161",
    GAUSSIAN: "0.209 / 0.391 / 0.0132",
    CAUCHY: "0.211 / 0.383 / 0.0130",
    DEEP: "0.206 / 0.396 / 0.0103",
}


def with_error(values: Sequence[float], unit: float = 1.0, digits: int = 3) -> str:
    """The mean over seeds, with its standard error if there are several.

    >>> with_error([0.991, 0.993], 100, 1), with_error([])
    ('99.2 ± 0.1', '')
    """
    found = unit * np.asarray(values, float)
    if not len(found):
        return ""
    error = f" ± {found.std(ddof=1) / np.sqrt(len(found)):.{digits}f}" if len(found) > 1 else ""
    return f"{found.mean():.{digits}f}{error}"


def tables(results: Results) -> list[Table]:
    return [
        _main(results, IMAGES, "CIFAR-10", PAPER_IMAGES),
        _main(results, CLOTHES, "Fashion-MNIST", {}),
        _ablations(results),
        _mortality(results),
        _cost(results),
    ]


def _entry(results: Results, data: str, method: str, path: str, unit: float = 1.0, digits: int = 3) -> str:
    found = by_seed(results, data, method, path)
    return with_error([found[seed] for seed in sorted(found)], unit, digits)


def _scores(results: Results, data: str, method: str) -> list[str]:
    units = {"nll": (1.0, 3), "accuracy": (100.0, 1), "ece": (1.0, 3)}
    return [
        _entry(results, data, method, f"{part}.{score}", *units[score])
        for part in ("clean", "corrupted")
        for score in SCORES
    ]


def _parameters(results: Results, data: str, method: str) -> str:
    found = by_seed(results, data, method, "parameters")
    members = results.settings["members"] if method == DETERMINISTIC and results.settings else 1
    return f"{next(iter(found.values())) / members:,.0f}" if found else ""


def step_time(results: Results, data: str, method: str) -> float:
    """Processor time of a step in ms, the mean over seeds; NaN if it was not taken."""
    own = DEEP if method == DETERMINISTIC else method
    found = [
        time["processor_seconds_per_step"]
        for name, time in results.times.items()
        if f", {own}, seed" in name and data in name and "processor_seconds_per_step" in time
    ]
    members = results.settings["members"] if method == DETERMINISTIC and results.settings else 1
    return 1000 * float(np.mean(found)) / members if found else float("nan")


def _time(results: Results, data: str, method: str) -> str:
    found = step_time(results, data, method)
    return f"{found:.1f}" if np.isfinite(found) else "-"


def _main(results: Results, data: str, called: str, paper: dict[str, str]) -> Table:
    rows = []
    for method in ROWS:
        row = [method, *_scores(results, data, method)]
        # one network has nothing to disagree with
        row.append("" if method == DETERMINISTIC else _entry(results, data, method, "diversity", digits=2))
        row += [_parameters(results, data, method), _time(results, data, method)]
        rows.append([*row, paper[method]] if paper else row)
    headings = ["", "NLL", "accuracy (%)", "ECE", "cNLL", "cA (%)", "cECE", "diversity", "parameters", "step (ms)"]
    caption = (
        f"{called}: NLL in nats; c: averages over 15 kinds of corruption; diversity: disagreement of members over the "
        "error rate; step: processor time of both cores together. Deterministic is the mean over the members of the "
        "deep ensemble."
    )
    return Table(caption, [*headings, "paper: NLL / % / ECE; corrupted"] if paper else headings, rows)


def _ablations(results: Results) -> Table:
    sizes = sorted({*(results.settings["sizes"] if results.settings else ()), 0} - {0})
    rows = []
    for method in (GAUSSIAN, CAUCHY, *ABLATIONS, *map(size_name, sizes)):
        members = [_entry(results, CLOTHES, method, "member.clean.nll")]
        rows.append([method, *_scores(results, CLOTHES, method), *members, _parameters(results, CLOTHES, method)])
    headings = ["", "NLL", "accuracy (%)", "ECE", "cNLL", "cA (%)", "cECE", "NLL of one draw", "parameters"]
    return Table("Variants of the rank-1 network on Fashion-MNIST, all with the same rows and steps", headings, rows)


def _mortality(results: Results) -> Table:
    rows = []
    for method in (row for row in ROWS if row in PAPER_RECORDS):
        row = [method]
        for part in ("clean", "fewer"):
            row += [
                _entry(results, RECORDS, method, f"{part}.{score}", digits=digits)
                for score, digits in (("nll", 4), ("auc_pr", 3), ("ece", 4))
            ]
        row += [_parameters(results, RECORDS, method), _time(results, RECORDS, method), PAPER_RECORDS[method]]
        rows.append(row)
    headings = ["", "NLL", "AUC-PR", "ECE", "NLL, fewer", "AUC-PR, fewer", "ECE, fewer", "parameters", "step (ms)"]
    missing = [cell.result["missing"] for cell in results.cells if "missing" in cell.result]
    share = f"{100 * missing[0]:.0f} % of the hourly values are missing" if missing else "most values are missing"
    return Table(
        f"Mortality on PhysioNet 2012 ({share}); fewer: with half of the measurements removed from the test records",
        [*headings, "paper, MIMIC-III: NLL / AUC-PR / ECE"],
        rows,
    )


def _cost(results: Results) -> Table:
    """What was run, and what the paper's number of steps and seeds would cost with the same networks."""
    plans = {IMAGES: PAPER.tables[0].steps, CLOTHES: PAPER.tables[-1].steps, RECORDS: PAPER.mortality.steps}
    rows = []
    for data, full in plans.items():
        own = [cell for cell in results.cells if data in cell.settings["data"]]
        each = [step_time(results, data, method) for method in dict.fromkeys(c.settings["method"] for c in own)]
        known = [time for time in each if np.isfinite(time)]
        steps = _steps(results, data)
        total = sum(known) / 1000
        as_run, whole = total * steps * results.seeds / 60, total * full * PAPER.seeds / 3600
        rows.append(
            [data, str(len(known)), str(steps), f"{1000 * total:.0f}", f"{as_run:.1f}", f"{full:,}", f"{whole:,.0f}"]
        )
    headings = ["data", "methods", "steps", "one step of each (ms)", "as run (min)", "full steps", "full (h)"]
    return Table(
        "Processor time of training, of both cores together, by the measured time of a step. Full: as many steps and "
        f"seeds ({PAPER.seeds}) as the paper scale, with the small networks used here",
        headings,
        rows,
    )


def _steps(results: Results, data: str) -> int:
    if not results.settings:
        return 0
    plans = [*results.settings["tables"], results.settings["mortality"]]
    return int(next((plan["steps"] for plan in plans if data in plan["data"]), 0))


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
DATA = {IMAGES: "CIFAR-10", CLOTHES: "Fashion-MNIST"}


def severity(results: Results) -> Any:
    """Scores by severity of corruption, 0 is clean, less those of the deep ensemble; means over seeds.

    Every severity has images of its own, few and of uneven difficulty, the same for all methods.
    """
    shown = (BATCH_ENSEMBLE, DROPOUT, MEAN_FIELD, GAUSSIAN, CAUCHY)
    figure, axes = subplots(2, 3, 3.6, 2.7)
    for row, (data, called) in zip(axes, DATA.items(), strict=True):
        for axis, score in zip(row, LABELS, strict=True):
            base = _curve(results, data, DEEP, score)
            axis.axhline(0.0, color=COLOURS[DEEP], label=DEEP)
            for method in shown:
                curve = _curve(results, data, method, score)
                if len(curve) and len(base):
                    gap = UNITS[score] * (curve - base)
                    axis.plot(range(len(gap)), gap, "o-", color=COLOURS[method], markersize=3.5, label=method)
            axis.set(xlabel="severity", ylabel=f"{LABELS[score]}, difference")
            axis.set_title(called, fontsize="medium")
    legend_below(figure, axes[0, 0], columns=6)
    return figure


def _curve(results: Results, data: str, method: str, score: str) -> np.ndarray:
    found = [
        [cell.result["clean"][score], *cell.result["severity"][score]]
        for cell in results.cells
        if data in cell.settings["data"] and cell.settings["method"] == method
    ]
    return np.mean(found, axis=0) if found else np.array([])


def components(results: Results) -> Any:
    """Scores by the number of components, at the same number of rows and steps; each dot is a seed."""
    sizes = sorted({*(results.settings["sizes"] if results.settings else ()), 4})
    usual = results.settings["members"] if results.settings else 4
    figure, (axes,) = subplots(1, 3, 3.4, 2.9)
    for axis, score in zip(axes, LABELS, strict=True):
        for part, colour in (("clean", PALETTE[0]), ("corrupted", PALETTE[3])):
            means = []
            for size in sizes:
                name = GAUSSIAN if size == usual else size_name(size)
                found = UNITS[score] * np.array(list(by_seed(results, CLOTHES, name, f"{part}.{score}").values()))
                axis.plot(np.full(len(found), size), found, "o", color=colour, markersize=3.5, alpha=0.6)
                means.append(found.mean() if len(found) else np.nan)
            axis.plot(sizes, means, color=colour)
            known = np.flatnonzero(np.isfinite(means))
            if len(known):
                axis.text(sizes[known[0]], means[known[0]], f"{part}  ", color=colour, ha="right", fontsize="small")
        axis.set_xscale("log", base=2)
        axis.set(xlabel="components K", ylabel=LABELS[score], xticks=sizes, xticklabels=sizes)
        axis.set_xlim(sizes[0] / 2.6, sizes[-1] * 1.2)
    return figure


def diversity(results: Results) -> Any:
    """Disagreement of members over the error rate, against the accuracy of their average; each dot is a seed."""
    figure, (axes,) = subplots(1, 2, 4.4, 3.4)
    for axis, (data, called) in zip(axes, DATA.items(), strict=True):
        for method in (BATCH_ENSEMBLE, GAUSSIAN, CAUCHY, DEEP, EQUAL, DROPOUT):
            accuracy = np.array(list(by_seed(results, data, method, "clean.accuracy").values()))
            diverse = np.array(list(by_seed(results, data, method, "diversity").values()))
            if not len(accuracy):
                continue
            axis.plot(100 * accuracy, diverse, "o", color=COLOURS[method], markersize=6, alpha=0.8, label=method)
        axis.set(xlabel="accuracy (%)", ylabel="disagreement / error rate")
        axis.set_title(called, fontsize="medium")
        axis.margins(x=0.1, y=0.1)
    legend_below(figure, axes[0], columns=3)
    return figure


def variants(results: Results) -> Any:
    """What is changed in the rank-1 network: NLL, clean and corrupted; each dot is a seed."""
    figure, (axes,) = subplots(1, 2, 4.6, 3.2, sharey=True)
    names = (GAUSSIAN, CAUCHY, *ABLATIONS)
    for axis, part in zip(axes, ("clean", "corrupted"), strict=True):
        for place, method in enumerate(reversed(names)):
            found = list(by_seed(results, CLOTHES, method, f"{part}.nll").values())
            axis.plot(found, np.full(len(found), place), "o", color=COLOURS.get(method, "0.4"), markersize=5, alpha=0.8)
        axis.set(xlabel=f"NLL, {part} (nats)", yticks=range(len(names)), yticklabels=names[::-1])
    return figure


FIGURES = {"severity": severity, "components": components, "diversity": diversity, "variants": variants}
