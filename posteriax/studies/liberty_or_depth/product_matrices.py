"""Independent weights, correlated products: covariances of product matrices on Fashion-MNIST (figure 1 of the paper).

A network 784-16-...-16-10 is trained by mean-field VI. The matrix shown is the product of its L layers between hidden
ones,

    linear        M = W_L ... W_1                         leaky ReLU       P(x) = W_L D_(L-1) W_(L-1) ... D_1 W_1

with the slopes D of the activations at one test image x, for every draw of the weights. M has exact moments, by a
recursion over layers, which are compared with those of draws; P is sampled.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
import optax

from posteriax import analysis
from posteriax import families as q
from posteriax import priors as p
from posteriax._internal.running_moments import mean_and_covariance
from posteriax.analysis.product_matrix import ProductMatrix
from posteriax.likelihoods.classes import Categorical
from posteriax.methods.vi import VI
from posteriax.posterior.variational import VariationalPosterior
from posteriax.problem import Problem
from posteriax.studies.results import Results
from posteriax.studies.study import Cell, Claim, Table
from posteriax.studies.workbench import Workbench
from posteriax.zoo.mlp import MLP

NAME = "product matrix"
ACTIVATIONS = ("linear", "leaky ReLU")
SLOPE = 0.1  # of the leaky ReLU
CORRELATED = 0.05  # five standard errors of a correlation from 10,000 draws
CHUNK = 1000  # draws of the weights in memory


@dataclass(frozen=True)
class ProductMatrices:
    """Settings of this experiment.

    Args:
        data: the images.
        train: how many training images; 0 for all.
        layers: numbers L of layers in the product.
        width: of the hidden layers.
        epochs, batch_size, learning_rate: of AMSGrad.
        gradient_draws: draws of the weights for each gradient.
        draws: for the covariances.
    """

    data: str
    train: int = 0
    layers: tuple[int, ...] = (1, 5, 10)
    width: int = 16
    epochs: int = 10
    batch_size: int = 64
    learning_rate: float = 1e-3
    gradient_draws: int = 1
    draws: int = 10_000


def one_step(settings: ProductMatrices) -> ProductMatrices:
    return replace(settings, train=settings.batch_size, epochs=1, draws=20)


def cells(settings: ProductMatrices, seeds: int) -> list[Cell]:
    return [
        Cell({"experiment": NAME, "activation": activation, "layers": layers}, seed, cost=8)
        for seed in range(seeds)
        for activation in ACTIVATIONS
        for layers in settings.layers
    ]


def run(cell: Cell, settings: ProductMatrices, bench: Workbench) -> dict[str, Any]:
    """Fit one network and measure how the entries of its product matrix covary."""
    activation, layers = str(cell.settings["activation"]), int(cell.settings["layers"])
    data = bench.load(settings.data)
    (x, y), (x_test, y_test) = data.train, data.test
    x, y = x[: settings.train or None], y[: settings.train or None]
    mean, scale = x.mean(), x.std()
    x, x_test = ((a.reshape(len(a), -1) - mean) / scale for a in (x, x_test))
    sizes = (x.shape[1], *[settings.width] * (layers + 1), len(data.classes))
    net = MLP(sizes, activation=identity if activation == "linear" else leaky_relu, key=jax.random.key(cell.seed))
    problem = Problem(net, Categorical(), p.Normal(scale=0.23))
    optimizer = optax.amsgrad(settings.learning_rate)
    method = VI(q.Normal(0.05), estimator="flipout", optimizer=optimizer, draws=settings.gradient_draws)
    run_length = {"epochs": settings.epochs, "batch_size": settings.batch_size}
    posterior = bench.fit(problem, (x, y), method, key=cell.seed, **run_length)
    assert isinstance(posterior, VariationalPosterior)
    guesses = np.asarray(jax.vmap(posterior.mean)(x_test)).argmax(axis=1)
    found: dict[str, Any] = {
        "accuracy": (guesses == y_test).mean(),
        "training_nll": np.ravel(posterior.trace["nll_per_example"])[-100:].mean(),
    }
    slope = 1.0 if activation == "linear" else SLOPE
    sampled = sampled_products(posterior, x_test[0], slope, settings.draws, cell.seed)
    found["sampled_correlated"] = sampled.correlated_share(CORRELATED)
    product = sampled
    if activation == "linear":
        product = analysis.product_matrix(posterior, [f"layers/{i}/weight" for i in range(1, layers + 1)])
        found["difference"] = rms_difference(product, sampled)
    found["correlated"] = product.correlated_share(CORRELATED)
    found["outside_correlated"] = outside_correlated(product)
    if cell.seed == 0:
        found["correlation_percent"] = upper_triangle(product)
    return found


def identity(x: jax.Array) -> jax.Array:
    return x


def leaky_relu(x: jax.Array) -> jax.Array:
    return jax.nn.leaky_relu(x, SLOPE)


def sampled_products(
    posterior: VariationalPosterior, x: np.ndarray, slope: float, draws: int, seed: int
) -> ProductMatrix:
    """The moments of W_L D_(L-1) W_(L-1) ... D_1 W_1 at an input, for the hidden-to-hidden layers of a mean-field MLP.

    Weights are drawn with NumPy: it needs no compilation, and shares no code with the recursion that it is compared
    with. The first layer has 784 weights for every unit, whose sum is normal: only that is drawn.

    Args:
        posterior: of an `MLP` with `q.Normal`.
        x: the input.
        slope: of the activation for negative values; 1 for a linear network.
        draws: how many.
        seed: for NumPy's generator.
    """
    rng, moments = np.random.default_rng(seed), layer_moments(posterior)

    def draw(mean: np.ndarray, deviation: np.ndarray, count: int) -> np.ndarray:
        return mean + deviation * rng.standard_normal((count, *mean.shape), np.float32)

    def block(count: int) -> np.ndarray:
        weight, bias = moments[0]
        deviation = np.sqrt(np.square(x) @ np.square(weight[1]) + np.square(bias[1]))
        before, product = draw(x @ weight[0] + bias[0], deviation, count), None
        for weight, bias in moments[1:-1]:
            slopes = np.where(before > 0, 1.0, slope)
            matrix = draw(*weight, count)  # (draws, inputs, outputs)
            before = ((before * slopes)[:, None] @ matrix)[:, 0] + draw(*bias, count)
            product = matrix if product is None else product @ (slopes[:, :, None] * matrix)
        assert product is not None
        return product.swapaxes(1, 2)

    mean, covariance = mean_and_covariance(block(min(CHUNK, draws - start)) for start in range(0, draws, CHUNK))
    return ProductMatrix(mean, covariance.reshape(mean.shape * 2), draws)


Moments = tuple[np.ndarray, np.ndarray]  # mean and standard deviation


def layer_moments(posterior: VariationalPosterior) -> list[tuple[Moments, Moments]]:
    """Moments of the weights, (inputs, outputs), and of the biases of every layer."""

    def moments(path: str) -> Moments:
        own = posterior.variational[path]
        return np.asarray(own["mean"][0]), np.exp(np.asarray(own["log_scale"][0]))

    layers = sum(path.endswith("weight") for path in posterior.problem.leaf_names)
    return [(moments(f"layers/{i}/weight"), moments(f"layers/{i}/bias")) for i in range(layers)]


def rms_difference(one: ProductMatrix, other: ProductMatrix) -> float:
    """Root mean square of the difference in correlation over all pairs of entries."""
    size = one.mean.size
    total = np.square(one.correlation - other.correlation).sum()
    return float(np.sqrt(total / (size * (size - 1))))


def outside_correlated(product: ProductMatrix) -> float:
    """Of the pairs of entries that share neither a row nor a column, the share that is correlated beyond 0.05.

    >>> from posteriax.analysis import product_of
    >>> layer = np.ones((3, 3)), 0.1 * np.ones((3, 3))
    >>> [outside_correlated(product_of([layer] * n)) for n in (1, 2, 3)]
    [0.0, 0.0, 1.0]
    """
    rows, columns = product.mean.shape
    row, column = np.divmod(np.arange(rows * columns), columns)
    outside = (row[:, None] != row) & (column[:, None] != column)
    return float((np.abs(product.correlation[outside]) > CORRELATED).mean())


def upper_triangle(product: ProductMatrix) -> list[int]:
    """Correlations above the diagonal in per cent, row by row: small enough to store."""
    correlation = product.correlation
    return np.round(100 * correlation[np.triu_indices(len(correlation), 1)]).astype(int).tolist()


def deep(results: Results, activation: str, smaller: Any = np.minimum) -> np.ndarray:
    """Share of correlated outside pairs by seed: the smaller of those of the two deepest products."""
    deepest = sorted({c.settings["layers"] for c in results.of(experiment=NAME)})[-2:]
    shares = [results.values("outside_correlated", experiment=NAME, activation=activation, layers=n) for n in deepest]
    return smaller(*shares)


def largest_difference(results: Results) -> np.ndarray:
    depths = sorted({c.settings["layers"] for c in results.of(experiment=NAME)})
    each = [results.values("difference", experiment=NAME, activation="linear", layers=n) for n in depths]
    return np.max(each, axis=0)


CLAIMS = (
    Claim(
        name="one layer is diagonal",
        sentence="The covariance of a single mean-field weight matrix is diagonal.",
        paper="figure 1a: nothing off the diagonal",
        quantity="share of pairs of entries whose sampled correlation exceeds 0.05, one hidden layer",
        measure=lambda r: r.values("sampled_correlated", experiment=NAME, activation="linear", layers=1),
        below=0.001,
    ),
    Claim(
        name="deep linear products are correlated everywhere",
        sentence="From three layers on, any two entries of a product of mean-field matrices can be correlated.",
        paper="figure 1b and c: off-diagonal covariance everywhere, with 5 and 10 layers",
        quantity="share of pairs in different rows and columns that correlate beyond 0.05, with 5 or 10 layers, "
        "whichever is smaller",
        measure=lambda r: deep(r, "linear"),
        above=0.1,
    ),
    Claim(
        name="the recursion gives the covariance",
        sentence="The covariance of a product of independent matrices follows from a recursion over the layers.",
        paper="appendix D.1, for any distribution of independent entries",
        quantity="root mean square difference between exact and sampled correlations; the largest of all depths",
        measure=largest_difference,
        below=0.02,
    ),
    Claim(
        name="leaky ReLU networks have such products locally",
        sentence="The local product matrices of networks with leaky ReLUs have similar covariance.",
        paper="figure 1d and e: off-diagonal covariance everywhere, with 5 and 10 layers",
        quantity="as for linear products, at one test image",
        measure=lambda r: deep(r, "leaky ReLU"),
        above=0.1,
    ),
    Claim(
        name="shared activations add correlations",
        sentence="Shared activations introduce additional correlations into local product matrices.",
        paper="figure 1, b and c against d and e, by eye",
        quantity="share of correlated outside pairs, leaky ReLU minus linear, mean of 5 and 10 layers",
        measure=lambda r: deep(r, "leaky ReLU", _mean) - deep(r, "linear", _mean),
        above=0.0,
    ),
)


def _mean(*values: np.ndarray) -> np.ndarray:
    return np.mean(values, axis=0)


def tables(results: Results) -> list[Table]:
    rows = []
    for activation in ACTIVATIONS:
        for layers in sorted({c.settings["layers"] for c in results.of(experiment=NAME)}):
            where = {"experiment": NAME, "activation": activation, "layers": layers}
            names = ["correlated", "outside_correlated", "accuracy"]
            shares = [f"{results.values(name, **where).mean():.1%}" for name in names]
            linear = activation == "linear"
            difference = f"{results.values('difference', **where).mean():.4f}" if linear else "—"
            rows.append([activation, str(layers), *shares, difference])
    headings = [
        "activation",
        "layers",
        "pairs beyond 0.05",
        "of those outside",
        "accuracy of the mean",
        "exact - sampled",
    ]
    caption = (
        "Product matrices on Fashion-MNIST, means over seeds: share of pairs of entries that correlate beyond 0.05, "
        "the same among pairs that share neither row nor column, test accuracy of the mean weights, and the root mean "
        "square difference between exact and sampled correlations."
    )
    return [Table(caption, headings, rows)]
