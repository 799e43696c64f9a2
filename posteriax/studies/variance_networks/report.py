"""What is shown of the study of variance networks, from its results alone: measures of the claims, tables, figures."""

from collections.abc import Callable
from functools import partial

import numpy as np

from posteriax._internal.plot_style import PALETTE, legend_below, subplots
from posteriax.studies.figures import Curve, Figure, Panel, draw_panels, numbers
from posteriax.studies.results import CellResult, Conditional, Measure, Parts, Results, combine, entry, per_cell
from posteriax.studies.tables import Column, PageTable, Row, make_table, mean_with_error
from posteriax.studies.variance_networks.experiments import EDGES, LAYER, THRESHOLD

ATTACKED = {  # ways to predict, with the colours and lines of the figure
    "dropout, means": (5, ":"),
    "dropout": (0, "--"),
    "deep ensemble": (1, "-."),
    "variance": (2, "-"),
    "variance ensemble": (3, "-"),
}
VARIANCE = ("variance", "variance ensemble")
AT_CHANCE = 0.2  # accuracy below it is that of a guess among ten classes, or nearly
EMERGED = 1e-3  # share of weights with a kappa above the threshold

# ---- measures: numbers by seed


def accuracy(method: str, path: str) -> Measure:
    """A number of LeNet-5 with this layer, trained on all data."""
    return entry(path, experiment="accuracy", network="LeNet-5", method=method)


def parameterisation(method: str, path: str) -> Measure:
    """A number of LeNet-5 with this layer, trained on the subset."""
    return entry(path, experiment="parameterisation", method=method)


def toy_problem(path: str) -> Measure:
    return entry(path, experiment="toy")


def fall_of_means() -> Measure:
    """Deterministic accuracy: the largest along the run less the last."""

    def fall(cell: CellResult) -> float:
        return float(max(numbers(cell.result["curve"]["deterministic"])) - cell.result["deterministic"])

    return per_cell(fall, experiment="parameterisation", method="layer")


def dip_of_ensemble() -> Measure:
    """The ensemble's smallest accuracy after the reading where the means are best, less that at this reading."""

    def dip(cell: CellResult) -> float:
        curve = cell.result["curve"]
        ensemble, best = numbers(curve["ensemble"]), int(np.argmax(numbers(curve["deterministic"])))
        return float(ensemble[best:].min() - ensemble[best])

    return per_cell(dip, experiment="parameterisation", method="layer")


def after_transition(measure: Measure) -> Conditional:
    """A measure of the runs with one alpha per layer; decides nothing unless their means have reached chance."""

    def objection(results: Results) -> str:
        means = parameterisation("layer", "deterministic")(results)
        reached = int((means < AT_CHANCE).sum())
        return "" if reached == len(means) else f"in {reached} of {len(means)} runs the means have reached chance"

    return Conditional(measure, objection)


def same_rates(measure: Measure | Parts) -> Conditional:
    """A comparison of parameterisations; decides nothing if their noise had different learning rates."""

    def objection(results: Results) -> str:
        rates = [results.settings.get(name) for name in ("noise_rate", "free_rate")]
        if rates[0] == rates[1]:
            return ""
        return (
            f"the learning rates of log alpha differ, {rates[0]} for the layer and {rates[1]} for single weights, and "
            "the result depends on them"
        )

    return Conditional(measure, objection)


def flexible_means() -> Parts:
    """Deterministic accuracy of the two parameterisations with a parameter for every weight."""
    return Parts(lambda results: {name: parameterisation(name, "deterministic") for name in ("weight", "additive")})


def equal_ensembles() -> Parts:
    """Ensemble accuracy of one alpha per layer, less that of each other parameterisation."""
    layer_alpha = parameterisation("layer", "ensemble")
    others = ("neuron", "weight", "additive")
    return Parts(lambda results: {name: layer_alpha - parameterisation(name, "ensemble") for name in others})


def log_alpha_lead() -> Measure:
    """Log alpha of the first dense layer less the largest of the other layers, where all are variance layers."""

    def lead(cell: CellResult) -> float:
        by_layer = dict(cell.result["log_alphas"])
        return float(by_layer.pop(LAYER) - max(by_layer.values()))

    cells = {"experiment": "accuracy", "network": "LeNet-5", "method": "layer"}
    return Measure(lambda results: {c.seed: lead(c) for c in results.select(**cells) if "log_alphas" in c.result})


def readings_before_fall() -> Measure:
    """Readings from the first weights of large kappa to the fall of the means to half of their best accuracy, in runs
    that have both."""

    def count(cell: CellResult) -> float | None:
        curve = cell.result["curve"]
        above, means = numbers(curve["above"]), numbers(curve["deterministic"])
        emerged, fallen = above > EMERGED, means < means.max() / 2
        return float(np.argmax(fallen) - np.argmax(emerged)) if emerged.any() and fallen.any() else None

    return per_cell(count, experiment="curvature")


def emergence() -> Measure:
    """log10 of the share of weights above the threshold: at the end, less at the first measurement."""

    def growth(cell: CellResult) -> float:
        above = np.maximum(numbers(cell.result["curve"]["above"]), 1e-6)
        return float(np.log10(above[-1] / above[0]))

    return per_cell(growth, experiment="curvature")


def sparse_loss(removed: float, rest: str) -> Measure:
    """What the ensemble loses without a share of the weights of the variance layer."""

    def loss(cell: CellResult) -> float:
        return float(cell.result["ensemble"] - cell.result[rest][list(cell.result["removed"]).index(removed)])

    cells = {"experiment": "curvature"}
    return Measure(lambda results: {c.seed: loss(c) for c in results.select(**cells) if rest in c.result})


def mean_success(predictor: str) -> Measure:
    """The success rate of attacks, averaged over iterations."""
    return per_cell(lambda cell: float(np.mean(cell.result[predictor]["success"][1:])), experiment="attack")


def mean_entropy(predictor: str) -> Measure:
    """The mean predictive entropy under attack, averaged over iterations, in nats."""
    return per_cell(lambda cell: float(np.mean(cell.result[predictor]["entropy"][1:])), experiment="attack")


def clean_entropy(predictor: str) -> Measure:
    return per_cell(lambda cell: cell.result[predictor]["entropy"][0], experiment="attack")


def only_variance_networks_doubt() -> Parts:
    """Entropy under attack less that on clean images; of the other methods with the opposite sign."""
    rises = {name: mean_entropy(name) - clean_entropy(name) for name in ATTACKED}
    signs = {name: 1.0 if name in VARIANCE else -1.0 for name in ATTACKED}

    def signed(name: str) -> Measure:
        return combine(lambda rise: signs[name] * rise, rises[name])

    return Parts(lambda results: {name: signed(name) for name in ATTACKED})


def excess_entropy(predictor: str, other: str) -> Measure:
    """The mean over iterations of the difference in predictive entropy, in nats."""

    def excess(cell: CellResult) -> float:
        return float(np.mean(np.subtract(*(cell.result[name]["entropy"][1:] for name in (predictor, other)))))

    return per_cell(excess, experiment="attack")


# ---- tables, beside the paper's

WAYS = {"stochastic": "--", "deterministic": ":", "ensemble": "-"}  # to predict, with the lines of the figures
# stochastic, deterministic, ensemble accuracy in per cent
PAPER_ACCURACIES: dict[tuple[str, str, str], tuple[str, str, str]] = {
    ("LeNet-5", "mnist", "dropout"): ("99.1", "99.4", "99.4"),
    ("LeNet-5", "mnist", "layer"): ("95.9", "10.1", "99.3"),
    ("LeNet-5", "mnist", "zero-mean"): ("", "", "99.2"),
    ("VGG", "cifar10", "dropout"): ("91.0", "93.1", "93.4"),
    ("VGG", "cifar10", "layer"): ("91.3", "10.0", "93.4"),
    ("VGG", "cifar10", "zero-mean"): ("", "", "92.9"),
    ("VGG", "cifar100", "dropout"): ("77.5", "79.8", "81.7"),
    ("VGG", "cifar100", "layer"): ("76.9", "5.0", "82.2"),
}
# ELBO in nats, deterministic and ensemble accuracy in per cent
PAPER_PARAMETERISATIONS = {
    "layer": ("-5.9e+02", "11.3", "99.2"),
    "neuron": ("-7.7e+02", "11.3", "99.2"),
    "weight": ("-6.4e+04", "81.3", "99.2"),
    "additive": ("-2.3e+04", "96.3", "99.2"),
    "student-t": ("", "chance", "99.2"),
}
LAYERS = {
    "dropout": "dropout",
    "layer": "one alpha per layer",
    "neuron": "one alpha per neuron",
    "weight": "one alpha per weight",
    "additive": "additive",
    "student-t": "one alpha per layer, Student-t prior",
    "zero-mean": "zero mean, from scratch",
}
percent, plain = mean_with_error(2, 100), mean_with_error(2)


def tables(results: Results) -> list[PageTable]:
    return [_accuracies(results), _parameterisations(results), _sparse(results), _attacks(results), _toy(results)]


def _accuracies(results: Results) -> PageTable:
    cells = results.select(experiment="accuracy")
    keys = dict.fromkeys(tuple(cell.settings[name] for name in ("network", "data", "method")) for cell in cells)
    rows = []
    for network, data, method in keys:
        row = [network, data, LAYERS[method]]
        for way, paper in zip(WAYS, PAPER_ACCURACIES.get((network, data, method), ("", "", "")), strict=True):
            values = results.values(way, experiment="accuracy", network=network, data=data, method=method)
            row += [percent(values), paper]
        rows.append(row)
    headings = ["network", "data", "layer", *(text for way in WAYS for text in (f"{way} (%)", "paper"))]
    return PageTable(
        "Test accuracy of single draws, of the mean weights, and of the average over draws", headings, rows
    )


def _parameterisations(results: Results) -> PageTable:
    columns = (
        Column("deterministic (%)", "deterministic", percent),
        Column("ensemble (%)", "ensemble", percent),
        Column("means set to 0 (%)", "without_means", percent),
        Column("variances shuffled (%)", "shuffled", percent),
        Column("log alpha", "log_alpha", plain),
    )
    rows = []
    for method in results.distinct("method", experiment="parameterisation"):
        values = partial(results.values, experiment="parameterisation", method=method)
        # a proper prior with so heavy tails has a KL of millions of nats that says nothing about the fit
        elbo = "" if method == "student-t" else f"{values('elbo').mean():.3g}"
        rows.append(Row((LAYERS[method], elbo), values, PAPER_PARAMETERISATIONS[method]))
    caption = "Parameterisations of the first dense layer, trained on the subset"
    table = make_table(caption, ("parameterisation", "ELBO (nats)"), columns, rows, ("paper",) * 3)
    order = (0, 1, 7, 2, 8, 3, 9, 4, 5, 6)  # the paper's figures beside ours
    beside = [[row[i] for i in order] for row in (table.headings, *table.rows)]
    return PageTable(caption, beside[0], beside[1:])


def _sparse(results: Results) -> PageTable:
    cells = results.select(experiment="curvature")
    rows = [["0", *[percent(results.values("ensemble", experiment="curvature"))] * 2]]
    for i, share in enumerate(cells[0].result["removed"] if cells else ()):
        left = [percent(results.values(f"{rest}.{i}", experiment="curvature")) for rest in ("zero", "mean")]
        rows.append([f"{100 * share:g}", *left])
    caption = "Ensemble accuracy without the weights of the smallest kappa (paper: no loss up to 98 %)"
    return PageTable(caption, ["removed (%)", "set to 0 (%)", "set to their means (%)"], rows)


def _attacks(results: Results) -> PageTable:
    cells, nats = results.select(experiment="attack"), mean_with_error(3)
    measures: dict[str, tuple[Callable[[str], Measure], Callable[..., str]]] = {
        "clean accuracy (%)": (lambda name: entry(f"{name}.accuracy.0", experiment="attack"), percent),
        "success, mean (%)": (mean_success, percent),
        "success, last (%)": (lambda name: entry(f"{name}.success.-1", experiment="attack"), percent),
        "entropy, clean": (clean_entropy, nats),
        "entropy, attacked": (mean_entropy, nats),
    }
    rows = [
        [name, *(write(measure(name)(results)) for measure, write in measures.values())]
        for name in (cells[0].result if cells else ())
    ]
    return PageTable("Targeted attacks: success rates and mean predictive entropies in nats", ["", *measures], rows)


def _toy(results: Results) -> PageTable:
    columns = [Column(f"{way} (%)", way, percent) for way in WAYS]
    rows = [Row((), partial(results.values, experiment="toy"))]
    return make_table("Four Gaussians through two units with mean 0", (), columns, rows)


# ---- figures

LEAST_SHARE = 1e-6  # where the figure shows a share of 0
WAY_NAMES = {"deterministic": "mean weights", "ensemble": "ensemble"}
COLOURS = {"ensemble": PALETTE[2], "stochastic": PALETTE[0], "deterministic": PALETTE[3]}


def phase_transition(results: Results) -> Figure:
    """Accuracies and log alpha along the runs with one alpha for the layer; one line per seed."""
    curves = [cell.result["curve"] for cell in results.select(experiment="parameterisation", method="layer")]
    accuracies = [
        Curve(curve["step"], numbers(curve[way]), WAYS[way], colour, way if curve is curves[-1] else None)
        for curve in curves
        for way, colour in COLOURS.items()
    ]
    alphas = [Curve(curve["step"], numbers(curve["log_alpha"])) for curve in curves]
    panels = (
        Panel(accuracies, {"ylabel": "accuracy", "ylim": (0, 1.02)}, legend={"loc": "lower left"}),
        Panel(alphas, {"xlabel": "step", "ylabel": "log alpha"}),
    )
    return draw_panels(panels, 5.6, 2.7, columns=1, sharex=True)[0]


def parameterisations(results: Results) -> Figure:
    """Accuracies of ensemble and means, and the ELBO, by parameterisation; dots are seeds, crosses the paper's."""
    methods = results.distinct("method", experiment="parameterisation")
    heights = {method: len(methods) - 1 - i for i, method in enumerate(methods)}
    figure, (axes,) = subplots(1, 2, 4.8, 0.8 + 0.5 * max(len(methods), 1), sharey=True)
    for method, height in heights.items():
        values = partial(results.values, experiment="parameterisation", method=method)
        elbo, *accuracies = PAPER_PARAMETERISATIONS[method]
        for way, paper, shift in zip(("deterministic", "ensemble"), accuracies, (-0.12, 0.12), strict=True):
            label = WAY_NAMES[way] if height == 0 else None
            dots = np.full(len(values(way)), height + shift)
            axes[0].plot(values(way), dots, "o", color=COLOURS[way], alpha=0.8, markersize=5, label=label)
            reported = 0.1 if paper == "chance" else float(paper) / 100
            axes[0].plot([reported], [height + shift], "x", color=COLOURS[way], markersize=7)
        if elbo:  # Student's t has a KL of millions of nats that says nothing about the fit
            axes[1].plot(-values("elbo"), np.full(len(values("elbo")), height), "o", color="0.3", alpha=0.8)
            axes[1].plot([-float(elbo)], [height], "x", color="0.3", markersize=7)
    axes[0].set(xlabel="accuracy (x: the paper)", xlim=(0, 1.02), yticks=list(heights.values()))
    axes[0].set_yticklabels([LAYERS[method] for method in heights], fontsize="small")
    axes[1].set(xlabel="-ELBO on the training set (nats)", xscale="log")
    legend_below(figure, axes[0], columns=2)
    return figure


def kappa_histograms(results: Results) -> Figure:
    """Histograms of kappa along a run; the accuracy of the means and the share of weights with a large kappa."""
    figure, ((left, middle, right),) = subplots(1, 3, 3.9, 3.2)
    cells = results.select(experiment="curvature")
    if not cells:
        return figure
    histograms, steps = np.asarray(cells[0].result["histograms"], float), cells[0].result["curve"]["step"]
    shown = sorted({0, 1, len(steps) - 1})
    for colour, i in zip((0, 2, 3), shown, strict=False):
        left.stairs(histograms[i], EDGES, color=PALETTE[colour], label=f"step {steps[i]}", linewidth=1.5)
    left.axvline(np.log10(THRESHOLD), color="0.5", linewidth=1)
    left.text(np.log10(THRESHOLD), left.get_ylim()[1], " $\\kappa_0$", va="top", fontsize="small")
    left.set(xlabel="log10 |κ|", ylabel="share of weights")
    left.legend(frameon=False, fontsize="small", loc="upper left")
    for cell in cells:
        curve = cell.result["curve"]
        middle.plot(curve["step"], numbers(curve["deterministic"]), "o-", color=PALETTE[3], markersize=3)
        above = numbers(curve["above"])
        right.plot(curve["step"], np.where(above > 0, above, LEAST_SHARE), "o-", color="0.3", markersize=3)
    middle.set(xlabel="step", ylabel="accuracy of the means", ylim=(0, 1.02))
    right.set(xlabel="step", ylabel="share of weights with κ > κ0", yscale="log", ylim=(LEAST_SHARE / 1.5, 0.1))
    right.text(steps[0], LEAST_SHARE, "  none", va="center", fontsize="small", color="0.3")
    return figure


def sparse_ensembles(results: Results) -> Figure:
    """Accuracy against the share of weights removed."""
    figure, ((axis,),) = subplots(1, 1, 5.2, 3.2)
    cells = results.select(experiment="curvature")
    if not cells:
        return figure
    for cell in cells:
        left = 100 * (1 - np.asarray(cell.result["removed"], float))
        for colour, rest, words in ((0, "mean", "others at their means"), (2, "zero", "others at 0")):
            label = words if cell is cells[-1] else None
            axis.plot(left, cell.result[rest], "o-", color=PALETTE[colour], label=label, markersize=4)
        axis.axhline(cell.result["ensemble"], color=PALETTE[3], linewidth=1, zorder=0)
    axis.text(axis.get_xlim()[0], cells[0].result["ensemble"], "all weights random", va="bottom", fontsize="small")
    axis.set_xscale("log")
    axis.minorticks_off()
    axis.set_xticks(left, [f"{share:.2g}" for share in left])
    axis.invert_xaxis()
    axis.set(xlabel="weights of the layer that stay random (%)", ylabel="ensemble accuracy")
    axis.legend(frameon=False, fontsize="small", loc="lower left")
    return figure


def attacks(results: Results) -> Figure:
    """Success rates and entropies by iteration, averaged over seeds."""
    cells = results.select(experiment="attack")

    def lines(quantity: str) -> list[Curve]:
        means = {name: np.mean([numbers(c.result[name][quantity]) for c in cells], axis=0) for name in ATTACKED}
        return [
            Curve(range(len(means[name])), means[name], style, PALETTE[colour], name)
            for name, (colour, style) in ATTACKED.items()
        ]

    if not cells:
        return draw_panels([], 4.6, 3.4, columns=2)[0]
    panels = [
        Panel(lines("success"), {"xlabel": "iteration", "ylabel": "success rate", "ylim": (0, 1.02)}, legend={}),
        Panel(lines("entropy"), {"xlabel": "iteration", "ylabel": "predictive entropy (nats)"}),
    ]
    figure, axes = draw_panels(panels, 4.6, 3.4, columns=2)
    axes[1].set_ylim(bottom=0)
    return figure


def toy(results: Results) -> Figure:
    """Standard deviations of the two units, by class; one panel per seed."""
    panels, centres = [], []
    for cell in results.select(experiment="toy"):
        deviations, labels = np.asarray(cell.result["deviations"], float), np.asarray(cell.result["labels"])
        classes = [deviations[labels == label] for label in range(4)]
        options = {"markersize": 4}
        points = [Curve(classes[i][:, 0], classes[i][:, 1], "osv^"[i], PALETTE[i], options=options) for i in range(4)]
        scales = {"xscale": "log", "yscale": "log", "xlabel": "sd of unit 1", "ylabel": "sd of unit 2"}
        panels.append(Panel(points, scales))
        centres.append([members.mean(axis=0) for members in classes])
    figure, axes = draw_panels(panels, 3.4, 3.2)
    for axis, named in zip(axes, centres, strict=False):
        for label, centre in enumerate(named):
            axis.annotate(f"class {label}", centre, fontsize="small")
        axis.tick_params(which="minor", labelbottom=False, labelleft=False)
    return figure


FIGURES = {
    "phase_transition": phase_transition,
    "parameterisations": parameterisations,
    "attacks": attacks,
    "kappa": kappa_histograms,
    "sparse_ensembles": sparse_ensembles,
    "toy": toy,
}
