"""Networks of the k-tied Normal's experiments, their training, and what is measured of it.

    MLP    784-400-400-10 on MNIST, pixels in [-1, 1]         every layer tied
    LeNet  two convolutions and two dense layers, CIFAR-100   dense layers tied; the rest mean-field
    LSTM   embeddings and states of 128, IMDB                 both matrices of the LSTM tied; the rest point estimates

Biases are never tied. Priors are N(0, 0.2^2), one of the two scales that the paper chose from, or He's,
N(0, 2 / fan_in). What is measured,

    -ELBO = KL(q || p) / N + E_q[-log p(y | x, w)] on test examples            N training examples

is in nats per example, as in the paper's tables; point estimates have no KL. The NLL is that of the averaged
predictions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from posteriax import analysis, zoo
from posteriax import families as q
from posteriax import priors as p
from posteriax.data import DataSet
from posteriax.evaluation import evaluate
from posteriax.likelihoods import Bernoulli, Categorical
from posteriax.methods import MAP, VI
from posteriax.networks import network as with_example
from posteriax.posterior import Posterior, VariationalPosterior
from posteriax.problem import Problem
from posteriax.run import GradientNoise
from posteriax.studies.results import Json
from posteriax.studies.scales import read_scales
from posteriax.studies.study import Cell
from posteriax.studies.workbench import Examples, Workbench, average_pixels, last_words, linear_annealing

MLP, LENET, LSTM, HE = "MLP", "LeNet", "LSTM", "MLP with He prior"
MEAN_FIELD = "mean-field"
POINT = "point estimate"  # trained for the time of a step only
RANKS = (1, 2, 3)
TIED = {f"{k}-tied": k for k in RANKS}
ALL = (MEAN_FIELD, *TIED)
PRIOR_SCALE = 0.2
# the matrices whose standard deviations are tied, analysed and truncated
LEAVES = {MLP: "layers/*/weight", HE: "layers/*/weight", LENET: "*/weight", LSTM: "lstm/*"}
WINDOW = 10  # batches over which signal and noise are measured
KEPT = 10  # singular values
POINTS = 60  # of a curve
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
    families: tuple[str, ...] = (MEAN_FIELD, "2-tied")  # which are trained


@dataclass(frozen=True)
class Sizes:
    """What is made smaller below the paper's scale."""

    hidden: tuple[int, ...] = (400, 400)  # units of the MLP's hidden layers
    pool: int = 1  # images for the LeNet are averaged over squares of so many pixels
    units: int = 128  # states of the LSTM
    words: int = 20_000  # in its vocabulary
    length: int = 80  # words that it reads of a review


@dataclass(frozen=True)
class KTiedSettings:
    """Settings of a scale."""

    seeds: int  # repetitions by default
    data: tuple[str, ...]  # data sets that must be there
    mlp: Training
    lenet: Training
    lstm: Training
    sizes: Sizes
    draws: int  # for predictions
    first_rate: float  # Adam's in the first steps
    first_every: int  # signal and noise are read at every so many steps,
    first_last: int  # up to this one
    first_batch_size: int


SCALES = read_scales(Path(__file__).with_name("scales.toml"), KTiedSettings)


def training_plan(network: str, settings: KTiedSettings) -> Training:
    return {MLP: settings.mlp, HE: settings.mlp, LENET: settings.lenet, LSTM: settings.lstm}[network]


def cells(settings: KTiedSettings, seeds: int) -> list[Cell]:
    """All cells, seed by seed. Costs are seconds at laptop scale."""
    costs = {MLP: 58.0, HE: 65.0, LENET: 28.0, LSTM: 20.0}
    plan = [(network, family) for network in (MLP, LENET, LSTM) for family in training_plan(network, settings).families]
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
    early: Posterior | None = None
    result: dict[str, Json] = {}
    if network in (MLP, HE):
        early, result["first_steps"] = first_steps(family, problem, train, settings, cell.seed, bench)
    posterior = fit_to_convergence(network, family, problem, train, training, cell.seed, bench, early)
    examples = len(train[1])
    result |= {
        "scores": scores(posterior, test, examples, settings.draws),
        "parameters": posterior.num_parameters,
        "curve": curve(posterior, examples),
        "settling": settling(posterior, examples),
    }
    return result | (low_rank(network, posterior, test, examples, settings.draws) if family == MEAN_FIELD else {})


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
    if network == LENET:
        return average_pixels(x, sizes.pool)
    return 2 * x - 1


def build_problem(network: str, data: DataSet, example: np.ndarray, sizes: Sizes, seed: int) -> Problem:
    """The network with He's initial weights, its likelihood and its prior."""
    key = jax.random.key(seed)
    prior: p.Prior = p.HeNormal() if network == HE else p.Normal(scale=PRIOR_SCALE)
    if network == LENET:
        return Problem(zoo.lenet(shape=example.shape, classes=len(data.classes), key=key), Categorical(), prior=prior)
    if network == LSTM:
        return Problem(zoo.lstm(words=sizes.words, units=sizes.units, key=key), Bernoulli(), prior=prior)
    net = zoo.mlp(inputs=example.size, hidden=sizes.hidden, classes=len(data.classes), key=key)
    return Problem(with_example(net, example=example), Categorical(), prior=prior)


def variational_family(network: str, name: str) -> q.Family | dict[str, q.Family]:
    """Mean-field, or tied in the network's own matrices.

    >>> variational_family(MLP, "2-tied"), variational_family(LENET, "mean-field")["**"]
    (KTied(k=2, scale=0.01), Normal(scale=0.01))
    """
    untied = q.Normal(0.01)
    chosen = q.KTied(TIED[name]) if name in TIED else untied
    if network == LENET:
        return {"convolutions/**": untied, "**": chosen}
    if network == LSTM:
        return {"**": q.Point(), "lstm/weight": chosen, "lstm/recurrent": chosen}
    return chosen


def first_steps(
    family: str, problem: Problem, data: Examples, settings: KTiedSettings, seed: int, bench: Workbench
) -> tuple[Posterior, dict[str, Json]]:
    """The posterior after the first steps with Adam, as in the paper; signal-to-noise ratio and -ELBO on the way.

    Windows of ten batches begin at steps 0, `first_every`, ..., `first_last`. There is no annealing, and one draw of
    the weights for each batch. The ratio is sum E[g^2] / sum Var[g] over the parameters of the second layer's scales:
    an average of ratios is dominated by units that have died, whose gradient is that of the KL alone and hardly varies.
    """
    method = VI(variational_family(MLP, family), optimizer=optax.adam(settings.first_rate), estimator="weight")
    posterior = timed_first_steps(method, problem, data, settings, seed, bench)
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
    method = VI(
        variational_family(network, family),
        optimizer=optax.adam(training.rate) if training.rate else None,
        kl_schedule=linear_annealing(training.annealing, training.steps),
        # one draw of the weights for the whole batch, as in the paper, or noise per example: the optimum is the same
        estimator="weight" if training.rate else "auto",
        start="network" if first is None else first,
    )
    batch_size = min(training.batch_size, len(data[1]))
    return bench.fit_variational(problem, data, method, steps=training.steps, batch_size=batch_size, key=seed)


def scores(posterior: VariationalPosterior, test: Examples, examples: int, draws: int) -> dict[str, float]:
    """-ELBO, NLL and accuracy in per cent on the test examples."""
    x, y = test
    predictive: Any = untied(posterior).predict(x, draws, key=EVALUATION_KEY)
    measured = evaluate(predictive, y, scores=("nll", "accuracy"))
    return {
        "negative_elbo": random_kl(posterior) / examples + expected_nll(predictive, y),
        "nll": measured["nll"],
        "accuracy": 100 * measured["accuracy"],
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
    network: str, posterior: VariationalPosterior, test: Examples, examples: int, draws: int
) -> dict[str, Json]:
    """Spectra of a mean-field posterior's matrices, and its scores once their scales are truncated."""
    leaves = LEAVES[network]
    spectra = analysis.spectra(posterior, leaves)
    return {
        "spectra": {
            name: {
                "shape": list(spectrum.scale.shape),
                "scales": spectrum.scale_explained[:KEPT],
                "means": spectrum.mean_explained[:KEPT],
                "mean_scale": float(spectrum.scale.mean()),
            }
            for name, spectrum in spectra.items()
        },
        "mean_scale": float(np.concatenate([spectrum.scale.ravel() for spectrum in spectra.values()]).mean()),
        "truncation": {str(k): scores(analysis.truncate(posterior, k, leaves), test, examples, draws) for k in RANKS},
    }


def curve(posterior: Posterior, examples: int) -> dict[str, list[float]]:
    """-ELBO per training example during a run, averaged over parts of it."""
    values = _negative_elbo(posterior, examples)
    parts = np.array_split(np.arange(len(values)), min(POINTS, len(values)))
    return {
        "step": [float(part.mean()) + 1 for part in parts],
        "negative_elbo": [float(values[part].mean()) for part in parts],
    }


def settling(posterior: Posterior, examples: int) -> float:
    """How much -ELBO still fell between the last two tenths of a run, in nats per example."""
    values = _negative_elbo(posterior, examples)
    tenth = max(1, len(values) // 10)
    if len(values) < 2:
        return float("nan")
    return float(values[-2 * tenth : -tenth].mean() - values[-tenth:].mean())


def _negative_elbo(posterior: Posterior, examples: int) -> np.ndarray:
    return -np.asarray(posterior.trace["elbo"], np.float64).reshape(-1) / examples
