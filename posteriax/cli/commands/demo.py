"""``posteriax demo``: MAP, a deep ensemble, mean-field VI and HMC on one network, compared on two moons and images."""

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
    out: Path = typer.Option(Path("posteriax-demo"), help="The folder for figures."),
    seed: int = typer.Option(0, help="The random seed of the data, the networks and all methods."),
) -> None:
    """Fit four posteriors of one network to two moons and to images, and compare them with HMC."""
    run_demo(out, seed)


Split = tuple["np.ndarray", "np.ndarray"]  # (x, y)
Length = dict[str, int]  # steps or epochs, as px.fit takes them


def run_demo(out: Path, seed: int = 0) -> None:
    """Fit four posteriors of one network to each data set, print scores and distances to HMC, and draw figures."""
    began = time.monotonic()
    screen = console(piped_width=140)
    # at once, before the seconds that it takes to load everything and to compile
    screen.print("Four posteriors of one network on two data sets, compared with HMC; about a minute.\n")
    out.mkdir(parents=True, exist_ok=True)
    two_moons(screen, out, seed)
    fashion(screen, out, seed)
    screen.print(
        "agreement: how often the predicted class is the same as HMC's. total variation: the distance between the "
        "predicted probabilities and HMC's.\n"
    )
    screen.print(f"Figures are in {out}/. Total time: {time.monotonic() - began:.0f} s.", highlight=False)


def two_moons(screen: Console, out: Path, seed: int) -> None:
    train, test = px.data.two_moons(train=150, test=1000, noise=0.25, seed=seed)
    net = make_mlp(2, 2, width=16, depth=2, seed=seed)
    problem = px.Problem(net, px.Categorical(), prior=px.priors.Normal(scale=1.0))
    screen.rule("Two moons")
    screen.print(f"{len(train[1])} training points, {len(test[1])} test points; {describe(problem)}\n")
    posteriors = fit_all(screen, problem, train, test, seed, {"steps": 2000})
    figures = {
        "moons_uncertainty.png": lambda figures: figures.uncertainty_plane(posteriors, train),
        "moons_traces.png": lambda figures: figures.traces({n: post.trace for n, post in posteriors.items()}),
    }
    save_figures(out, figures)


def fashion(screen: Console, out: Path, seed: int) -> None:
    (x, y), (x_test, y_test) = px.data.fashion_small()
    x, y, x_test = halve(x)[::3], y[::3], halve(x_test)  # 1,000 images of 14 x 14
    net = make_mlp(14 * 14, 10, width=24, depth=1, seed=seed)
    problem = px.Problem(net, px.Categorical(), prior=px.priors.Normal(scale=0.3))
    screen.rule("Fashion-MNIST, a small part")
    screen.print(f"{len(y)} training images, {len(y_test)} test images; {describe(problem)}\n")
    posteriors = fit_all(screen, problem, (x, y), (x_test, y_test), seed, {"epochs": 100})
    predictives = {name: posterior.predict(x_test) for name, posterior in posteriors.items()}
    figures = {
        "fashion_reliability.png": lambda figures: figures.reliability_diagram(predictives, y_test),
        "fashion_traces.png": lambda figures: figures.traces({n: post.trace for n, post in posteriors.items()}),
    }
    save_figures(out, figures)


def make_mlp(inputs: int, outputs: int, *, width: int, depth: int, seed: int) -> eqx.nn.MLP:
    import equinox as eqx
    import jax

    return eqx.nn.MLP(inputs, outputs, width_size=width, depth=depth, key=jax.random.key(seed))


def describe(problem: px.Problem) -> str:
    return f"a network with {problem.network.num_parameters:,} weights, prior {problem.prior}."


def fit_all(
    screen: Console, problem: px.Problem, train: Split, test: Split, seed: int, steps: Length
) -> dict[str, px.posterior.Posterior]:
    """All four posteriors; prints how long each took, and their comparison."""
    import optax

    posteriors: dict[str, px.posterior.Posterior] = {}

    def fit(name: str, method: Method | px.Ensemble, **length: Any) -> None:
        posteriors[name] = px.fit(problem, train, method, key=seed, **length)
        screen.print(f"  {name}: {posteriors[name].trace.seconds:.0f} s", highlight=False)

    fit("MAP", px.MAP(), **steps)
    fit("deep ensemble", px.Ensemble(px.MAP(), members=4), **steps)
    # on two moons the ELBO has other optima, as high as those near a mode, that predict much worse
    mean_field = px.VI(px.families.Normal(), optimizer=optax.adam(1e-2), start=posteriors["MAP"])
    fit("mean-field VI", mean_field, steps=100_000, stop=px.run.UntilLevel())
    fit("HMC", px.HMC(warmup=200), draws=400, chains=2)
    screen.print(px.compare(posteriors, test, reference="HMC", costs=False))  # costs would not fit a terminal
    screen.print()
    return posteriors


def halve(images: np.ndarray) -> np.ndarray:
    """Images of half the width and height, flattened: the means of blocks of 2 x 2 pixels."""
    n, height, width = images.shape
    return images.reshape(n, height // 2, 2, width // 2, 2).mean(axis=(2, 4)).reshape(n, -1)


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
