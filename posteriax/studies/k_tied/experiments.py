"""Networks of the k-tied Normal's experiments, their training, and what is measured of it.

    MLP    784-400-400-10 on MNIST, pixels in [-1, 1]         every layer tied
    LeNet  two convolutions and two dense layers, CIFAR-100   dense layers tied; the rest mean-field
    LSTM   embeddings and states of 128, IMDB                 both matrices of the LSTM tied; the rest point estimates
    ResNet-18, CIFAR-10                                       kernels mean-field, with standard deviations up to 0.2

Biases are never tied. Priors are N(0, 0.2^2), one of the two scales that the paper chose from, or He's,
N(0, 2 / fan_in); that of the ResNet-18 is N(0, 1). What is measured,

    -ELBO = KL(q || p) / N + E_q[-log p(y | x, w)] on test examples            N training examples

is in nats per example, as in the paper's tables; point estimates have no KL. The NLL is that of the averaged
predictions.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from posteriax import analysis, zoo
from posteriax import families as q
from posteriax import priors as p
from posteriax.data import DataSet
from posteriax.evaluation import evaluate
from posteriax.families.arrays.estimators import Estimator
from posteriax.likelihoods import Bernoulli, Categorical
from posteriax.methods import MAP, VI, StaircaseKL
from posteriax.networks import network as with_example
from posteriax.posterior import Posterior, VariationalPosterior, with_batch_statistics
from posteriax.problem import Problem
from posteriax.run import GradientNoise, Watch
from posteriax.studies.results import Json
from posteriax.studies.scales import read_scales
from posteriax.studies.study import Cell
from posteriax.studies.workbench import Examples, Workbench, average_pixels, last_words, linear_annealing

MLP, LENET, LSTM, HE = "MLP", "LeNet", "LSTM", "MLP with He prior"
RESNET = "ResNet-18"
MEAN_FIELD = "mean-field"
POINT = "point estimate"  # trained for the time of a step only
RANKS = (1, 2, 3)
TIED = {f"{k}-tied": k for k in RANKS}
ALL = (MEAN_FIELD, *TIED)
PRIOR_SCALE = 0.2
# the matrices whose standard deviations are tied, analysed and truncated
KERNELS = ("stem/weight", "blocks/*/convolutions/*/weight", "blocks/*/shortcut/weight", "out/weight")  # of a ResNet
LEAVES: dict[str, str | tuple[str, ...]] = {
    MLP: "layers/*/weight",
    HE: "layers/*/weight",
    LENET: "*/weight",
    LSTM: "lstm/*",
    RESNET: KERNELS,
}
RESNET_FAMILY = q.Normal(scale=math.exp(-9.0), scatter=0.1, largest=0.2)
SHOWN = {LENET: "dense/weight"}  # whose standard deviations a figure shows, the first of them
SHOWN_ENTRIES = 40  # rows and columns
WINDOW = 10  # batches over which signal and noise are measured
KEPT = 10  # singular values
POINTS = 60  # of a curve
STATISTICS = 512  # training images for the batch statistics of a draw
DENSE_2 = "layers/1/weight/"  # whose signal-to-noise ratio the paper reports
EVALUATION_KEY = 1  # draws for predictions: the same noise for every truncation


@dataclass(frozen=True)
class Training:
    """Data and length of training of one network."""

    data: str
    examples: int  # of the training set
    tests: int
    batch_size: int  # of the run to convergence
    steps: int
    rate: float = 0.0  # Adam's; 0 for the optimiser that VI has by default, whose rates fall to 0
    annealing: float = 0.0  # the part of the run over which the KL's weight grows from 0 to 1
    kl_slope: float = 0.0  # instead: its growth per batch, in jumps every 100; a run may end before it is 1
    families: tuple[str, ...] = (MEAN_FIELD, "2-tied")  # which are trained


@dataclass(frozen=True)
class Sizes:
    """What is made smaller below the paper's scale."""

    hidden: tuple[int, ...] = (400, 400)  # units of the MLP's hidden layers
    pool: int = 1  # images for the LeNet are averaged over squares of so many pixels
    units: int = 128  # states of the LSTM
    words: int = 20_000  # in its vocabulary
    length: int = 80  # words that it reads of a review
    width: int = 64  # channels of the ResNet-18's first stage
    colour_pool: int = 1  # images for the ResNet-18 are averaged over squares of so many pixels


@dataclass(frozen=True)
class KTiedSettings:
    """Settings of a scale."""

    seeds: int  # repetitions by default
    data: tuple[str, ...]  # data sets that must be there
    mlp: Training
    lenet: Training
    lstm: Training
    resnet: Training  # no families: it is not trained
    sizes: Sizes
    draws: int  # for predictions
    first_rate: float  # Adam's in the first steps
    first_every: int  # signal and noise are read at every so many steps,
    first_last: int  # up to this one
    first_batch_size: int


SCALES = read_scales(Path(__file__).with_name("scales.toml"), KTiedSettings)


def training_plan(network: str, settings: KTiedSettings) -> Training:
    plans = {LENET: settings.lenet, LSTM: settings.lstm, RESNET: settings.resnet}
    return plans.get(network, settings.mlp)


def cells(settings: KTiedSettings, seeds: int) -> list[Cell]:
    """All cells, seed by seed. Costs are seconds at laptop scale."""
    costs = {MLP: 58.0, HE: 65.0, LENET: 28.0, LSTM: 20.0, RESNET: 60.0}
    networks = (MLP, LENET, LSTM, RESNET)
    plan = [(network, family) for network in networks for family in training_plan(network, settings).families]
    listed = [
        Cell({"network": network, "family": family}, seed, costs[network])
        for seed in range(seeds)
        for network, family in (*plan, (HE, MEAN_FIELD))
    ]
    return [*listed, Cell({"network": MLP, "family": POINT}, 0, 5.0)]


def run(cell: Cell, settings: KTiedSettings, bench: Workbench) -> Mapping[str, Json]:
    """Train a network with a family, and measure it."""
    network, family = cell["network"], cell["family"]
    training = training_plan(network, settings)
    data, train, test = load_parts(network, training, settings.sizes, bench)
    problem = build_problem(network, data, train[0][0], settings.sizes, cell.seed)
    if family == POINT:
        timed_first_steps(MAP(optax.adam(settings.first_rate)), problem, train, settings, cell.seed, bench)
        return {"parameters": problem.network.num_parameters}
    early: VariationalPosterior | None = None
    result: dict[str, Json] = {}
    if network in (MLP, HE):
        early, result["first_steps"] = first_steps(family, problem, train, settings, cell.seed, bench)
        after = scores(early, test, len(train[1]), Predicting(settings.draws))
        result["first_steps"]["test_negative_elbo"] = after["negative_elbo"]
    posterior = fit_to_convergence(network, family, problem, train, training, cell.seed, bench, early)
    examples = len(train[1])
    predicting = Predicting(settings.draws, train[0][:STATISTICS] if network == RESNET else None)
    result |= {
        "scores": scores(posterior, test, examples, predicting),
        "parameters": posterior.num_parameters,
        "curve": curve(posterior, examples),
        "settling": settling(posterior, examples),
    }
    return result | (low_rank(network, posterior, test, examples, predicting) if family == MEAN_FIELD else {})


def load_parts(network: str, training: Training, sizes: Sizes, bench: Workbench) -> tuple[DataSet, Examples, Examples]:
    """The data set, and ``(x, y)`` for training and for testing as the network takes them."""
    data = bench.load(training.data)
    parts = []
    for number, (part, count) in enumerate(((data.train, training.examples), (data.test, training.tests))):
        x, y = part
        if network == LSTM:  # reviews are sorted by their label
            order = np.random.default_rng(number).permutation(len(y))
            x, y = x[order], y[order]
        parts.append((_prepare(network, x[:count], sizes), y[:count]))
    return data, parts[0], parts[1]


def _prepare(network: str, x: np.ndarray, sizes: Sizes) -> np.ndarray:
    if network == LSTM:
        return last_words(x, sizes.length, sizes.words)
    if network in (LENET, RESNET):
        return average_pixels(x, sizes.pool if network == LENET else sizes.colour_pool)
    return 2 * x - 1


def build_problem(network: str, data: DataSet, example: np.ndarray, sizes: Sizes, seed: int) -> Problem:
    """The network with He's initial weights, its likelihood and its prior."""
    key = jax.random.key(seed)
    prior: p.Prior = p.HeNormal() if network == HE else p.Normal(scale=PRIOR_SCALE)
    if network == LENET:
        return Problem(zoo.lenet(shape=example.shape, classes=len(data.classes), key=key), Categorical(), prior=prior)
    if network == RESNET:
        net18 = zoo.resnet18(width=sizes.width, classes=len(data.classes), key=key)
        return Problem(net18, Categorical(), prior=p.Normal(scale=1.0))
    if network == LSTM:
        return Problem(zoo.lstm(words=sizes.words, units=sizes.units, key=key), Bernoulli(), prior=prior)
    net = zoo.mlp(inputs=example.size, hidden=sizes.hidden, classes=len(data.classes), key=key)
    return Problem(with_example(net, example=example), Categorical(), prior=prior)


def variational_family(network: str, name: str) -> q.Family | dict[str, q.Family]:
    """Mean-field, or tied in the network's own matrices.

    >>> variational_family(MLP, "2-tied"), variational_family(LENET, "mean-field")["**"]
    (KTied(k=2, scale=0.01), Normal(scale=0.01))
    """
    if network == RESNET:
        return {"**": q.Point(), **dict.fromkeys(KERNELS, RESNET_FAMILY)}
    untied = q.Normal(0.01)
    chosen = q.KTied(TIED[name]) if name in TIED else untied
    if network == LENET:
        return {"convolutions/**": untied, "**": chosen}
    if network == LSTM:
        return {"**": q.Point(), "lstm/weight": chosen, "lstm/recurrent": chosen}
    return chosen


def first_steps(
    family: str, problem: Problem, data: Examples, settings: KTiedSettings, seed: int, bench: Workbench
) -> tuple[VariationalPosterior, dict[str, Json]]:
    """The posterior after the first steps with Adam, as in the paper; signal-to-noise ratio and -ELBO on the way.

    Windows of ten batches begin at steps 0, `first_every`, ..., `first_last`. There is no annealing, and one draw of
    the weights for each batch. The ratio is sum E[g^2] / sum Var[g] over the parameters of the second layer's scales:
    an average of ratios is dominated by units that have died, whose gradient is that of the KL alone and hardly varies.
    """
    method = VI(variational_family(MLP, family), optimizer=optax.adam(settings.first_rate), estimator="weight")
    posterior = timed_first_steps(method, problem, data, settings, seed, bench)
    assert isinstance(posterior, VariationalPosterior)
    signal = analysis.gradient_noise(posterior)
    names = [name for name in signal.pooled if name.startswith(DENSE_2) and not name.endswith("/mean")]
    elbo = np.asarray(posterior.trace["elbo"], np.float64).reshape(-1)
    begins = np.asarray(signal.steps) - WINDOW
    return (
        posterior,
        {
            "step": begins.tolist(),
            "signal": np.mean([signal.pooled[name] for name in names], axis=0),  # log u and log v have as many entries
            "mean_ratio": np.mean([signal.paper[name] for name in names], axis=0),
            "median_ratio": np.mean([signal.median[name] for name in names], axis=0),
            "negative_elbo": [-elbo[begin : begin + WINDOW].mean() / len(data[1]) for begin in begins],
        },
    )


def timed_first_steps(
    method: VI | MAP, problem: Problem, data: Examples, settings: KTiedSettings, seed: int, bench: Workbench
) -> Posterior:
    """A fit that records signal and noise of its gradients, and the time of a step."""
    every = settings.first_every
    return bench.fit_timed(
        problem,
        data,
        method,
        steps=settings.first_last + WINDOW,
        batch_size=min(settings.first_batch_size, len(data[1])),
        key=seed,
        record=GradientNoise(window=WINDOW, every=every),
        every=every,
    )


def fit_to_convergence(
    network: str,
    family: str,
    problem: Problem,
    data: Examples,
    training: Training,
    seed: int,
    bench: Workbench,
    first: Posterior | None,
) -> VariationalPosterior:
    """The run to convergence, from where the first steps ended, if there are any."""
    # one draw of the weights for the whole batch, as in the paper, or noise per example: the optimum is the same
    estimator: Estimator = "weight" if training.rate else "auto"
    method = VI(
        variational_family(network, family),
        optimizer=optax.adam(training.rate) if training.rate else None,
        kl_schedule=kl_schedule(training),
        estimator="flipout" if network == RESNET else estimator,
        start="network" if first is None else first,
    )
    return bench.fit_variational(
        problem,
        data,
        method,
        steps=training.steps,
        batch_size=min(training.batch_size, len(data[1])),
        key=seed,
        watch=Watch(watched_kl, every=max(1, training.steps // POINTS)),
    )


def kl_schedule(training: Training) -> Any:
    """The weight of the KL: the paper's staircase, or a line up to 1.

    >>> kl_schedule(Training("mnist", 50_000, 10_000, 1024, 14_700, kl_slope=5e-5))
    StaircaseKL(slope=5e-05, every=100, end_below_one=True)
    """
    if training.kl_slope:
        return StaircaseKL(training.kl_slope, end_below_one=True)
    return linear_annealing(training.annealing, training.steps)


def watched_kl(posterior: Posterior) -> dict[str, float]:
    """The KL of the random leaves along a run: the trace's has the prior density of point estimates as well."""
    assert isinstance(posterior, VariationalPosterior)
    return {"random_kl": random_kl(posterior)}


class Predicting(NamedTuple):
    """How a posterior predicts: by so many draws, each with batch statistics of some images if there are any."""

    draws: int
    images: np.ndarray | None = None

    def __call__(self, posterior: VariationalPosterior, x: np.ndarray) -> Any:
        plain = untied(posterior)
        if self.images is None:
            return plain.predict(x, self.draws, key=EVALUATION_KEY)
        measured = with_batch_statistics(plain, self.images, batch_size=min(128, len(self.images)))
        return measured.predict(x, self.draws, key=EVALUATION_KEY)


def scores(posterior: VariationalPosterior, test: Examples, examples: int, predicting: Predicting) -> dict[str, float]:
    """-ELBO, NLL and accuracy in per cent, Brier score and ECE on the test examples."""
    x, y = test
    predictive = predicting(posterior, x)
    measured = evaluate(predictive, y, scores=("nll", "accuracy", "brier", "ece"))
    return {
        "negative_elbo": random_kl(posterior) / examples + expected_nll(predictive, y),
        "nll": measured["nll"],
        "accuracy": 100 * measured["accuracy"],
        "brier": measured["brier"] - 1,  # as the paper has it: -1 is the best
        "ece": measured["ece"],
    }


def random_kl(posterior: VariationalPosterior) -> float:
    """KL(q || p) in nats of the leaves that are random."""
    priors, total = posterior.problem.leaf_priors, 0.0
    for block in posterior.blocks:
        if block.family.random:
            member = jax.tree.map(lambda leaf: leaf[0], posterior.variational[block.name])
            total += float(block.family.kl(member, block.prior(priors), jax.random.key(0)))
    return total


def untied(posterior: VariationalPosterior) -> VariationalPosterior:
    """The same distribution as mean-field: one compiled program then draws from all families and truncations."""
    families, variational = dict(posterior.families), dict(posterior.variational)
    for name, family in posterior.families.items():
        if isinstance(family, q.KTied):
            mean, scale = jax.vmap(family.moments)(variational[name])
            families[name], variational[name] = q.Normal(), {"mean": mean, "log_scale": jnp.log(scale)}
    return replace(posterior, families=families, variational=variational)


def expected_nll(predictive: Any, y: np.ndarray) -> float:
    """The negative log-likelihood per example, averaged over draws."""
    log_probs = np.asarray(predictive.log_probs_per_draw, np.float64)
    return float(-np.take_along_axis(log_probs, np.asarray(y)[None, :, None], axis=2).mean())


def low_rank(
    network: str, posterior: VariationalPosterior, test: Examples, examples: int, predicting: Predicting
) -> dict[str, Json]:
    """Spectra of a mean-field posterior's matrices, and its scores once their scales are truncated."""
    spectra = analysis.spectra(posterior, LEAVES[network])
    shown = SHOWN.get(network)
    heat = {} if shown is None else {"heat": heat_map_entries(spectra[shown])}
    return heat | {
        "spectra": {
            name: {
                "shape": list(spectrum.scale.shape),
                "scales": spectrum.scale_explained[:KEPT],
                "means": spectrum.mean_explained[:KEPT],
                "shuffled": shuffled_shares(spectrum.scale)[:KEPT],
                "mean_scale": float(spectrum.scale.mean()),
            }
            for name, spectrum in spectra.items()
        },
        "mean_scale": float(np.concatenate([spectrum.scale.ravel() for spectrum in spectra.values()]).mean()),
        "truncation": {
            str(k): scores(truncate_all(posterior, k, LEAVES[network]), test, examples, predicting) for k in RANKS
        },
    }


def truncate_all(posterior: VariationalPosterior, k: int, leaves: str | tuple[str, ...]) -> VariationalPosterior:
    """Truncation of the leaves that any of the patterns matches."""
    for pattern in [leaves] if isinstance(leaves, str) else leaves:
        posterior = analysis.truncate(posterior, k, pattern)
    return posterior


def shuffled_shares(matrix: np.ndarray) -> np.ndarray:
    """The shares of the singular values of the same entries in random order: what any positive matrix has."""
    entries = np.random.default_rng(0).permutation(matrix.ravel()).reshape(matrix.shape)
    squares = np.square(np.linalg.svd(entries, compute_uv=False))
    return squares / squares.sum()


def heat_map_entries(spectrum: analysis.Spectrum) -> dict[str, Json]:
    """The first rows and columns of the standard deviations, and of their approximations of rank 1 and 2."""
    first = slice(SHOWN_ENTRIES)
    matrices = {"scales": spectrum.scale, "rank 1": spectrum.approximation(1), "rank 2": spectrum.approximation(2)}
    return {name: np.round(matrix[first, first].astype(np.float64), 4) for name, matrix in matrices.items()}


def curve(posterior: Posterior, examples: int) -> dict[str, list[float]]:
    """-ELBO per training example during a run, averaged over parts of it; "random_kl" is the KL in it, per example."""
    kl = random_kl_by_step(posterior) / examples
    values = np.asarray(posterior.trace["nll_per_example"], np.float64).reshape(-1) + kl
    parts = np.array_split(np.arange(len(values)), min(POINTS, len(values)))
    return {
        "step": [float(part.mean()) + 1 for part in parts],
        "negative_elbo": [float(values[part].mean()) for part in parts],
        "random_kl": [float(kl[part].mean()) for part in parts],
    }


def random_kl_by_step(posterior: Posterior) -> np.ndarray:
    """The KL of the random leaves at every step, from its readings along the run."""
    steps = len(np.asarray(posterior.trace["nll_per_example"]).reshape(-1))
    return np.interp(np.arange(1, steps + 1), posterior.trace["watched_step"], posterior.trace["random_kl"])


def settling(posterior: Posterior, examples: int) -> float:
    """How much -ELBO still fell between the last two tenths of a run, in nats per example."""
    nll = np.asarray(posterior.trace["nll_per_example"], np.float64).reshape(-1)
    values = nll + random_kl_by_step(posterior) / examples
    tenth = max(1, len(values) // 10)
    if len(values) < 2:
        return float("nan")
    return float(values[-2 * tenth : -tenth].mean() - values[-tenth:].mean())
