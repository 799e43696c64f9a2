"""Figures: uncertainty over the plane, reliability diagrams, traces. Each returns a Matplotlib figure."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from posteriax._internal.plot_style import colours, subplots
from posteriax.comparison.chart_summaries import chart_summary
from posteriax.posterior import Posterior, Trace

CLASS_COLOURS = ("#0072B2", "#D55E00")
FEW = 10


def uncertainty_plane(
    posteriors: Mapping[str, Posterior], data: Any, *, margin: float = 1.0, resolution: int = 90
) -> Any:
    """For each posterior of a classifier with two inputs: predictive entropy over the plane, and the data.

    On the white line both classes are equally probable.
    """
    x, y = data
    low, high = x.min(axis=0) - margin, x.max(axis=0) + margin
    axes_1, axes_2 = (np.linspace(low[i], high[i], resolution) for i in range(2))
    grid = np.stack(np.meshgrid(axes_1, axes_2), axis=-1).reshape(-1, 2).astype(np.float32)
    figure, (axes,) = subplots(1, len(posteriors), 3.3, 3.6, sharex=True, sharey=True)
    for axis, (name, posterior) in zip(axes, posteriors.items(), strict=True):
        predictive: Any = posterior.predict(grid, reduce=True)
        entropy, probs = (a.reshape(resolution, -1) for a in (predictive.entropy(), predictive.probs[:, 1]))
        image = axis.pcolormesh(axes_1, axes_2, entropy, vmin=0.0, vmax=np.log(2), cmap="cividis", rasterized=True)
        axis.contour(axes_1, axes_2, probs, levels=[0.5], colors="white", linewidths=1.5)
        for label, colour in enumerate(CLASS_COLOURS):
            chosen = y == label
            axis.scatter(*x[chosen].T, s=9, color=colour, edgecolor="white", linewidth=0.4, marker="os"[label])
        axis.set_title(name)
        axis.set_xlabel("$x_1$")
    axes[0].set_ylabel("$x_2$")
    bar = figure.colorbar(image, ax=axes, label="entropy of the prediction (nats)", pad=0.01)
    bar.set_ticks([0, 0.2, 0.4, np.log(2)], labels=["0: sure", "0.2", "0.4", "ln 2: no idea"])
    return figure


def reliability_diagram(predictives: Mapping[str, Any], y: Any, *, bins: int = 15) -> Any:
    """For each prediction: the fraction right against the confidence, in the bins of `ece_equal_width`.

    A point's size shows how many examples its bin has; it is hollow below ten. Below the diagonal is over-confident.
    """
    charts = {name: chart_summary(predictive, np.asarray(y), y, bins) for name, predictive in predictives.items()}
    points = {name: np.stack([chart.confidence, chart.right, chart.count], axis=1) for name, chart in charts.items()}
    return reliability_panels(points, colours(predictives))


def reliability_panels(points: Mapping[str, np.ndarray], palette: Mapping[str, str]) -> Any:
    """A reliability diagram for each name, from points (confidence, fraction right, number of examples)."""
    figure, (axes,) = subplots(1, len(points), 2.9, 3.7, sharex=True, sharey=True)
    for axis, (name, bins) in zip(axes, points.items(), strict=True):
        means, rights, sizes = bins.T
        share = sizes / sizes.sum()
        axis.plot([0, 1], [0, 1], color="0.6", linewidth=1, zorder=1)
        firm = sizes >= FEW  # a handful of examples says little: shown, but not joined
        axis.plot(means[firm], rights[firm], color=palette[name], linewidth=1.2, zorder=2)
        face = np.where(firm, palette[name], "white")
        axis.scatter(means, rights, s=12 + 200 * share, facecolor=face, edgecolor=palette[name], zorder=3)
        axis.set_title(f"{name}\nECE {float(share @ np.abs(means - rights)):.3f}")
        axis.set_xlabel("confidence")
        axis.set(xlim=(0, 1.02), ylim=(0, 1.02), xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
        axis.set_box_aspect(1)
    axes[0].set_ylabel("fraction right")
    axes[0].text(0.96, 0.06, "over-confident", ha="right", color="0.4")
    axes[0].text(0.04, 0.9, "under-confident", color="0.4")
    return figure


TRACES = {  # the quantities of a run to show, and their labels
    "elbo": "ELBO (nats)",
    "log_joint": "log joint (nats)",
    "acceptance": "acceptance",
}


def traces(runs: Mapping[str, Trace], *, window: int = 20) -> Any:
    """For each run: its objective at every step, and for a sampler its acceptance, as running means."""
    panels = [(name, key) for name, trace in runs.items() for key in TRACES if key in trace]
    figure, (axes,) = subplots(1, len(panels), 3.0, 3.0)
    palette = colours(runs)
    for axis, (name, key) in zip(axes, panels, strict=True):
        late = []  # the axis limits ignore the first steps, which would hide all others
        for line in np.atleast_2d(runs[name][key]):
            smooth = np.convolve(line, np.ones(window) / window, mode="valid") if len(line) > 2 * window else line
            steps = np.arange(len(smooth)) + (len(line) - len(smooth))
            axis.plot(steps, smooth, color=palette[name], linewidth=1, alpha=0.8)
            late.append(smooth[len(smooth) // 20 :])
        low, high = (0.0, 1.0) if key == "acceptance" else (np.min(late), np.max(late))
        axis.set_ylim(low, high + (0.05 * (high - low) or 1.0))
        axis.set_title(name)
        axis.set_xlabel("transition" if "acceptance" in runs[name] else "step")
        axis.set_ylabel(TRACES[key])
    return figure
