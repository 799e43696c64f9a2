"""What is shown of Liberty or Depth, from its results alone: measures of the claims, tables, figures."""

from collections.abc import Callable
from functools import partial

import numpy as np

from posteriax._internal.plot_style import PALETTE, colours, heat_map, subplots
from posteriax.studies.figures import Axis, Figure, Means, Panel, draw_panels
from posteriax.studies.liberty_or_depth import iris, product_matrices, swag, two_moons
from posteriax.studies.liberty_or_depth.swag import KINDS
from posteriax.studies.liberty_or_depth.two_moons import SLOPES
from posteriax.studies.results import Measure, Results, depending, entry, mean, most
from posteriax.studies.tables import Column, PageTable, Row, make_table, mean_as, mean_with_error, rows_by

PRODUCTS, MOONS, IRIS, SWAG = product_matrices.NAME, two_moons.NAME, iris.NAME, swag.NAME
MEAN_FIELD, FULL = iris.FAMILIES

# ---- measures: numbers by seed, restart or split


def depths(results: Results, experiment: str, name: str = "depth") -> list[int]:
    """The depths of an experiment, in increasing order."""
    return sorted(set(results.distinct(name, experiment=experiment)))


def product(path: str, activation: str, layers: int) -> Measure:
    """An entry of the results of a product matrix."""
    return entry(path, experiment=PRODUCTS, activation=activation, layers=layers)


def outside_pairs(activation: str, choose: Callable[..., Measure]) -> Measure:
    """Share of correlated pairs outside of rows and columns: that of the two deepest products, `choose` which."""
    path = "outside_correlated"
    return depending(
        lambda results: choose(*(product(path, activation, n) for n in depths(results, PRODUCTS, "layers")[-2:]))
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


def fall(path: str) -> Measure:
    """How much of the cost with one hidden layer is gone with the most, by restart, for the activation where it is
    least: 1 - E(deepest) / mean E(1)."""

    def by_restart(results: Results) -> dict[int, float]:
        deepest = depths(results, MOONS)[-1]
        falls = [
            1 - excess(path, name, deepest)(results) / excess(path, name, 1)(results).mean()
            for name in activations(results)
        ]
        smallest = min(falls, key=lambda values: float(values.mean()))
        return dict(enumerate(smallest))

    return Measure(by_restart)


def closer_to_linear() -> Measure:
    """By restart: distance of LeakyReLU 0.95's curve of E_KL by depth from ReLU's minus that from the linear
    network's, and the same for LeakyReLU 0.5 the other way round; the smaller of the two."""

    def by_restart(results: Results) -> dict[int, float]:
        if len(activations(results)) < len(SLOPES):
            return {}
        curves = {n: np.array([excess("kl", n, d)(results) for d in depths(results, MOONS)]) for n in SLOPES}
        centres = {name: curve.mean(axis=1, keepdims=True) for name, curve in curves.items()}

        def distance(name: str, other: str) -> np.ndarray:
            return np.abs(curves[name] - centres[other]).mean(axis=0)

        shallow = distance("LeakyReLU 0.95", "ReLU") - distance("LeakyReLU 0.95", "linear")
        sharp = distance("LeakyReLU 0.5", "linear") - distance("LeakyReLU 0.5", "ReLU")
        smaller = min(shallow, sharp, key=lambda values: float(values.mean()))
        return dict(enumerate(smaller))

    return Measure(by_restart)


def gap(depth: int) -> Measure:
    """Test NLL of mean-field minus that of full covariance, by split."""
    nll = partial(entry, "nll", experiment=IRIS, depth=depth)
    return nll(family=MEAN_FIELD) - nll(family=FULL)


def deeper_gap() -> Measure:
    """The same, as the mean over two and more hidden layers."""
    return depending(lambda results: mean(*map(gap, depths(results, IRIS)[1:])))


def diagonal_minus_swag(path: str, depth: int) -> Measure:
    """SWAG-Diag minus SWAG, by seed."""
    diagonal, low_rank = (entry(f"{kind}.{path}", experiment=SWAG, depth=depth) for kind in KINDS.values())
    return diagonal - low_rank


def most_different(path: str) -> Measure:
    """SWAG-Diag minus SWAG at the depth where the mean difference is largest."""
    return depending(
        lambda results: max(
            (diagonal_minus_swag(path, depth) for depth in depths(results, SWAG)),
            key=lambda measure: abs(measure(results).mean()),
        )
    )


# ---- tables


def tables(results: Results) -> list[PageTable]:
    return [_products(results), _moons(results), _iris(results), _swag(results)]


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
    """E_KL and E_W by depth, minus their null."""
    at, colour = depths(results, MOONS), colours(SLOPES)
    panels = []
    for path, label in (("w", "$E_W$"), ("kl", "$E_{KL}$ (nats)")):
        lines = []
        for number, name in enumerate(activations(results)):
            values = [excess(path, name, depth)(results) for depth in at]
            lines.append(Means(np.array(at) + 0.04 * (number - 1.5), values, "o-", colour[name], name))
        settings = {"xlabel": "hidden layers", "ylabel": f"{label}, null subtracted", "xticks": at}
        panels.append(Panel(lines, settings, legend={} if path == "kl" else None))
    figure, axes = draw_panels(panels, 4.4, 3.4)
    for axis in axes:
        axis.axhline(0.0, color="0.7", linewidth=1, zorder=0)
    return figure


def draw_iris(results: Results) -> Figure:
    """Test NLL by depth, full covariance and mean-field."""
    at = depths(results, IRIS)
    lines = []
    for family, colour in zip(iris.FAMILIES, COVARIANCES, strict=True):
        values = [results.values("nll", experiment=IRIS, depth=depth, family=family) for depth in at]
        lines.append(Means(at, values, "o-", colour, family))
    label = "test NLL on Iris (nats per example)"
    figure, (axis,) = draw_panels([Panel(lines, {"xlabel": "hidden layers", "ylabel": label, "xticks": at})], 4.6, 3.4)
    label_lines(axis)
    return figure


def draw_swag(results: Results) -> Figure:
    """Test NLL and accuracy by depth, SWAG and SWAG-Diag."""
    at = depths(results, SWAG)
    panels = []
    for path, label in (("nll", "test NLL (nats per example)"), ("accuracy", "test accuracy")):
        lines = []
        for (name, kind), colour in zip(KINDS.items(), COVARIANCES, strict=True):
            values = [results.values(f"{kind}.{path}", experiment=SWAG, depth=depth) for depth in at]
            lines.append(Means(at, values, "o-", colour, name))
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


FIGURES = {"product_matrices": draw_products, "two_moons": draw_moons, "iris": draw_iris, "swag": draw_swag}
