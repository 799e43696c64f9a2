"""The pictures of docs/concepts.md. Half a minute on two cores.

    python examples/concepts.py [FOLDER [NAME ...]]

Each picture is one function. FOLDER is docs/figures by default; NAMEs choose some.
"""

import sys
from pathlib import Path

import equinox as eqx
import jax
import matplotlib
import matplotlib.pyplot
import numpy as np

import posteriax as px
from posteriax import families as q
from posteriax import priors as p
from posteriax._internal.plot_style import PALETTE, subplots

matplotlib.use("Agg")
FOLDER = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "docs" / "figures"
BLUE, ORANGE, GREEN, RED = PALETTE[:4]


def save(figure, name: str) -> None:
    FOLDER.mkdir(exist_ok=True)
    figure.savefig(FOLDER / f"{name}.png", dpi=130)
    print(f"  {name}.png", flush=True)


def log_joint() -> None:
    """One weight: the likelihood is a sum over examples, the prior counts once."""
    rng = np.random.default_rng(0)
    w = np.linspace(-1, 3, 800)
    figure, (axes,) = subplots(1, 3, 3.3, 2.9, sharex=True)
    for axis, n in zip(axes, (5, 20, 200), strict=True):
        x = rng.normal(size=n)
        y = 1.5 * x + rng.normal(0, 1.0, n)
        log_prior = -0.5 * w**2 / 0.7**2
        log_likelihood = -0.5 * ((y - w[:, None] * x) ** 2).sum(axis=1)
        for log_density, colour, label in (
            (log_prior, PALETTE[7], "prior"),
            (log_prior + log_likelihood / n, ORANGE, "mean loss + prior"),
            (log_prior + log_likelihood, BLUE, "posterior: sum + prior"),
        ):
            density = np.exp(log_density - log_density.max())
            axis.plot(w, density / density.sum() / (w[1] - w[0]), color=colour, lw=2, label=label)
        axis.axvline(1.5, color="0.7", lw=1, zorder=0)
        axis.set(title=f"{n} examples", xlabel="weight", yticks=[])
    axes[0].set_ylabel("density")
    axes[2].legend(frameon=False, fontsize="small", loc="upper left")
    save(figure, "log_joint")


def random_arrays() -> None:
    """The outputs of two examples: sharing one draw of the weights, and with noise of their own."""
    rng = np.random.default_rng(1)
    scale, draws = np.full(8, 0.5), 1500
    mean = rng.normal(size=8)
    x = rng.normal(size=(2, 8))
    x[1] = 0.9 * x[0] + 0.3 * x[1]
    shared = (mean + scale * rng.normal(size=(draws, 8))) @ x.T
    own = mean @ x.T + np.sqrt(scale**2 @ (x.T**2)) * rng.normal(size=(draws, 2))
    figure, (axes,) = subplots(1, 2, 3.6, 3.5, sharex=True, sharey=True)
    for axis, outputs, title in zip(
        axes, (shared, own), ("weight: one draw for the batch", "local: noise for each example"), strict=True
    ):
        axis.scatter(*outputs.T, s=4, color=BLUE, alpha=0.35, edgecolor="none")
        error = outputs.mean(axis=1).std()
        axis.set(title=title, xlabel="output for example 1")
        axis.text(0.04, 0.93, f"sd of their mean: {error:.2f}", transform=axis.transAxes)
    axes[0].set_ylabel("output for example 2")
    save(figure, "random_arrays")


def function_space() -> None:
    """Four chains of HMC: a weight, and the prediction at one point."""
    rng = np.random.default_rng(0)
    x = np.linspace(-2, 2, 200, dtype=np.float32)[:, None]
    y = (np.sin(2.5 * x[:, 0]) + rng.normal(0, 0.05, len(x))).astype(np.float32)
    net = eqx.nn.MLP(1, 1, 4, 1, activation=jax.nn.tanh, key=jax.random.key(0))
    problem = px.Problem(net, px.Normal(0.05), prior=p.Normal(1.5))
    posterior = px.fit(problem, (x, y), px.HMC(), draws=250, chains=4, key=0, progress=False)
    weights = np.asarray(jax.tree.leaves(posterior.draws.network)[0])[:, :, 0, 0]  # (chains, draws)
    at = np.array([[0.1]], np.float32)
    outputs = np.asarray(posterior.predict(at, draws=1000).outputs).reshape(4, -1)
    figure, (axes,) = subplots(1, 2, 4.6, 2.8)
    for axis, values, what in zip(
        axes, (weights, outputs), ("a first-layer weight", "the function at x = 0.1"), strict=True
    ):
        rhat = float(px.diagnostics.rhat(values))
        for chain, colour in zip(values, PALETTE, strict=False):
            axis.plot(chain, color=colour, lw=0.7)
        axis.set(title=f"{what}: R-hat {rhat:.2f}", xlabel="draw")
    save(figure, "function_space")


def curve(width: int):
    """60 points of a noisy curve with a gap, and a network with one hidden layer."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-2, -0.6, 30), rng.uniform(0.8, 2, 30)]).astype(np.float32)[:, None]
    y = (np.sin(2.5 * x[:, 0]) + rng.normal(0, 0.15, len(x))).astype(np.float32)
    net = eqx.nn.MLP(1, 1, width, 1, activation=jax.nn.tanh, key=jax.random.key(0))
    grid = np.linspace(-2.6, 2.6, 160, dtype=np.float32)[:, None]
    return px.Problem(net, px.Normal(0.15), prior=p.Normal(1.5)), (x, y), grid


def distances() -> None:
    """Agreement and total variation of three predictions."""
    reference = np.array([0.5, 0.3, 0.2])
    others = {"same class, TV 0.30": [0.8, 0.1, 0.1], "other class, TV 0.12": [0.38, 0.42, 0.2]}
    figure, (axes,) = subplots(1, 2, 3.6, 2.7, sharey=True)
    for axis, (title, probs) in zip(axes, others.items(), strict=True):
        probs = np.array(probs)
        places = np.arange(3)
        axis.bar(places - 0.2, reference, 0.38, color=BLUE, label="reference")
        axis.bar(places + 0.2, probs, 0.38, color=ORANGE, label="approximation")
        moved = np.abs(probs - reference).sum() / 2
        assert f"{moved:.2f}" in title
        axis.set(title=title, xticks=places, xticklabels=["cat", "dog", "horse"])
    axes[0].set_ylabel("probability")
    axes[1].legend(frameon=False, fontsize="small")
    save(figure, "distances")


def calibration() -> None:
    """What a reliability diagram shows, what it hides, and what ECE says of perfect predictions."""
    rng = np.random.default_rng(0)
    n = 20_000
    truth = rng.beta(2, 2, n)
    y = rng.uniform(size=n) < truth
    sharpen = lambda prob, power: prob**power / (prob**power + (1 - prob) ** power)  # noqa: E731
    predictions = {
        "knows": (truth, BLUE),
        "over-confident": (sharpen(truth, 3), RED),
        "base rate": (np.full(n, y.mean()), GREEN),
    }
    figure, (axes,) = subplots(1, 2, 4.0, 3.4)
    axes[0].plot([0, 1], [0, 1], color="0.7", lw=1)
    for name, (prob, colour) in predictions.items():
        bins = np.clip((prob * 10).astype(int), 0, 9)
        used = [b for b in range(10) if (bins == b).sum() > 50]
        points = np.array([[prob[bins == b].mean(), y[bins == b].mean()] for b in used])
        nll = -np.where(y, np.log(prob), np.log1p(-prob)).mean()
        both = np.stack([1 - prob, prob], axis=1)
        ece = px.metrics.ece_equal_width(both, y.astype(int))
        axes[0].plot(*points.T, "o-", color=colour, ms=5, label=f"{name}: ECE {float(ece):.2f}, NLL {nll:.2f}")
    axes[0].set(xlabel="predicted probability", ylabel="share that came true", title="Calibrated is not informed")
    axes[0].legend(frameon=False, fontsize="small", loc="upper left")
    sizes = np.array([50, 100, 200, 500, 1000, 2000, 5000, 10_000])
    for count, colour in ((5, GREEN), (15, BLUE), (50, RED)):
        values = [np.mean([perfect_ece(rng, size, count) for _ in range(40)]) for size in sizes]
        axes[1].loglog(sizes, values, "o-", color=colour, ms=4, label=f"{count} bins")
    axes[1].set(xlabel="test examples", ylabel="ECE", title="ECE of perfect predictions")
    axes[1].legend(frameon=False, fontsize="small")
    save(figure, "calibration")


def perfect_ece(rng, size: int, bins: int) -> float:
    prob = rng.beta(2, 2, size)
    y = (rng.uniform(size=size) < prob).astype(int)
    return float(px.metrics.ece_equal_width(np.stack([1 - prob, prob], axis=1), y, bins=bins))


def mean_field() -> None:
    """Two correlated weights and their best independent approximation; a curve, between its data."""
    figure, (axes,) = subplots(1, 3, 3.6, 3.2)
    covariance = np.array([[1.0, 0.9], [0.9, 1.0]])
    narrow = 1 / np.sqrt(np.diag(np.linalg.inv(covariance)))  # KL(q || p) is least at the conditional variances
    angle = np.linspace(0, 2 * np.pi, 200)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    for radius in (1, 2):
        axes[0].plot(*(radius * np.linalg.cholesky(covariance) @ circle), color=BLUE, lw=2)
        axes[0].plot(*(radius * narrow[:, None] * circle), color=ORANGE, lw=2)
    axes[0].set(title="Two weights", xlabel="$w_1$", ylabel="$w_2$", aspect="equal")
    axes[0].text(0.6, 2.1, "posterior", color=BLUE)
    axes[0].text(0.55, -0.75, "mean-field", color=ORANGE)
    problem, data, grid = curve(16)
    mode = px.fit(problem, data, px.MAP(), until="converged", key=0, progress=False)
    posteriors = {
        "mean-field VI": px.fit(problem, data, px.VI(q.Normal(), start=mode), until="converged", key=0, progress=False),
        "HMC": px.fit(problem, data, px.HMC(), draws=250, chains=4, key=0, progress=False),
    }
    for axis, (name, posterior), colour in zip(axes[1:], posteriors.items(), (ORANGE, BLUE), strict=True):
        outputs = np.asarray(posterior.predict(grid, draws=400).outputs)[..., 0]
        low, high = np.quantile(outputs, [0.05, 0.95], axis=0)
        axis.fill_between(grid[:, 0], low, high, color=colour, alpha=0.3, lw=0)
        axis.plot(grid[:, 0], outputs.mean(axis=0), color=colour, lw=2)
        axis.scatter(data[0][:, 0], data[1], s=8, color="black", zorder=3)
        axis.set(title=f"{name}: 90 % of functions", xlabel="x", ylim=(-3.2, 3.2))
        spread, gap = outputs.std(axis=0), np.abs(grid[:, 0] - 0.1) < 0.3
        print(f"  {name}: sd in the gap {spread[gap].mean():.2f}, beyond {spread[[0, -1]].mean():.2f}")
    save(figure, "mean_field")


QUESTIONS = (
    ("Only predictions,\nnever how sure they are?", "MAP: ordinary training"),
    ("Trained already,\nand not to be trained again?", "Laplace, or\nHMC on the last layer"),
    ("At most a few thousand weights\nand ten thousand rows?", "HMC,\nuntil its chains agree"),
    ("Can you train, and predict with,\nseveral networks?", "deep ensemble"),
    ("Memory for one network only?", "rank-1 VI, or SWAG"),
    ("Uncertainty of each weight\n(pruning, priors, noise)?", "mean-field or k-tied VI"),
)
OTHERWISE = "SGHMC with cycles"


def which() -> None:
    """The decision chart of docs/which.md."""
    figure, axis = matplotlib.pyplot.subplots(figsize=(6.4, 7.2))
    answers, step = 2.75, 1.2
    box = {"boxstyle": "round,pad=0.5", "linewidth": 1.2}
    is_answer = box | {"facecolor": "#e8f1f8", "edgecolor": BLUE}

    def arrow(start, end, word, at, colour):
        axis.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": colour, "shrinkA": 0, "shrinkB": 0})
        axis.text(*at, word, ha="center", va="center", color=colour)

    for row, (question, answer) in enumerate(QUESTIONS):
        height = -step * row
        axis.text(0, height, question, ha="center", va="center", bbox=box | {"facecolor": "white", "edgecolor": "0.4"})
        axis.text(answers, height, answer, ha="center", va="center", bbox=is_answer, weight="bold")
        arrow((1.15, height), (1.68, height), "yes", (1.4, height + 0.14), BLUE)
        arrow((0, height - 0.34), (0, height - step + 0.34), "no", (0.17, height - step / 2), "0.35")
    axis.text(0, -step * len(QUESTIONS), OTHERWISE, ha="center", va="center", bbox=is_answer, weight="bold")
    axis.set(xlim=(-1.25, 3.85), ylim=(-step * len(QUESTIONS) - 0.45, 0.45))
    axis.axis("off")
    figure.tight_layout(pad=0.2)
    save(figure, "which")


if __name__ == "__main__":
    for function in (which, log_joint, random_arrays, function_space, distances, calibration, mean_field):
        if not sys.argv[2:] or function.__name__ in sys.argv[2:]:
            function()
