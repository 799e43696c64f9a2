"""What is shown of the study of the k-tied Normal, from its results alone: measures of the claims, tables, figures."""

from collections.abc import Callable

import numpy as np

from posteriax._internal.plot_style import PALETTE
from posteriax.metrics.score import Estimate, format_estimate
from posteriax.studies.figures import Axis, Curve, Figure, Panel, draw_panels
from posteriax.studies.k_tied.experiments import HE, LENET, LSTM, MEAN_FIELD, MLP, POINT, PRIOR_SCALE, RANKS, TIED
from posteriax.studies.results import CellResult, Measure, Results, entry, least, most, per_cell
from posteriax.studies.tables import Column, PageTable, Row, Values, make_table

TRAINED_NETWORKS, NETWORKS = (MLP, LENET, LSTM), (MLP, LENET, LSTM, HE)

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


def smallest_share(network: str, part: str, count: int) -> Measure:
    """The share of the squares in the first `count` singular values: the smallest over the matrices."""
    return per_cell(lambda cell: min(_shares(cell, part, count)), network=network, family=MEAN_FIELD)


def largest_share(network: str, part: str, count: int) -> Measure:
    """The share of the squares in the first `count` singular values: the largest over the matrices."""
    return per_cell(lambda cell: max(_shares(cell, part, count)), network=network, family=MEAN_FIELD)


def _shares(cell: CellResult, part: str, count: int) -> list[float]:
    return [sum(matrix[part][:count]) for matrix in cell.result["spectra"].values()]


def relative_scale(network: str) -> Measure:
    """The mean standard deviation of the weights, in units of the prior's."""
    return per_cell(lambda cell: cell.result["mean_scale"] / PRIOR_SCALE, network=network, family=MEAN_FIELD)


def signal_ratio(window: int, reading: str = "signal") -> Measure:
    """The signal-to-noise ratio of tied scales in the first steps, divided by that of mean-field: the least over k.

    `window` counts from the start, 0, or from the end, -1.
    """
    path = f"first_steps.{reading}.{window}"
    return least(*(trained(MLP, path, family) for family in TIED)) / trained(MLP, path)


def late_elbo_ratio() -> Measure:
    """-ELBO of mean-field divided by the largest one among the tied families, at the last window."""
    path = "first_steps.negative_elbo.-1"
    return trained(MLP, path) / most(*(trained(MLP, path, family) for family in TIED))


# ---- tables, with the paper's figures beside

SCORES = {"-ELBO": "negative_elbo", "NLL": "nll", "accuracy": "accuracy"}
# -ELBO, NLL and accuracy in per cent; table 2, and figure 9 for the He-scaled prior (of a ResNet-18 on CIFAR-10)
PAPER_TRUNCATED = {
    MLP: ("0.431, 0.100, 97.6", "3.41, 0.677, 93.6", "0.456, 0.107, 97.6", "0.450, 0.106, 97.6"),
    LENET: ("3.83, 2.23, 42.1", "4.33, 2.30, 41.7", "3.88, 2.24, 42.2", "3.86, 2.24, 42.1"),
    LSTM: ("0.536, 0.493, 80.1", "0.687, 0.491, 80.0", "0.621, 0.494, 80.1", "0.595, 0.493, 80.1"),
    HE: ("1.379, 0.638, 79.0", "5.428, 1.485, 57.0", "1.448, 0.648, 78.8", "1.411, 0.646, 78.9"),
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
        for leaf, matrix in runs[0].items():
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
    steps = results.select(network=MLP, family=MEAN_FIELD)[0].result["first_steps"]["step"]
    windows = sorted({1, (len(steps) + 1) // 2, len(steps) - 1})
    readings = {"SNR": "signal", "averaged ratio": "mean_ratio", "-ELBO": "negative_elbo"}
    columns = [
        Column(f"{name}, step {steps[window]}", f"first_steps.{reading}.{window}", show)
        for name, reading in readings.items()
        for window in windows
    ]
    rows = [Row((family,), _look_up(results, MLP, family), paper) for family, paper in PAPER_FIRST_STEPS.items()]
    caption = (
        "The first steps of the MLP with Adam: signal-to-noise ratio of the gradients of the second layer's scales, "
        "sum of E[g^2] / sum of Var[g] over ten batches (1 is noise); the average over parameters of E[g^2] / "
        "Var[g], which is the paper's; and -ELBO in nats per training example. The paper's figures are those at steps "
        f"1000, 5000 and 9000; the learning rate here is {results.settings['first_rate']:g}."
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
PAPER_NLL = {MLP: (0.100, 0.677, 0.107, 0.106), LENET: (2.23, 2.30, 2.24, 2.24), LSTM: (0.493, 0.491, 0.494, 0.493)}
THIN = {"linewidth": 0.7, "alpha": 0.5}  # lines of single seeds


def spectra(results: Results) -> Figure:
    """Shares of the first singular values, by matrix; thin lines are seeds."""
    panels = []
    for network in TRAINED_NETWORKS:
        runs = [cell.result["spectra"] for cell in results.select(network=network, family=MEAN_FIELD)]
        for leaf in runs[0]:
            lines = []
            for part, colour in (("scales", PALETTE[0]), ("means", PALETTE[3])):
                shares = np.array([run[leaf][part] for run in runs], float)
                numbers = np.arange(1, shares.shape[1] + 1)
                lines.append(Curve(numbers, shares.T, "-", colour, options=THIN))
                lines.append(Curve(numbers, shares.mean(axis=0), "o", colour, options={"markersize": 4}))
            settings = {"xlabel": "singular value", "ylim": (-0.03, 1.03), "xticks": [1, 5, 10]}
            panels.append(Panel(lines, settings, f"{network}: {leaf}"))
    figure, axes = draw_panels(panels, 2.6, 2.5, columns=4, sharey=True)
    axes[0].text(3, 0.75, "standard deviations", color=PALETTE[0], fontsize="small")
    axes[0].text(3, 0.24, "means", color=PALETTE[3], fontsize="small")
    for axis in axes[::4]:
        axis.set_ylabel("share of squares")
    return figure


def truncation(results: Results) -> Figure:
    """NLL after truncation, relative to the NLL as trained; each dot is a seed, crosses are the paper's."""
    panels = []
    for network in NETWORKS:
        lines = []
        for k in RANKS:
            ratio = truncation_ratio(network, k, "nll")(results)
            options = {"markersize": 6, "alpha": 0.7}
            lines.append(Curve(np.full(len(ratio), k), ratio, "o", COLOURS[f"{k}-tied"], options=options))
        if network in PAPER_NLL:
            lines.append(Curve(RANKS, np.array(PAPER_NLL[network][1:]) / PAPER_NLL[network][0], "x"))
        settings = {"xlabel": "rank of the scales", "xticks": RANKS, "xlim": (0.5, 3.5)}
        panels.append(Panel(lines, settings, network))
    figure, axes = draw_panels(panels, 2.5, 2.8)
    for axis in axes:
        axis.axhline(1.0, color="0.6", linewidth=1)
        low, high = axis.get_ylim()
        axis.set_ylim(min(low, 0.9), max(high, 1.1))  # small differences are noise
    axes[0].set_ylabel("NLL / NLL as trained")
    axes[0].text(1.15, PAPER_NLL[MLP][1] / PAPER_NLL[MLP][0], "the paper", color="0.3", va="center", fontsize="small")
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
    """-ELBO of the training examples in the runs to convergence; for the LSTM up to a constant."""
    panels, ends = [], []
    for network in TRAINED_NETWORKS:
        curves = {
            family: [cell.result["curve"] for cell in results.select(network=network, family=family)]
            for family in COLOURS
        }
        curves = {family: runs for family, runs in curves.items() if runs}
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
    figure, axes = draw_panels(panels, 3.6, 3.0)
    for axis, end in zip(axes, ends, strict=True):
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


FIGURES = {"spectra": spectra, "truncation": truncation, "first_steps": first_steps, "convergence": convergence}
