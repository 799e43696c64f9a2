"""``posteriax demo``: MAP, a deep ensemble, mean-field VI and HMC on one network, compared where they differ.

Two problems, small enough for HMC to mix in seconds: classes of two moons, asked far from the data, and a curve, asked
in a gap between the data.
"""

from __future__ import annotations  # types of the library are not loaded to show a help text

import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

import posteriax as px
from posteriax.cli.environment import console

if TYPE_CHECKING:
    import equinox as eqx
    import numpy as np
    from matplotlib.figure import Figure

    from posteriax.methods.method import Method


def command(
    out: Path = typer.Option(Path("posteriax-demo"), help="The folder for the report and the figures."),
    seed: int = typer.Option(0, help="The random seed of the data, the networks and all methods."),
) -> None:
    """Fit four posteriors of one network to two moons and to a curve, and compare them with HMC."""
    run_demo(out, seed)


Split = tuple["np.ndarray", "np.ndarray"]  # (x, y)


def run_demo(out: Path, seed: int = 0) -> None:
    """Fit four posteriors of one network to each problem; print scores and distances to HMC, draw figures, report."""
    began = time.monotonic()
    screen = console(piped_width=140)
    # at once, before the seconds that it takes to load everything and to compile
    screen.print("Four posteriors of one network on two problems, compared with HMC; about a minute.\n")
    out.mkdir(parents=True, exist_ok=True)
    two_moons(screen, out, seed)
    curve(screen, out, seed)
    report = out / "report.html"
    screen.print(f"{report} has this comparison with charts and advice; figures of both problems are beside it.")
    screen.print("Next, your own data: posteriax compare data.csv --target COLUMN --out report.html", highlight=False)
    screen.print(f"Total time: {time.monotonic() - began:.0f} s.", highlight=False)


def two_moons(screen: Console, out: Path, seed: int) -> None:
    """How sure is each posterior of the class of points that are far from all data?"""
    import numpy as np

    train, test = px.data.two_moons(train=150, test=1000, noise=0.25, seed=seed)
    net = make_mlp(2, 2, 16, 2, "relu", seed)
    problem = px.Problem(net, px.Categorical(), prior=px.priors.Normal(scale=1.0))
    screen.rule("Two moons")
    screen.print(f"{len(train[1])} training points, {len(test[1])} test points; {describe(problem)}\n")
    posteriors = fit_all(screen, problem, train, seed, px.HMC())
    screen.print(px.compare(posteriors, test, reference="HMC", costs=False))  # costs would not fit a terminal
    screen.print(
        "agreement: how often the predicted class is the same as HMC's. total variation: the distance between the "
        "predicted probabilities and HMC's.\n"
    )
    angle = np.linspace(0, 2 * np.pi, 200, endpoint=False)
    far = (train[0].mean(axis=0) + 6 * np.stack([np.cos(angle), np.sin(angle)], axis=1)).astype(np.float32)
    predicted: dict[str, Any] = {name: posterior.predict(far) for name, posterior in posteriors.items()}
    sure = {name: float(predictive.probs.max(axis=1).mean()) for name, predictive in predicted.items()}
    say(screen, "How sure of the class on a circle around the data, far from all of them (0.5: no idea)", sure)
    predictives = {name: posterior.predict(test[0]) for name, posterior in posteriors.items()}
    figures = {
        "moons_uncertainty.png": lambda figures: figures.uncertainty_plane(posteriors, train),
        "moons_reliability.png": lambda figures: figures.reliability_diagram(predictives, test[1]),
    }
    save_figures(out, figures)


def curve(screen: Console, out: Path, seed: int) -> None:
    """Do 90 % intervals hold 90 % of the targets where there are no data?"""
    train, test = px.data.curve_with_gap(test=500, seed=seed + 2)  # with seed 0 the mode happens to be right
    net = make_mlp(1, 1, 32, 1, "tanh", seed)
    problem = px.Problem(net, px.Normal("learned"), prior=px.priors.Normal(scale=1.5))
    screen.rule("A curve with a gap in its data")
    screen.print(f"{len(train[1])} training points, {len(test[1])} test points; {describe(problem)}\n")
    # at the default acceptance rate of 0.8 a few trajectories diverge where the noise is small
    posteriors = fit_all(screen, problem, train, seed, px.HMC(target_acceptance=0.9))
    comparison = px.compare(posteriors, test, reference="HMC", costs=False)
    screen.print(comparison)
    screen.print(
        "coverage 90: the share of targets inside 90 % intervals, 0.9 if they are honest. wasserstein: how far "
        "predictions are from HMC's, in the unit of y.\n"
    )
    inside = gap(train, test)
    held = {name: interval_coverage(posterior, *inside) for name, posterior in posteriors.items()}
    say(screen, "Targets that 90 % intervals hold in the gap, where there are no data", held)
    figures = {
        "curve_intervals.png": lambda figures: figures.interval_bands(posteriors, train, test),
        "curve_traces.png": lambda figures: figures.traces({n: post.trace for n, post in posteriors.items()}),
    }
    save_figures(out, figures)
    comparison.to_html(out / "report.html", title="A curve with a gap in its data")


def make_mlp(inputs: int, outputs: int, width: int, depth: int, activation: str, seed: int) -> eqx.nn.MLP:
    import equinox as eqx
    import jax

    return eqx.nn.MLP(inputs, outputs, width, depth, getattr(jax.nn, activation), key=jax.random.key(seed))


def gap(train: Split, test: Split) -> Split:
    """The test points in the widest interval without training points."""
    import numpy as np

    known = np.sort(train[0][:, 0])
    widest = np.argmax(np.diff(known))
    chosen = (test[0][:, 0] > known[widest]) & (test[0][:, 0] < known[widest + 1])
    return test[0][chosen], test[1][chosen]


def interval_coverage(posterior: px.posterior.Posterior, x: np.ndarray, y: np.ndarray) -> float:
    """The share of targets that are inside the 90 % interval of their prediction."""
    predictive: Any = posterior.predict(x)
    low, high = predictive.interval(0.9)
    return float(((low.ravel() <= y) & (y <= high.ravel())).mean())


def say(screen: Console, what: str, shares: dict[str, float]) -> None:
    """One line: a share for each posterior."""
    screen.print(f"{what}: {', '.join(f'{name} {share:.2f}' for name, share in shares.items())}.\n", highlight=False)


def describe(problem: px.Problem) -> str:
    return f"a network with {problem.network.num_parameters:,} weights, prior {problem.prior}."


def fit_all(
    screen: Console, problem: px.Problem, train: Split, seed: int, hmc: px.HMC
) -> dict[str, px.posterior.Posterior]:
    """All four posteriors, those by optimisation until they have converged; prints how long each took."""
    posteriors: dict[str, px.posterior.Posterior] = {}

    def fit(name: str, method: Method | px.Ensemble, **length: Any) -> None:
        posteriors[name] = px.fit(problem, train, method, key=seed, **length)
        screen.print(f"  {name}: {posteriors[name].trace.seconds:.0f} s", highlight=False)

    fit("MAP", px.MAP(), until="converged")
    fit("deep ensemble", px.Ensemble(px.MAP(), members=4), until="converged")
    # the ELBO has other optima, as high as those near a mode, that predict much worse
    fit("mean-field VI", px.VI(px.families.Normal(), start=posteriors["MAP"]), until="converged")
    fit("HMC", hmc, draws=300, chains=4)
    screen.print()
    return posteriors


def save_figures(out: Path, figures: dict[str, Callable[[ModuleType], Figure]]) -> None:
    try:
        import matplotlib
    except ImportError:
        console().print("(no figures: pip install 'posteriax[plots]')")
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from posteriax.evaluation.report import figures as module

    for name, draw in figures.items():
        figure = draw(module)
        figure.savefig(out / name, dpi=150)
        plt.close(figure)
