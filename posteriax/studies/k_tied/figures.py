"""The figures of the page, drawn from the results alone."""

from typing import Any

import numpy as np

from posteriax._internal.plot_style import PALETTE, subplots
from posteriax.studies.k_tied.networks import HE, LENET, LSTM, MEAN_FIELD, MLP, RANKS, TIED
from posteriax.studies.results import Results

COLOURS = dict(zip((MEAN_FIELD, *TIED), (PALETTE[3], PALETTE[1], PALETTE[0], PALETTE[2]), strict=True))
PAPER_NLL = {MLP: (0.100, 0.677, 0.107, 0.106), LENET: (2.23, 2.30, 2.24, 2.24), LSTM: (0.493, 0.491, 0.494, 0.493)}


def spectra(results: Results) -> Any:
    """Shares of the first singular values, by matrix; thin lines are seeds."""
    found = {
        (network, leaf): [cell.result["spectra"][leaf] for cell in results.of(network=network, family=MEAN_FIELD)]
        for network in (MLP, LENET, LSTM)
        for leaf in results.of(network=network, family=MEAN_FIELD)[0].result["spectra"]
    }
    columns = 4
    figure, axes = subplots(-(-len(found) // columns), columns, 2.6, 2.5, sharey=True)
    for axis in axes.flat[len(found) :]:
        axis.set_visible(False)
    for axis, ((network, leaf), runs) in zip(axes.flat, found.items(), strict=False):
        for part, label, colour in (("scales", "standard deviations", PALETTE[0]), ("means", "means", PALETTE[3])):
            shares = np.array([run[part] for run in runs], float)
            steps = np.arange(1, shares.shape[1] + 1)
            axis.plot(steps, shares.T, color=colour, linewidth=0.7, alpha=0.5)
            axis.plot(steps, shares.mean(axis=0), "o", color=colour, markersize=4)
            if axis is axes.flat[0]:
                low = part == "means"
                axis.text(3, 0.24 if low else 0.75, label, color=colour, fontsize="small")
        axis.set_title(f"{network}: {leaf}", fontsize="medium")
        axis.set(xlabel="singular value", ylim=(-0.03, 1.03), xticks=[1, 5, 10])
    for row in axes:
        row[0].set_ylabel("share of squares")
    return figure


def truncation(results: Results) -> Any:
    """NLL after truncation, relative to the NLL as trained; each dot is a seed, crosses are the paper's."""
    figure, (axes,) = subplots(1, 4, 2.5, 2.8)
    for axis, network in zip(axes, (MLP, LENET, LSTM, HE), strict=True):
        trained = results.values("scores.nll", network=network, family=MEAN_FIELD)
        for k in RANKS:
            ratio = results.values(f"truncation.{k}.nll", network=network, family=MEAN_FIELD) / trained
            axis.plot(np.full(len(ratio), k), ratio, "o", color=COLOURS[f"{k}-tied"], markersize=6, alpha=0.7)
        if network in PAPER_NLL:
            axis.plot(RANKS, np.array(PAPER_NLL[network][1:]) / PAPER_NLL[network][0], "x", color="0.3")
        axis.axhline(1.0, color="0.6", linewidth=1)
        axis.set_title(network, fontsize="medium")
        axis.set(xlabel="rank of the scales", xticks=RANKS, xlim=(0.5, 3.5))
        low, high = axis.get_ylim()
        axis.set_ylim(min(low, 0.9), max(high, 1.1))  # small differences are noise
    axes[0].set_ylabel("NLL / NLL as trained")
    axes[0].text(1.15, PAPER_NLL[MLP][1] / PAPER_NLL[MLP][0], "the paper", color="0.3", va="center", fontsize="small")
    return figure


def first_steps(results: Results) -> Any:
    """Signal-to-noise ratio and -ELBO in the first steps, by family; means over seeds."""
    figure, (axes,) = subplots(1, 2, 4.4, 3.4)
    panels = (
        ("signal", "signal to noise, scales of layer 2  (1: noise)"),
        ("negative_elbo", "-ELBO (nats per example)"),
    )
    for axis, (entry, label) in zip(axes, panels, strict=True):
        ends = {}
        for family, colour in COLOURS.items():
            runs = [cell.result["first_steps"] for cell in results.of(network=MLP, family=family)]
            if not runs:
                continue
            steps = runs[0]["step"]
            values = np.array([run[entry] for run in runs], float)
            axis.plot(steps, values.T, color=colour, linewidth=0.7, alpha=0.5)
            axis.plot(steps, np.exp(np.log(values).mean(axis=0)), color=colour, linewidth=2)
            ends[family] = float(np.exp(np.log(values[:, -1]).mean()))
        axis.set(yscale="log", xlabel="step", ylabel=label)
        _label_ends(axis, ends, steps[-1])
    axes[0].axhline(1.0, color="0.6", linewidth=1)
    return figure


def convergence(results: Results) -> Any:
    """-ELBO of the training examples in the runs to convergence; for the LSTM up to a constant."""
    figure, (axes,) = subplots(1, 3, 3.6, 3.0)
    for axis, network in zip(axes, (MLP, LENET, LSTM), strict=True):
        found = {
            family: [cell.result["curve"] for cell in results.of(network=network, family=family)] for family in COLOURS
        }
        found = {family: runs for family, runs in found.items() if runs}
        for family, runs in found.items():
            for run in runs:
                axis.plot(run["step"], run["negative_elbo"], color=COLOURS[family], linewidth=1.0, alpha=0.8)
        ends = {family: float(np.mean([run["negative_elbo"][-1] for run in runs])) for family, runs in found.items()}
        low = min(min(run["negative_elbo"]) for runs in found.values() for run in runs)
        tails = [run["negative_elbo"][len(run["step"]) // 5] for runs in found.values() for run in runs]
        high = max(tails)
        axis.set_title(network, fontsize="medium")
        axis.set(xlabel="step", ylim=(low - 0.05 * (high - low), high + 0.02 * (high - low)))
        _label_ends(axis, ends, max(runs[0]["step"][-1] for runs in found.values()))
    axes[0].set_ylabel("-ELBO (nats per training example)")
    return figure


def _label_ends(axis: Any, ends: dict[str, float], step: float) -> None:
    """Name each line at its right end, with the names moved apart where lines are close."""
    scale, back = (np.log, np.exp) if axis.get_yscale() == "log" else (float, float)
    low, high = map(scale, axis.get_ylim())
    gap, place = 0.07 * (high - low), -np.inf
    for family, value in sorted(ends.items(), key=lambda item: item[1]):
        place = max(scale(value), place + gap)
        axis.text(step, back(place), f"  {family}", color=COLOURS[family], fontsize="small", va="center", clip_on=False)


FIGURES = {"spectra": spectra, "truncation": truncation, "first_steps": first_steps, "convergence": convergence}
