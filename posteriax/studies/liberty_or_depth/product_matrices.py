"""Independent weights, correlated products: covariances of product matrices on Fashion-MNIST (figure 1 of the paper).

A network 784-16-...-16-10 is trained by mean-field VI. The matrix shown is the product of its L layers between hidden
ones,

    linear        M = W_L ... W_1                   (leaky) ReLU       P(x) = W_L D_(L-1) W_(L-1) ... D_1 W_1

with the slopes D of the activations at one test image x, for every draw of the weights. M has exact moments, by a
recursion over layers, which are compared with those of draws; P is sampled. With slope 0 all units of a layer may be
switched off, and P is 0 then: the share of such draws is measured.
"""

from dataclasses import dataclass

import jax
import numpy as np
import optax

from posteriax import analysis
from posteriax import families as q
from posteriax import priors as p
from posteriax._internal.running_moments import mean_and_covariance
from posteriax.analysis import ProductMatrix
from posteriax.likelihoods import Categorical
from posteriax.methods import VI
from posteriax.posterior import VariationalPosterior
from posteriax.problem import Problem
from posteriax.studies.results import Json
from posteriax.studies.study import Cell
from posteriax.studies.workbench import Workbench
from posteriax.zoo import MLP

NAME = "product matrix"
SLOPE = 0.1  # of the leaky ReLU
ACTIVATIONS = {"linear": 1.0, "leaky ReLU": SLOPE, "ReLU": 0.0}  # slopes for negative values
CORRELATED = 0.05  # five standard errors of a correlation from 10,000 draws
CHUNK = 1000  # draws of the weights in memory


@dataclass(frozen=True)
class ProductMatrices:
    """Settings of this experiment."""

    data: str  # the images
    train: int = 0  # how many training images; 0 for all
    layers: tuple[int, ...] = (1, 5, 10)  # numbers L of layers in the product
    width: int = 16  # of the hidden layers
    epochs: int = 10
    batch_size: int = 64
    learning_rate: float = 1e-3  # of AMSGrad
    gradient_draws: int = 1  # of the weights, for each gradient
    draws: int = 10_000  # for the covariances


def cells(settings: ProductMatrices, seeds: int) -> list[Cell]:
    return [
        Cell({"experiment": NAME, "activation": activation, "layers": layers}, seed, cost=8)
        for seed in range(seeds)
        for activation in ACTIVATIONS
        for layers in settings.layers
        if activation != "ReLU" or layers > 1  # a single matrix has no activation within
    ]


def run(cell: Cell, settings: ProductMatrices, bench: Workbench) -> dict[str, Json]:
    """Fit one network and measure how the entries of its product matrix covary."""
    activation, layers = cell["activation"], cell["layers"]
    data = bench.load(settings.data)
    (x, y), (x_test, y_test) = data.train, data.test
    x, y = x[: settings.train or None], y[: settings.train or None]
    mean, scale = x.mean(), x.std()
    x, x_test = ((a.reshape(len(a), -1) - mean) / scale for a in (x, x_test))
    sizes = (x.shape[1], *[settings.width] * (layers + 1), len(data.classes))
    net = MLP(sizes, activation=FUNCTIONS[activation], key=jax.random.key(cell.seed))
    problem = Problem(net, Categorical(), p.Normal(scale=0.23))
    optimizer = optax.amsgrad(settings.learning_rate)
    method = VI(q.Normal(0.05), estimator="flipout", optimizer=optimizer, draws=settings.gradient_draws)
    run_length = {"epochs": settings.epochs, "batch_size": settings.batch_size}
    posterior = bench.fit_variational(problem, (x, y), method, key=cell.seed, **run_length)
    guesses = np.asarray(jax.vmap(posterior.mean)(x_test)).argmax(axis=1)
    result: dict[str, Json] = {
        "accuracy": (guesses == y_test).mean(),
        "training_nll": np.ravel(posterior.trace["nll_per_example"])[-100:].mean(),
    }
    sampled, switched_off = sampled_products(posterior, x_test[0], ACTIVATIONS[activation], settings.draws, cell.seed)
    result["switched_off"] = switched_off
    result["sampled_correlated"] = sampled.correlated_share(CORRELATED)
    product = sampled
    if activation == "linear":
        product = analysis.product_matrix(posterior, [f"layers/{i}/weight" for i in range(1, layers + 1)])
        result["difference"] = rms_difference(product, sampled)
    result["correlated"] = product.correlated_share(CORRELATED)
    result["outside_correlated"] = outside_correlated(product)
    if cell.seed == 0:
        result["correlation_percent"] = upper_triangle(product)
    return result


def identity(x: jax.Array) -> jax.Array:
    return x


def leaky_relu(x: jax.Array) -> jax.Array:
    return jax.nn.leaky_relu(x, SLOPE)


FUNCTIONS = {"linear": identity, "leaky ReLU": leaky_relu, "ReLU": jax.nn.relu}


def sampled_products(
    posterior: VariationalPosterior, x: np.ndarray, slope: float, draws: int, seed: int
) -> tuple[ProductMatrix, float]:
    """The moments of W_L D_(L-1) W_(L-1) ... D_1 W_1 at an input, for the hidden-to-hidden layers of a mean-field MLP,
    and the share of draws in which a layer between has negative values only.

    Weights are drawn with NumPy: it needs no compilation, and shares no code with the recursion that it is compared
    with. The first layer has 784 weights for every unit, whose sum is normal: only that is drawn.

    Args:
        posterior: of an `MLP` with `q.Normal`.
        x: the input.
        slope: of the activation for negative values; 1 for a linear network.
        draws: how many.
        seed: for NumPy's generator.
    """
    rng, moments, off = np.random.default_rng(seed), layer_moments(posterior), 0

    def draw(mean: np.ndarray, deviation: np.ndarray, count: int) -> np.ndarray:
        return mean + deviation * rng.standard_normal((count, *mean.shape), np.float32)

    def block(count: int) -> np.ndarray:
        weight, bias = moments[0]
        deviation = np.sqrt(np.square(x) @ np.square(weight[1]) + np.square(bias[1]))
        before, product = draw(x @ weight[0] + bias[0], deviation, count), None
        all_negative = np.zeros(count, bool)
        for weight, bias in moments[1:-1]:
            slopes = np.where(before > 0, 1.0, slope)
            all_negative |= (before <= 0).all(axis=1)
            matrix = draw(*weight, count)  # (draws, inputs, outputs)
            before = ((before * slopes)[:, None] @ matrix)[:, 0] + draw(*bias, count)
            product = matrix if product is None else product @ (slopes[:, :, None] * matrix)
        assert product is not None
        nonlocal off
        off += int(all_negative.sum())
        return product.swapaxes(1, 2)

    mean, covariance = mean_and_covariance(block(min(CHUNK, draws - start)) for start in range(0, draws, CHUNK))
    return ProductMatrix(mean, covariance.reshape(mean.shape * 2), draws), off / draws


LayerMoments = tuple[np.ndarray, np.ndarray]  # mean and standard deviation


def layer_moments(posterior: VariationalPosterior) -> list[tuple[LayerMoments, LayerMoments]]:
    """Moments of the weights, (inputs, outputs), and of the biases of every layer."""

    def moments(path: str) -> LayerMoments:
        params = posterior.variational[path]
        return np.asarray(params["mean"][0]), np.exp(np.asarray(params["log_scale"][0]))

    layers = sum(path.endswith("weight") for path in posterior.problem.leaf_names)
    return [(moments(f"layers/{i}/weight"), moments(f"layers/{i}/bias")) for i in range(layers)]


def rms_difference(product: ProductMatrix, other: ProductMatrix) -> float:
    """Root mean square of the difference in correlation over all pairs of entries."""
    size = product.mean.size
    total = np.square(product.correlation - other.correlation).sum()
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
