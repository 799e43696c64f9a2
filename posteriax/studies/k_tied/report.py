"""What is shown of the study of the k-tied Normal, from its results alone: measures of the claims, tables, figures."""

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np

from posteriax._internal.plot_style import PALETTE, heat_map, subplots
from posteriax.metrics.score import Estimate, format_estimate
from posteriax.studies.figures import Axis, Curve, Figure, Panel, draw_panels
from posteriax.studies.k_tied.experiments import (
    HE,
    LENET,
    LSTM,
    MEAN_FIELD,
    MLP,
    POINT,
    PRIOR_SCALE,
    RANKS,
    RESNET,
    TIED,
)
from posteriax.studies.results import (
    Conditional,
    Measure,
    Parts,
    Results,
    combine,
    depending,
    entry,
    has,
    least,
    look_up,
    most,
    per_cell,
)
from posteriax.studies.tables import Column, PageTable, Row, Values, make_table

TRAINED_NETWORKS, NETWORKS = (MLP, LENET, LSTM), (MLP, LENET, LSTM, HE, RESNET)

GUESSING = {MLP: math.log(10), HE: math.log(10), LENET: math.log(100), LSTM: math.log(2), RESNET: math.log(10)}
INITIAL = (0.01, 0.001)  # mean and standard deviation of the entries of an initial matrix, in the paper

# ---- measures: numbers by seed


def trained(network: str, path: str, family: str = MEAN_FIELD) -> Measure:
    """An entry of the results of a network and family."""
    return entry(path, network=network, family=family)


def truncation_ratio(network: str, k: int, score: str) -> Measure:
    """A score after truncation to rank k, divided by the one before."""
    return trained(network, f"truncation.{k}.{score}") / trained(network, f"scores.{score}")


def against_mean_field(network: str, family: str, path: str) -> Measure:
    """An entry divided by that of mean-field."""
    return trained(network, path, family) / trained(network, path)


def truncation_difference(network: str, k: int, score: str) -> Measure:
    """A score after truncation to rank k, less the one before."""
    return trained(network, f"truncation.{k}.{score}") - trained(network, f"scores.{score}")


def if_learnt(network: str, measure: Measure | Parts) -> Conditional:
    """A measure of a network; decides nothing if its mean-field posterior is worse than guessing, by its own -ELBO."""

    def objection(results: Results) -> str:
        reached = trained(network, "scores.negative_elbo")(results).mean()
        if not reached > GUESSING[network]:
            return ""
        return (
            f"by its own objective the {network} is worse than guessing, with a -ELBO of {reached:.2f} nats against "
            f"{GUESSING[network]:.2f}"
        )

    return Conditional(measure, objection)


def by_matrix(network: str, number: Callable[[Mapping[str, Any]], float | None]) -> Parts:
    """A number of every matrix of the mean-field posterior; None for those that were not recorded."""

    def parts(results: Results) -> dict[str, Measure]:
        cells = results.select(network=network, family=MEAN_FIELD)
        names = cells[0].result["spectra"] if cells else ()

        def measure(name: str) -> Measure:
            values = {cell.seed: number(cell.result["spectra"][name]) for cell in cells}
            return Measure(lambda _: {seed: value for seed, value in values.items() if value is not None})

        return {name: measure(name) for name in names}

    return Parts(parts)


def explained(network: str) -> Parts:
    """1 - what two singular values leave of the scales, over what they leave of the same entries in random order."""

    def number(matrix: Mapping[str, Any]) -> float | None:
        if "shuffled" not in matrix or left(matrix, "shuffled") < ROUNDING:  # of two rows or columns nothing is left
            return None
        return 1 - left(matrix, "scales") / left(matrix, "shuffled")

    return by_matrix(network, number)


def scales_above_means(network: str) -> Parts:
    """The share of the first two singular values of the scales, less that of the means, by matrix."""
    return by_matrix(network, lambda matrix: left(matrix, "means") - left(matrix, "scales"))


def above_initial(network: str) -> Parts:
    """The share of the first two singular values of the scales, less that of an initial matrix of the same size."""
    return by_matrix(network, lambda matrix: left_at_start(*matrix["shape"]) - left(matrix, "scales"))


def left(matrix: Mapping[str, Any], part: str, count: int = 2) -> float:
    """The share of the squares that the first singular values leave.

    >>> round(left({"scales": [0.7, 0.2, 0.1]}, "scales"), 6)
    0.1
    """
    return 1 - sum(matrix[part][:count])


def left_at_start(rows: int, columns: int, count: int = 2) -> float:
    """What the first singular values leave of an initial matrix: independent entries, as the paper starts from.

    The first value holds the mean; the others are close to the edge of the spectrum of the noise,
    deviation (sqrt(rows) + sqrt(columns)).

    >>> round(left_at_start(784, 400), 5)
    0.00983
    """
    mean, deviation = INITIAL
    square = mean**2 + deviation**2
    edge = deviation**2 * (math.sqrt(rows) + math.sqrt(columns)) ** 2 / (rows * columns * square)
    return max(0.0, deviation**2 / square - (count - 1) * edge)


def smallest_shares() -> Parts:
    """The share of the first two singular values of the scales: the smallest over the matrices, by network."""

    def smallest(network: str) -> Measure:
        share = lambda cell: min(1 - left(matrix, "scales") for matrix in cell.result["spectra"].values())  # noqa: E731
        return per_cell(share, network=network, family=MEAN_FIELD)

    return Parts(lambda results: {name: smallest(name) for name in NETWORKS})


def relative_scale(network: str) -> Measure:
    """The mean standard deviation of the weights, in units of the prior's."""
    return per_cell(lambda cell: cell.result["mean_scale"] / PRIOR_SCALE, network=network, family=MEAN_FIELD)


def signal_ratio(window: int, reading: str = "signal") -> Measure:
    """The signal-to-noise ratio of tied scales in the first steps, divided by that of mean-field: the least over k.

    `window` counts from the start, 0, or from the end, -1.
    """
    path = f"first_steps.{reading}.{window}"

    def recorded(family: str) -> Measure:
        cells = {"network": MLP, "family": family}
        return Measure(
            lambda results: {c.seed: look_up(c.result, path) for c in results.select(**cells) if has(c, path)}
        )

    return least(*map(recorded, TIED)) / recorded(MEAN_FIELD)


def late_elbo_ratio() -> Measure:
    """-ELBO of mean-field divided by the largest one among the tied families, after the first steps.

    On test examples, where that was measured; else on the training batches of the last window.
    """

    def choose(results: Results) -> Measure:
        on_test = "first_steps.test_negative_elbo"
        measured = all(has(cell, on_test) for cell in results.select(network=MLP, family=MEAN_FIELD))
        path = on_test if measured else "first_steps.negative_elbo.-1"
        return trained(MLP, path) / most(*(trained(MLP, path, family) for family in TIED))

    return depending(choose)


def step_time_ratio(family: str, other: str) -> Measure:
    """The time of a step of the MLP with one family over that with another, by seed."""

    def by_seed(results: Results) -> dict[int, float]:
        times = {
            name: {cell.seed: _step_time(results, name, cell.seed) for cell in results.select(network=MLP, family=name)}
            for name in (family, other)
        }
        both = times[family].keys() & times[other].keys()
        return {seed: times[family][seed] / times[other][seed] for seed in sorted(both) if times[other][seed]}

    return Measure(by_seed)


def _step_time(results: Results, family: str, seed: int) -> float:
    return results.times.get(f"{MLP}, {family}, seed {seed}", {}).get("seconds_per_step", 0.0)


def early_curve_ratio(network: str) -> Measure:
    """-ELBO at a tenth of the run to convergence: mean-field divided by 2-tied."""

    def at_a_tenth(family: str) -> Measure:
        cells = {"network": network, "family": family}
        curves = lambda results: {c.seed: c.result["curve"] for c in results.select(**cells)}  # noqa: E731
        return Measure(
            lambda results: {
                seed: curve["negative_elbo"][len(curve["step"]) // 10]
                for seed, curve in curves(results).items()
                if "random_kl" in curve
            }
        )

    return at_a_tenth(MEAN_FIELD) / at_a_tenth("2-tied")


def more_speed(network: str, other: str) -> Measure:
    """The log of that ratio, of one network less that of another."""
    logs = lambda first, second: math.log(first) - math.log(second)  # noqa: E731
    return combine(logs, early_curve_ratio(network), early_curve_ratio(other))


# ---- tables, with the paper's figures beside

SCORES = {"-ELBO": "negative_elbo", "NLL": "nll", "accuracy": "accuracy"}
# -ELBO, NLL and accuracy in per cent; table 2, and figure 9 for the He-scaled prior (of a ResNet-18 on CIFAR-10)
PAPER_TRUNCATED = {
    MLP: ("0.431, 0.100, 97.6", "3.41, 0.677, 93.6", "0.456, 0.107, 97.6", "0.450, 0.106, 97.6"),
    LENET: ("3.83, 2.23, 42.1", "4.33, 2.30, 41.7", "3.88, 2.24, 42.2", "3.86, 2.24, 42.1"),
    LSTM: ("0.536, 0.493, 80.1", "0.687, 0.491, 80.0", "0.621, 0.494, 80.1", "0.595, 0.493, 80.1"),
    HE: ("1.379, 0.638, 79.0", "5.428, 1.485, 57.0", "1.448, 0.648, 78.8", "1.411, 0.646, 78.9"),
    RESNET: ("122.61, 0.495, 83.5", "122.57, 0.658, 81.7", "122.77, 0.503, 83.2", "122.67, 0.501, 83.2"),
}
# the same and thousands of parameters; figure 6
PAPER_TRAINED = {
    MLP: ("0.501, 0.133, 96.8, 957", "0.539, 0.155, 96.1, 482", "0.520, 0.129, 96.8, 484", "0.497, 0.120, 96.9, 486"),
    LENET: ("3.72, 2.16, 43.9, 4405", "3.65, 2.12, 45.5, 2262", "3.76, 2.15, 44.3, 2268", "3.73, 2.13, 44.3, 2273"),
    LSTM: (
        "0.538, 0.478, 79.5, 2823",
        "0.592, 0.512, 77.6, 2693",
        "0.560, 0.484, 78.2, 2694",
        "0.550, 0.491, 78.8, 2695",
    ),
}
# signal-to-noise ratio and -ELBO at steps 1000, 5000 and 9000; figure 6
PAPER_FIRST_STEPS = {
    MEAN_FIELD: ("4.13, 4.45, 3.21", "42.16, 26.52, 15.39"),
    "1-tied": ("5840, 158, 5.3", "43.11, 14.85, 2.06"),
    "2-tied": ("7500, 140, 4.3", "42.74, 13.97, 1.82"),
    "3-tied": ("7000, 117, 4.1", "42.63, 13.61, 1.80"),
}
PAPER_STEP_TIMES = {POINT: "2.00", MEAN_FIELD: "7.17", "2-tied": "6.14"}  # milliseconds; table 4


def tables(results: Results) -> list[PageTable]:
    return [_spectra(results), _truncation(results), _training(results), _first_steps(results), _step_times(results)]


def show(values: Values) -> str:
    """The mean over seeds and its standard error; a dash if there are none.

    >>> show([0.1, 0.2]), show([])
    ('0.15 ± 0.05', '-')
    """
    return format_estimate(Estimate.from_mean(list(values), "seeds")) if len(values) else "-"


def _look_up(results: Results, network: str, family: str = MEAN_FIELD, part: str = "") -> Callable[[str], Values]:
    return lambda path: results.values(part + path, network=network, family=family)


def _spectra(results: Results) -> PageTable:
    shares = {f"{part}, {count}": (part, count) for part in ("scales", "means") for count in (1, 2)}
    rows = []
    for network in NETWORKS:
        runs = [cell.result["spectra"] for cell in results.select(network=network, family=MEAN_FIELD)]
        for leaf, matrix in (runs[0] if runs else {}).items():
            shown = [show([sum(run[leaf][part][:count]) for run in runs]) for part, count in shares.values()]
            size = " x ".join(map(str, matrix["shape"]))
            rows.append((network, leaf, size, *shown, show([run[leaf]["mean_scale"] for run in runs])))
    caption = (
        "Share of squares that the first one and two singular values hold, of trained standard deviations (scales) and "
        "of means, and the mean standard deviation."
    )
    return PageTable(caption, ("network", "matrix", "size", *shares, "mean scale"), rows)


def _truncation(results: Results) -> PageTable:
    parts = {"as trained": "scores.", **{f"rank {k}": f"truncation.{k}." for k in RANKS}}
    rows = [
        Row((network, name), _look_up(results, network, part=part), (paper,))
        for network, reported in PAPER_TRUNCATED.items()
        for (name, part), paper in zip(parts.items(), reported, strict=True)
        if results.select(network=network)
    ]
    caption = (
        "Truncation of trained standard deviations. -ELBO and NLL in nats per test example, accuracy in per cent; the "
        f"paper's figures in the same order. For the {HE} they are those of a ResNet-18 on CIFAR-10."
    )
    columns = [Column(name, path, show) for name, path in SCORES.items()]
    return make_table(caption, ("network", "scales"), columns, rows, ("the paper",))


def _training(results: Results) -> PageTable:
    columns = [Column(name, f"scores.{path}", show) for name, path in SCORES.items()]
    columns += [Column("parameters", "parameters", lambda values: f"{values[0]:,.0f}")]
    columns += [Column("last fall", "settling", show)]
    rows = [
        Row((network, family), _look_up(results, network, family), (paper,))
        for network, reported in PAPER_TRAINED.items()
        for paper, family in zip(reported, (MEAN_FIELD, *TIED), strict=True)
        if results.select(network=network, family=family)
    ]
    caption = (
        "Training with tied scales; parameters are those of the posterior. The last fall is how much the training "
        "-ELBO still fell between the last two tenths of the run. The paper: -ELBO, NLL, accuracy, thousands of "
        "parameters."
    )
    return make_table(caption, ("network", "family"), columns, rows, ("the paper",))


def _first_steps(results: Results) -> PageTable:
    runs = [cell.result["first_steps"] for cell in results.select(network=MLP) if "first_steps" in cell.result]
    if not runs:
        return PageTable("", ("family",), ())
    steps = runs[0]["step"]
    windows = sorted({1, (len(steps) + 1) // 2, len(steps) - 1})
    readings = {"SNR": "signal", "-ELBO": "negative_elbo"}
    if "median_ratio" in runs[0]:
        readings["median ratio"] = "median_ratio"
    columns = [
        Column(f"{name}, step {steps[window]}", f"first_steps.{reading}.{window}", show)
        for name, reading in readings.items()
        for window in windows
    ]
    rows = [Row((family,), _look_up(results, MLP, family), paper) for family, paper in PAPER_FIRST_STEPS.items()]
    caption = (
        "The first steps of the MLP with Adam: signal-to-noise ratio of the gradients of the second layer's scales, "
        "sum of E[g^2] / sum of Var[g] over ten batches (1 is noise), and -ELBO in nats per training example. The "
        "paper's figures, averages of E[g^2] / Var[g] over parameters, are those at steps 1000, 5000 and 9000; the "
        f"learning rate here is {results.settings['first_rate']:g}."
    )
    return make_table(caption, ("family",), columns, rows, ("SNR, the paper", "-ELBO, the paper"))


def _step_times(results: Results) -> PageTable:
    rows = []
    for family in (POINT, MEAN_FIELD, *TIED):
        names = [f"{MLP}, {family}, seed {cell.seed}" for cell in results.select(network=MLP, family=family)]
        times = [results.times.get(name, {}).get("seconds_per_step") for name in names]
        rows.append((family, show([1000 * time for time in times if time]), PAPER_STEP_TIMES.get(family, "-")))
    caption = "Milliseconds per step of the MLP in the first steps. The paper's are of a smaller network on a GPU."
    return PageTable(caption, ("family", "here", "the paper"), rows)


# ---- figures

COLOURS = dict(zip((MEAN_FIELD, *TIED), (PALETTE[3], PALETTE[1], PALETTE[0], PALETTE[2]), strict=True))
SPECTRA = {"scales": PALETTE[0], "means": PALETTE[3], "shuffled": PALETTE[1]}
ROUNDING = 1e-9  # a share that is left is none
SMALLEST_SHARE = 1e-7  # that a figure shows
SCORE_PLACES = {"negative_elbo": 0, "nll": 1}  # in the paper's rows
THIN = {"linewidth": 0.7, "alpha": 0.5}  # lines of single seeds


def spectra(results: Results) -> Figure:
    """What the first singular values leave of the squares, by matrix, on a logarithmic axis; thin lines are seeds."""
    panels = []
    for network in (*TRAINED_NETWORKS, RESNET):
        runs = [cell.result["spectra"] for cell in results.select(network=network, family=MEAN_FIELD)]
        for leaf, matrix in (runs[0] if runs else {}).items():
            lines = []
            for part, colour in SPECTRA.items():
                if part not in matrix:
                    continue
                shares = 1 - np.cumsum([run[leaf][part] for run in runs], axis=1)
                shares[shares < SMALLEST_SHARE] = np.nan
                counts = np.arange(1, shares.shape[1] + 1)
                lines.append(Curve(counts, shares.T, "-", colour, options=THIN))
                lines.append(Curve(counts, shares.mean(axis=0), "o", colour, options={"markersize": 4}))
            rows, columns = matrix["shape"]
            start = [
                left_at_start(rows, columns, int(count)) if count < min(rows, columns) / 2 else np.nan
                for count in counts
            ]
            lines.append(Curve(counts, start, "--", "0.5", options={"linewidth": 1}))
            settings = {
                "xlabel": "singular values",
                "yscale": "log",
                "ylim": (SMALLEST_SHARE, 1.5),
                "xticks": [1, 5, 10],
            }
            panels.append(Panel(lines, settings, f"{network}: {leaf}"))
    figure, axes = draw_panels(panels, 2.6, 2.5, columns=4, sharey=True)
    for axis in axes[:: min(4, max(len(panels), 1))]:
        axis.set_ylabel("share of squares left")
    if panels:
        names = {"scales": "standard deviations", "means": "means", "shuffled": "the same, shuffled"}
        shown = [part for part in SPECTRA if part in matrix]
        handles = [*(_line(SPECTRA[part], "-") for part in shown), _line("0.5", "--")]
        labels = [*(names[part] for part in shown), "initial matrix"]
        figure.legend(handles, labels, loc="outside lower center", ncol=4, fontsize="small", frameon=False)
    return figure


def _line(colour: str, style: Literal["-", "--"]) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], color=colour, linestyle=style)


def truncation(results: Results) -> Figure:
    """NLL and -ELBO after truncation, relative to those as trained; dots are seeds, crosses are the paper's."""
    panels = []
    shown = [network for network in NETWORKS if results.select(network=network, family=MEAN_FIELD)]
    for score, label in (("nll", "NLL"), ("negative_elbo", "-ELBO")):
        for network in shown:
            lines = []
            for k in RANKS:
                ratio = truncation_ratio(network, k, score)(results)
                options = {"markersize": 6, "alpha": 0.7}
                lines.append(Curve(np.full(len(ratio), k), ratio, "o", COLOURS[f"{k}-tied"], options=options))
            reported = [float(row.split(", ")[SCORE_PLACES[score]]) for row in PAPER_TRUNCATED[network]]
            lines.append(Curve(RANKS, np.array(reported[1:]) / reported[0], "x", "0.2", options={"markersize": 7}))
            settings = {"xlabel": "rank of the scales", "xticks": RANKS, "xlim": (0.5, 3.5), "yscale": "log"}
            panels.append(Panel(lines, {**settings, "ylabel": f"{label} / as trained"}, network))
    figure, axes = draw_panels(panels, 2.7, 2.6, columns=max(len(shown), 1))
    for axis, _ in zip(axes, panels, strict=False):
        axis.axhline(1.0, color="0.6", linewidth=1, zorder=0)
        low, high = axis.get_ylim()
        axis.set_ylim(min(low, 0.8), max(high, 1.5))  # small differences are noise
        ticks = [tick for tick in (0.8, 1, 1.2, 1.5, 2, 3, 5, 8) if min(low, 0.8) <= tick <= max(high, 1.5)]
        axis.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.minorticks_off()
    return figure


def heat_maps(results: Results) -> Figure:
    """Trained standard deviations of the LeNet's first dense layer, and their approximations of rank 1 and 2."""
    shown = (cell.result["heat"] for cell in results.select(network=LENET) if "heat" in cell.result)
    heat: Mapping[str, Any] = next(shown, {})
    figure, (axes,) = subplots(1, max(len(heat), 1), 3.2, 3.0)
    for axis, (name, matrix) in zip(axes, heat.items(), strict=False):
        values = np.asarray(matrix, float)
        image = heat_map(axis, values, title="as trained" if name == "scales" else name)
        image.set_clim(*np.quantile(np.asarray(heat["scales"], float), [0.01, 0.99]))
        axis.set(xlabel="output", ylabel="input" if axis is axes[0] else "", xticks=[], yticks=[])
    if heat:
        figure.colorbar(image, ax=list(axes), label="standard deviation", shrink=0.8)
    return figure


def first_steps(results: Results) -> Figure:
    """Signal-to-noise ratio and -ELBO in the first steps, by family; means over seeds."""
    labels = {"signal": "signal to noise, scales of layer 2  (1: noise)", "negative_elbo": "-ELBO (nats per example)"}
    runs = {
        family: [cell.result["first_steps"] for cell in results.select(network=MLP, family=family)]
        for family in COLOURS
        if results.select(network=MLP, family=family)
    }
    panels, ends = [], []
    for reading, label in labels.items():
        lines, end = [], {}
        for family, by_seed in runs.items():
            steps, values = by_seed[0]["step"], np.array([run[reading] for run in by_seed], float)
            middle = np.exp(np.log(values).mean(axis=0))
            lines.append(Curve(steps, values.T, "-", COLOURS[family], options=THIN))
            lines.append(Curve(steps, middle, "-", COLOURS[family], options={"linewidth": 2}))
            end[family] = (steps[-1], float(middle[-1]))
        panels.append(Panel(lines, {"yscale": "log", "xlabel": "step", "ylabel": label}))
        ends.append(end)
    figure, axes = draw_panels(panels, 4.4, 3.4)
    for axis, end in zip(axes, ends, strict=True):
        _label_ends(axis, end)
    axes[0].axhline(1.0, color="0.6", linewidth=1)
    return figure


def convergence(results: Results) -> Figure:
    """-ELBO of the training examples in the runs to convergence.

    Of networks with point estimates only runs whose curve was recorded without the prior density of these.
    """
    panels, ends = [], []
    for network in TRAINED_NETWORKS:
        curves = {
            family: [cell.result["curve"] for cell in results.select(network=network, family=family)]
            for family in COLOURS
        }
        curves = {
            family: runs for family, runs in curves.items() if runs and (network != LSTM or "random_kl" in runs[0])
        }
        if not curves:
            continue
        every = [run["negative_elbo"] for runs in curves.values() for run in runs]
        low, high = min(map(min, every)), max(values[len(values) // 5] for values in every)
        limits = (low - 0.05 * (high - low), high + 0.02 * (high - low))
        options = {"linewidth": 1.0, "alpha": 0.8}
        lines = [
            Curve(run["step"], run["negative_elbo"], "-", COLOURS[family], options=options)
            for family, runs in curves.items()
            for run in runs
        ]
        panels.append(Panel(lines, {"xlabel": "step", "ylim": limits}, network))
        last = max(runs[0]["step"][-1] for runs in curves.values())
        ends.append({f: (last, float(np.mean([run["negative_elbo"][-1] for run in r]))) for f, r in curves.items()})
    figure, axes = draw_panels(panels, 3.9, 3.0)
    for axis, end in zip(axes, ends, strict=False):
        _label_ends(axis, end)
    axes[0].set_ylabel("-ELBO (nats per training example)")
    return figure


def _label_ends(axis: Axis, ends: dict[str, tuple[float, float]]) -> None:
    """Name each line at its right end, (x, y), with the names moved apart where lines are close."""
    scale, back = (np.log, np.exp) if axis.get_yscale() == "log" else (float, float)
    low, high = map(scale, axis.get_ylim())
    gap, height = 0.07 * (high - low), -np.inf
    for family, (x, y) in sorted(ends.items(), key=lambda item: item[1][1]):
        height = max(scale(y), height + gap)
        axis.text(x, back(height), f"  {family}", color=COLOURS[family], fontsize="small", va="center", clip_on=False)


FIGURES = {
    "spectra": spectra,
    "heat_maps": heat_maps,
    "truncation": truncation,
    "convergence": convergence,
    "first_steps": first_steps,
}
NEEDS = {"heat_maps": lambda results: any("heat" in cell.result for cell in results.cells)}
