"""What is shown of Liberty or Depth, from its results alone: measures of the claims, tables, figures."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from posteriax._internal.plot_style import PALETTE, colours, heat_map, subplots
from posteriax.studies.figures import Axis, Curve, Figure, Means, Panel, draw_panels
from posteriax.studies.liberty_or_depth import bimodal, costs, iris, natural, product_matrices, swag, two_moons
from posteriax.studies.liberty_or_depth.swag import CONTROLS, KINDS, SWA
from posteriax.studies.liberty_or_depth.two_moons import SLOPES
from posteriax.studies.results import (
    Conditional,
    Measure,
    Parts,
    Results,
    combine,
    depending,
    entry,
    has,
    look_up,
    most,
)
from posteriax.studies.tables import Column, PageTable, Row, make_table, mean_as, mean_with_error, rows_by

PRODUCTS, MOONS, IRIS, SWAG = product_matrices.NAME, two_moons.NAME, iris.NAME, swag.NAME
COSTS, BIMODAL, NATURAL = costs.NAME, bimodal.NAME, natural.NAME
MEAN_FIELD, FULL = iris.FAMILIES

# ---- measures: numbers by seed, restart or split


def depths(results: Results, experiment: str, name: str = "depth") -> list[int]:
    """The depths of an experiment, in increasing order."""
    return sorted(set(results.distinct(name, experiment=experiment)))


def product(path: str, activation: str, layers: int) -> Measure:
    """An entry of the results of a product matrix."""
    return entry(path, experiment=PRODUCTS, activation=activation, layers=layers)


def outside_by_depth(activation: str) -> Parts:
    """Share of correlated pairs outside of rows and columns, of the products of several layers."""
    return Parts(
        lambda results: {
            f"{n} layers": product("outside_correlated", activation, n)
            for n in depths(results, PRODUCTS, "layers")
            if n > 1
        }
    )


def added_by_activations() -> Parts:
    """The same of leaky ReLU networks minus that of linear ones."""
    leaky, linear = outside_by_depth("leaky ReLU"), outside_by_depth("linear")
    return Parts(
        lambda results: {
            name: measure - linear.by_name(results)[name] for name, measure in leaky.by_name(results).items()
        }
    )


def largest_difference() -> Measure:
    """Between exact and sampled correlations of linear products: the largest over depths."""
    return depending(
        lambda results: most(*(product("difference", "linear", n) for n in depths(results, PRODUCTS, "layers")))
    )


def excess(path: str, activation: str, depth: int) -> Measure:
    """E_KL or E_W ("kl" or "w") minus its null, by restart; infinity minus infinity is NaN."""

    def by_restart(results: Results) -> dict[int, float]:
        (cell,) = results.select(experiment=MOONS, activation=activation, depth=depth)
        value, null = (np.array(cell.result[name], np.float64) for name in (path, f"{path}_null"))
        return dict(enumerate(value - null))

    return Measure(by_restart)


def activations(results: Results) -> list[str]:
    return [name for name in SLOPES if results.select(experiment=MOONS, activation=name)]


def falls(path: str, to: int = 0) -> Parts:
    """How much of the cost with one hidden layer is gone with `to`, or with the most, by restart and activation:
    1 - E(to) / mean E(1)."""

    def of_activation(name: str) -> Measure:
        def by_restart(results: Results) -> dict[int, float]:
            deeper, first = excess(path, name, to or depths(results, MOONS)[-1]), excess(path, name, 1)
            return dict(enumerate(1 - deeper(results) / first(results).mean()))

        return Measure(by_restart)

    return Parts(lambda results: {name: of_activation(name) for name in activations(results)})


LARGEST_DIVERGENT, LARGEST_NULL = 0.02, 2.0  # share of transitions, and null over E_KL, of a well-sampled network


def badly_sampled(results: Results, activation: str, depth: int) -> bool:
    """Whether the null is more than twice what is left of E_KL, or too many transitions diverge."""
    (cell,) = results.select(experiment=MOONS, activation=activation, depth=depth)
    null = float(np.mean(np.array(cell.result["kl_null"], np.float64)))
    remains = float(excess("kl", activation, depth)(results).mean())
    return not null <= LARGEST_NULL * remains or cell.result["divergent"] > LARGEST_DIVERGENT


def if_sampled(measure: Parts) -> Conditional:
    """A measure of the deepest networks; decides nothing if these are badly sampled."""

    def objection(results: Results) -> str:
        deepest = max(depths(results, MOONS), default=0)
        bad = [name for name in activations(results) if badly_sampled(results, name, deepest)]
        if not bad:
            return ""
        worst = max(results.select(experiment=MOONS, depth=deepest), key=lambda cell: cell.result["divergent"])
        return (
            f"with {deepest} hidden layers up to {worst.result['divergent']:.0%} of the transitions diverge, and the "
            f"null of E_KL is more than twice E_KL ({', '.join(bad)})"
        )

    return Conditional(measure, objection)


def closer_to_own_kind() -> Parts:
    """By restart: distance of LeakyReLU 0.95's curve of E_KL by depth from ReLU's minus that from the linear
    network's, and the same for LeakyReLU 0.5 the other way round."""

    def closeness(name: str, own: str, other: str) -> Measure:
        def by_restart(results: Results) -> dict[int, float]:
            if len(activations(results)) < len(SLOPES):
                return {}
            curves = {n: np.array([excess("kl", n, d)(results) for d in depths(results, MOONS)]) for n in SLOPES}
            centres = {kind: curve.mean(axis=1, keepdims=True) for kind, curve in curves.items()}
            far, near = (np.abs(curves[name] - centres[kind]).mean(axis=0) for kind in (other, own))
            return dict(enumerate(far - near))

        return Measure(by_restart)

    pairs = {"LeakyReLU 0.95": ("linear", "ReLU"), "LeakyReLU 0.5": ("ReLU", "linear")}
    return Parts(lambda results: {name: closeness(name, *kinds) for name, kinds in pairs.items()})


def gap(depth: int) -> Measure:
    """Test NLL of mean-field minus that of full covariance, by split."""
    nll = partial(entry, "nll", experiment=IRIS, depth=depth)
    return nll(family=MEAN_FIELD) - nll(family=FULL)


def gap_closes() -> Parts:
    """Half of the gap with one hidden layer minus the gap with more, by split and depth."""
    closes = lambda first, deeper: first / 2 - deeper  # noqa: E731
    return Parts(
        lambda results: {
            f"{depth} hidden layers": combine(closes, gap(1), gap(depth)) for depth in depths(results, IRIS)[1:]
        }
    )


def elbo_gap(depth: int) -> Measure:
    """ELBO of full covariance minus that of mean-field, in nats, by split."""
    elbo = partial(entry, "elbo", experiment=IRIS, depth=depth)
    return elbo(family=FULL) - elbo(family=MEAN_FIELD)


def elbo_gap_ratio() -> Parts:
    """The gap in the ELBO with more hidden layers over that with one, by split and depth."""
    return Parts(
        lambda results: {f"{depth} hidden layers": elbo_gap(depth) / elbo_gap(1) for depth in depths(results, IRIS)[1:]}
    )


def diagonal_minus_swag(path: str, depth: int) -> Measure:
    """SWAG-Diag minus SWAG, by seed."""
    diagonal, low_rank = (entry(f"{kind}.{path}", experiment=SWAG, depth=depth) for kind in KINDS.values())
    return diagonal - low_rank


def difference_by_depth(path: str) -> Parts:
    """SWAG-Diag minus SWAG, by depth."""
    return Parts(
        lambda results: {f"depth {depth}": diagonal_minus_swag(path, depth) for depth in depths(results, SWAG)}
    )


def gain(path: str, depth: int) -> Measure:
    """What SWAG gains on SWA, the network at the mean of the weights; nothing if that was not run."""
    cells: dict[str, str | int | float] = {"experiment": SWAG, "depth": depth}
    return Measure(
        lambda results: {
            c.seed: look_up(c.result, f"{SWA}.{path}") - look_up(c.result, f"low_rank.{path}")
            for c in results.select(**cells)
            if has(c, SWA)
        }
    )


def share_of_gain(path: str) -> Parts:
    """SWAG-Diag minus SWAG over SWAG's gain on SWA, by depth."""
    return Parts(
        lambda results: {
            f"depth {depth}": diagonal_minus_swag(path, depth) / gain(path, depth) for depth in depths(results, SWAG)
        }
    )


def if_gained(measure: Parts) -> Conditional:
    """A comparison of SWAG and SWAG-Diag; decides nothing if it is not known what either gains on SWA."""

    def objection(results: Results) -> str:
        known = any(has(cell, SWA) for cell in results.select(experiment=SWAG))
        return "" if known else "the mean of the weights (SWA) was not run, so that no posterior may matter here"

    return Conditional(measure, objection)


def cost_growth() -> Parts:
    """The growth of a step's time with the width, of structured families over that of mean-field."""

    def times(results: Results) -> Mapping[str, Any]:
        cells = results.select(experiment=COSTS)
        return cells[0].result["seconds"] if cells else {}

    def growth(name: str) -> Measure:
        def by_seed(results: Results) -> dict[int, float]:
            ratios = {}
            for cell in results.select(experiment=COSTS):
                first, last = (cell.result["seconds"][name][i] for i in (0, -1))
                own, diagonal = last / first, cell.result["seconds"][MEAN_FIELD]
                ratios[cell.seed] = own / (diagonal[-1] / diagonal[0])
            return ratios

        return Measure(by_seed)

    return Parts(lambda results: {name: growth(name) for name in times(results) if name not in (MEAN_FIELD, "2-tied")})


def bimodality() -> Measure:
    """How much more of the predictions is near either of two modes with two hidden layers than with one."""
    near = lambda layers: entry("near_modes", experiment=BIMODAL, layers=layers)  # noqa: E731
    return near(2) - near(1)


def mean_field_minus_structured(path: str) -> Measure:
    """A score of mean-field minus that of the matrix normal, both trained by natural gradients."""
    diagonal, structured = (entry(path, experiment=NATURAL, family=family) for family in natural.FAMILIES)
    return diagonal - structured


def switched_off() -> Parts:
    """Share of draws in which a hidden layer of a ReLU network is switched off, by number of layers."""
    return Parts(
        lambda results: {
            f"{n} layers": product("switched_off", "ReLU", n)
            for n in sorted(set(results.distinct("layers", experiment=PRODUCTS, activation="ReLU")))
        }
    )


# ---- tables


def tables(results: Results) -> list[PageTable]:
    shown = [_products(results), _moons(results), _iris(results), _swag(results)]
    return [*shown, *(table for table in (_costs(results), _natural(results)) if table.rows)]


def _costs(results: Results) -> PageTable:
    cells = results.select(experiment=COSTS)
    rows = []
    for family in cells[0].result["seconds"] if cells else ():
        widths = cells[0].result["full_widths" if family == "full covariance" else "widths"]
        times = 1000 * np.array([cell.result["seconds"][family] for cell in cells], float)
        parameters = cells[0].result["parameters"][family]
        for width, count, ms in zip(widths, parameters, times.T, strict=True):
            rows.append((family, str(width), f"{count:,}", mean_with_error(2)(ms)))
    caption = (
        "Table 1, measured: numbers stored for the posterior, and milliseconds of a training step with a batch of "
        f"{results.settings.get('costs', {}).get('examples', '-')}, of a network with two layers of K x K weights."
    )
    return PageTable(caption, ("family", "K", "parameters", "ms per step"), rows)


def _natural(results: Results) -> PageTable:
    columns = (
        Column("accuracy", "accuracy", mean_with_error(1, 100)),
        Column("NLL", "nll"),
        Column("ECE", "ece"),
    )
    caption = "Trained by natural gradients on Fashion-MNIST. The paper's table 2 is of ResNet-18 on ImageNet."
    reported = {natural.MEAN_FIELD: "67.4, 1.37, 0.029 (VOGN)", natural.STRUCTURED: "66.4, 1.44, 0.080 (noisy K-FAC)"}
    rows = [row._replace(end=(reported[row.start[0]],)) for row in rows_by(results, ("family",), experiment=NATURAL)]
    return make_table(caption, ("family",), columns, rows, ("the paper",))


def _products(results: Results) -> PageTable:
    columns = (
        Column("pairs beyond 0.05", "correlated", mean_as(".1%")),
        Column("of those outside", "outside_correlated", mean_as(".1%")),
        Column("accuracy of the mean", "accuracy", mean_as(".1%")),
    )
    rows = []
    for row in rows_by(results, ("activation", "layers"), experiment=PRODUCTS):
        difference = f"{np.mean(row.look_up('difference')):.4f}" if row.start[0] == "linear" else "—"
        rows.append(row._replace(end=(difference,)))
    caption = (
        "Product matrices on Fashion-MNIST, means over seeds: share of pairs of entries that correlate beyond 0.05, "
        "the same among pairs that share neither row nor column, test accuracy of the mean weights, and the root mean "
        "square difference between exact and sampled correlations."
    )
    return make_table(caption, ("activation", "layers"), columns, rows, ("exact - sampled",))


def _moons(results: Results) -> PageTable:
    written = {
        "draws of the mode": ("draws_of_mode", ".0f"),
        "acceptance": ("acceptance", ".2f"),
        "divergent": ("divergent", ".2%"),
        "R-hat, predictions": ("rhat_predictions", ".2f"),
        "R-hat, weights": ("rhat_weights", ".2f"),
        "test accuracy": ("accuracy", ".1%"),
    }
    rows = []
    for cell in results.select(experiment=MOONS):
        activation, depth, result = cell.settings["activation"], cell.settings["depth"], cell.result
        row = [activation, str(depth), str(result["weights"])]
        for path in ("kl", "w"):
            values = excess(path, activation, depth)(results)
            row.append(f"{values.mean():.3g} ± {values.std(ddof=1) / np.sqrt(len(values)):.2g}")
            row.append(f"{np.array(result[f'{path}_null'], float).mean():.3g}")
        rows.append([*row, *(format(np.mean(result[path]), form) for path, form in written.values())])
    headings = ["activation", "hidden layers", "weights", "E_KL (nats)", "null", "E_W", "null", *written]
    caption = (
        "Two moons: E_KL and E_W minus their null, mean over restarts and its standard error; the null; and how well "
        "the chains sampled. R-hat compares restarts: the worst of the predictions at 100 test points, and the largest "
        "of the leaves' medians over weights, which is above 1 where restarts found different modes."
    )
    return PageTable(caption, headings, rows)


def _iris(results: Results) -> PageTable:
    write, rows = mean_with_error(), []
    for depth in depths(results, IRIS):
        row = [str(depth), str(results.select(experiment=IRIS, depth=depth)[0].result["weights"])]
        for family in iris.FAMILIES:
            values = partial(results.values, experiment=IRIS, family=family, depth=depth)
            if not len(values("nll")):
                row += [""] * 3
                continue
            elbo, before = values("elbo").mean(), values("elbo_before").mean()
            row += [write(values("nll")), f"{values('accuracy').mean():.1%}", f"{elbo:.1f} ({elbo - before:+.2g})"]
        rows.append([*row, write(gap(depth)(results))])
    columns = [f"{what}, {family}" for family in iris.FAMILIES for what in ("test NLL", "accuracy", "ELBO")]
    caption = (
        "Iris: test NLL by number of hidden layers, mean over splits and its standard error. The ELBO, in nats, is "
        "that of the last tenth of the steps; in brackets, what it gained over the tenth before."
    )
    return PageTable(caption, ["hidden layers", "weights", *columns, "gap"], rows)


def _swag(results: Results) -> PageTable:
    scores = {"NLL": "nll", "accuracy": "accuracy", "ECE": "ece"}
    columns = [
        Column(f"{score}, {name}", f"{kind}.{path}") for name, kind in KINDS.items() for score, path in scores.items()
    ]
    rows = []
    for depth in depths(results, SWAG):
        values = partial(results.values, experiment=SWAG, depth=depth)
        difference = mean_with_error()(diagonal_minus_swag("nll", depth)(results))
        rows.append(Row((str(depth),), values, (difference, mean_as(".2f")(values("training_nll.-1")))))
    caption = (
        "PreResNets: test scores of both Gaussians, mean over seeds and its standard error, and the training NLL of "
        "the last epoch."
    )
    return make_table(caption, ("depth",), columns, rows, ("NLL, SWAG-Diag - SWAG", "training NLL"))


# ---- figures

LIMIT = 0.5  # correlations beyond it have the darkest colours
COVARIANCES = (PALETTE[0], PALETTE[3])  # diagonal, and more


def draw_products(results: Results) -> Figure:
    """Correlations between the entries of product matrices; the first seed."""
    shown = [cell for cell in results.select(experiment=PRODUCTS) if "correlation_percent" in cell.result]
    shown = [c for c in shown if c.settings["activation"] == "linear" or c.settings["layers"] > 1]
    figure, (axes,) = subplots(1, len(shown), 2.9, 3.3)
    for axis, cell in zip(axes, shown, strict=True):
        activation, layers = cell.settings["activation"], cell.settings["layers"]
        kind = "one weight matrix" if layers == 1 else f"{layers} layers, {activation}"
        image = heat_map(axis, from_triangle(cell.result["correlation_percent"]) / 100, limit=LIMIT, title=kind)
        axis.set_aspect("equal")
        axis.set(xlabel="entry, row by row", ylabel="entry" if axis is axes[0] else "", xticks=[], yticks=[])
    figure.colorbar(image, ax=list(axes), label="correlation", shrink=0.7)
    return figure


def from_triangle(above: list[float]) -> np.ndarray:
    """The symmetric matrix, with a diagonal of 0, that has these values above its diagonal, row by row.

    >>> from_triangle([1, 2, 3]).tolist()
    [[0.0, 1.0, 2.0], [1.0, 0.0, 3.0], [2.0, 3.0, 0.0]]
    """
    size = round((1 + np.sqrt(1 + 8 * len(above))) / 2)
    matrix = np.zeros((size, size))
    matrix[np.triu_indices(size, 1)] = above
    return matrix + matrix.T


def draw_moons(results: Results) -> Figure:
    """E_KL and E_W by depth, minus their null; hollow points are badly sampled."""
    at, colour = depths(results, MOONS), colours(SLOPES)
    panels = []
    for path, label in (("w", "$E_W$"), ("kl", "$E_{KL}$ (nats)")):
        lines: list[Curve | Means] = []
        for number, name in enumerate(activations(results)):
            values = [excess(path, name, depth)(results) for depth in at]
            x = np.array(at) + 0.04 * (number - 1.5)
            lines.append(Means(x, values, "o-", colour[name], name))
            bad = [i for i, depth in enumerate(at) if badly_sampled(results, name, depth)]
            hollow = {"markerfacecolor": "white", "markersize": 4, "zorder": 5}
            lines.append(Curve(x[bad], [values[i].mean() for i in bad], "o", colour[name], options=hollow))
        settings = {"xlabel": "hidden layers", "ylabel": f"{label}, null subtracted", "xticks": at}
        panels.append(Panel(lines, settings, legend={} if path == "kl" else None))
    figure, axes = draw_panels(panels, 4.4, 3.4)
    for axis in axes:
        axis.axhline(0.0, color="0.7", linewidth=1, zorder=0)
    return figure


def draw_iris(results: Results) -> Figure:
    """The gap between the families by depth, in the test NLL and in the ELBO; dots are splits."""
    at, panels = depths(results, IRIS), []
    labels = ("gap in the test NLL (nats per example)", "gap in the ELBO (nats)")
    for measure, label in zip((gap, elbo_gap), labels, strict=True):
        values = [measure(depth)(results) for depth in at]
        dots: list[Curve | Means] = [
            Curve(np.full(len(v), depth) - 0.08, v, "o", "0.6", options={"markersize": 4})
            for depth, v in zip(at, values, strict=True)
        ]
        settings = {"xlabel": "hidden layers", "ylabel": label, "xticks": at}
        panels.append(Panel([*dots, Means(at, values, "o-", COVARIANCES[0])], settings))
    figure, axes = draw_panels(panels, 4.4, 3.2)
    for axis in axes:
        axis.axhline(0.0, color="0.7", linewidth=1, zorder=0)
    return figure


def draw_swag(results: Results) -> Figure:
    """Test NLL and accuracy by depth, of SWAG, SWAG-Diag and the controls that were run."""
    at = depths(results, SWAG)
    kinds = KINDS | {name: name for name in CONTROLS if any(has(c, name) for c in results.select(experiment=SWAG))}
    panels = []
    for path, label in (("nll", "test NLL (nats per example)"), ("accuracy", "test accuracy")):
        lines = []
        for number, ((name, kind), colour) in enumerate(zip(kinds.items(), (*COVARIANCES, "0.4", "0.7"), strict=False)):
            values = [results.values(f"{kind}.{path}", experiment=SWAG, depth=depth) for depth in at]
            x = np.array(at) + 0.15 * (number - (len(kinds) - 1) / 2)
            lines.append(Means(x, values, "o-" if len(at) > 2 else "o", colour, name))
        panels.append(Panel(lines, {"xlabel": "depth of the PreResNet", "ylabel": label, "xticks": at}))
    figure, axes = draw_panels(panels, 4.6, 3.4)
    for axis in axes:
        label_lines(axis)
    return figure


def label_lines(axis: Axis) -> None:
    """The name of each line in its colour, on top: the upper line at its last point comes first."""
    low, high = axis.get_ylim()
    axis.set_ylim(low, high + 0.25 * (high - low))  # room for the names
    handles, labels = axis.get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda i: -handles[i].lines[0].get_ydata()[-1])
    style = {"frameon": False, "fontsize": "small", "labelcolor": "linecolor", "loc": "upper right"}
    axis.legend([handles[i] for i in order], [labels[i] for i in order], **style).set_zorder(0)


def draw_costs(results: Results) -> Figure:
    """Time of a training step and numbers of parameters by width, on log axes."""
    cells, colour = results.select(experiment=COSTS), colours(costs.FAMILIES)
    panels = []
    for path, label, unit in (("seconds", "ms per training step", 1000.0), ("parameters", "parameters", 1.0)):
        lines: list[Curve | Means] = []
        for family in costs.FAMILIES:
            widths = cells[0].result["full_widths" if family == "full covariance" else "widths"]
            values = unit * np.array([cell.result[path][family] for cell in cells], float)
            lines.append(Means(widths, list(values.T), "o-", colour[family], family))
        settings = {"xlabel": "width K", "ylabel": label, "xscale": "log", "yscale": "log"}
        panels.append(Panel(lines, settings, legend={} if path == "seconds" else None))
    return draw_panels(panels, 4.2, 3.4)[0]


def draw_bimodal(results: Results) -> Figure:
    """The distribution of predictions of mean-field networks with one and with two hidden layers; the first seed."""
    lines: list[Curve | Means] = []
    middle = (bimodal.EDGES[1:] + bimodal.EDGES[:-1]) / 2
    for layers, shade in zip((1, 2), COVARIANCES, strict=True):
        density = np.array(results.select(experiment=BIMODAL, layers=layers)[0].result["histogram"]) / np.diff(
            bimodal.EDGES
        )
        label = f"{layers} hidden layer{'s' if layers > 1 else ''}"
        lines.append(Curve(middle, density, "-", shade, label, {"drawstyle": "steps-mid"}))
    settings = {"xlabel": "prediction", "ylabel": "density over draws"}
    figure, (axis,) = draw_panels([Panel(lines, settings, legend={})], 4.6, 3.2)
    for mode in (-1.0, 1.0):
        axis.axvspan(mode - bimodal.NEAR, mode + bimodal.NEAR, color="0.92", zorder=0)
    return figure


def draw_natural(results: Results) -> Figure:
    """Test scores of mean-field and matrix normals by natural gradients; dots are seeds."""
    families, panels = list(natural.FAMILIES), []
    for path, label in (("nll", "test NLL (nats)"), ("accuracy", "test accuracy"), ("ece", "ECE")):
        values = [results.values(path, experiment=NATURAL, family=family) for family in families]
        pairs: list[Curve | Means] = [
            Curve([0, 1], pair, "o-", "0.7", options={"markersize": 3}) for pair in zip(*values, strict=True)
        ]
        settings = {"ylabel": label, "xticks": [0, 1], "xticklabels": families, "xlim": (-0.4, 1.4)}
        panels.append(Panel([*pairs, Means([0, 1], values, "s", COVARIANCES[0])], settings))
    return draw_panels(panels, 2.8, 3.0)[0]


FIGURES = {
    "product_matrices": draw_products,
    "two_moons": draw_moons,
    "iris": draw_iris,
    "swag": draw_swag,
    "costs": draw_costs,
    "bimodal": draw_bimodal,
    "natural": draw_natural,
}


def _ran(experiment: str) -> Callable[[Results], bool]:
    return lambda results: bool(results.select(experiment=experiment))


NEEDS = {"costs": _ran(COSTS), "bimodal": _ran(BIMODAL), "natural": _ran(NATURAL)}
