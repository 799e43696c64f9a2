"""Product matrices: a stack of linear layers with independent weights as one random matrix.

    M = A B C ...        y = M x

Even if the entries of each layer are independent, those of the product are not: with two layers, entries that share a
row or a column are correlated; with three, all are. For M' = M W, with W independent of M, means w, variances omega,

    E m'_ab = sum_i mu_ai w_ib
    Cov(m'_ab, m'_cd) = sum_ij S[ai, cj] w_ib w_jd + [b = d] sum_i omega_ib (S[ai, ci] + mu_ai mu_ci)

for any distribution of W. If the entries of W have a covariance Omega, the second term is
sum_ij Omega[ib, jd] (S[ai, cj] + mu_ai mu_cj). (Farquhar et al. 2020, section 3 and appendix D.1)
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from posteriax._internal.checks import KeyLike, as_key, check_count
from posteriax._internal.memory import check_size
from posteriax._internal.plot_style import Axes, Figure, heat_map, subplots
from posteriax._internal.running_moments import mean_and_covariance
from posteriax.analysis.leaves import chosen_weights, chunks_of_draws
from posteriax.networks.leaf import Leaf
from posteriax.networks.network import Params
from posteriax.posterior.posterior import Posterior
from posteriax.posterior.variational import VariationalPosterior

SMALLER = "choose narrower layers"


class LayerMoments(NamedTuple):
    """The moments of one random matrix.

    Args:
        mean: (rows, columns).
        variance: of each entry, if they are independent.
        covariance: (rows, columns, rows, columns), if they are not.
    """

    mean: np.ndarray
    variance: np.ndarray | None = None
    covariance: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class ProductMatrix:
    """The first two moments of a random matrix M, y = M x.

    Args:
        mean: (outputs, inputs).
        covariance: Cov(m_ab, m_cd), (outputs, inputs, outputs, inputs).
        draws: number of draws they were estimated from; None if exact.
    """

    mean: np.ndarray
    covariance: np.ndarray
    draws: int | None = None

    @property
    def correlation(self) -> np.ndarray:
        """Correlations between all entries in row-major order, as a square matrix; 0 for an entry that is constant."""
        size = self.mean.size
        flat = self.covariance.reshape(size, size)
        scale = np.sqrt(np.diag(flat))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.nan_to_num(flat / scale[:, None] / scale, nan=0.0, posinf=0.0, neginf=0.0)

    @property
    def outside_share(self) -> float:
        """The share of the absolute covariance between entries that share neither a row nor a column.

        It is 0 for one or two layers with independent entries.
        """
        outputs, inputs = map(np.arange, self.mean.shape)
        size = np.abs(self.covariance)
        between = size.sum() - np.einsum("abab->", size)
        size[outputs, :, outputs, :] = 0.0
        size[:, inputs, :, inputs] = 0.0
        return float(size.sum() / between) if between > 0 else 0.0

    def correlated_share(self, threshold: float = 0.05) -> float:
        """The share of pairs of entries whose absolute correlation exceeds the threshold."""
        size = self.mean.size
        beyond = (np.abs(self.correlation) > threshold).sum() - (np.diag(self.correlation) > threshold).sum()
        return float(beyond / max(size * (size - 1), 1))

    def plot(self, axis: "Axes | None" = None, *, limit: float = 1.0) -> Figure:
        """A heat map of the correlations, without the diagonal; returns the figure."""
        figure, axis = (cast(Figure, axis.figure), axis) if axis is not None else _single_axis()
        shown = self.correlation
        np.fill_diagonal(shown, 0.0)
        image = heat_map(axis, shown, limit=limit, title=f"{self.outside_share:.0%} outside rows and columns")
        axis.set_aspect("equal")
        axis.set(xlabel="entry of the product matrix, row by row", ylabel="entry")
        figure.colorbar(image, ax=axis, label="correlation", shrink=0.8)
        return figure


def product_of(layers: Sequence[LayerMoments | tuple[ArrayLike, ArrayLike]]) -> ProductMatrix:
    """Mean and covariance of the product of independent random matrices, exactly.

    Args:
        layers: the moments of A, B, C, ... in M = A B C ...; a pair is (mean, variance) of independent entries.

    >>> ones = np.ones((2, 2))
    >>> two, three = (product_of([(ones, 0.1 * ones)] * n) for n in (2, 3))
    >>> float(two.covariance[0, 0, 1, 1]), round(float(three.covariance[0, 0, 1, 1]), 6)
    (0.0, 0.4)
    """
    moments = [_as_moments(layer) for layer in layers]
    if not moments:
        raise ValueError("layers is empty")
    for left, right in itertools.pairwise(moments):
        if left.mean.shape[1] != right.mean.shape[0]:
            raise ValueError(f"shapes {left.mean.shape} and {right.mean.shape} cannot be multiplied")
    rows, columns = moments[0].mean.shape[0], moments[-1].mean.shape[1]
    inner = [layer.mean.shape[1] for layer in moments[:-1]]
    # from the left, products have the rows of the first factor; from the right, the columns of the last
    from_left = rows <= columns
    peak = max(min(rows, columns) * max(inner, default=0), rows * columns)
    check_size(f"the covariance of a product with {peak:,} entries", peak, SMALLER)
    if not from_left:
        turned = _multiply([_turned(layer) for layer in reversed(moments)])
        return ProductMatrix(turned.mean.T, turned.covariance.transpose(1, 0, 3, 2))  # type: ignore[union-attr]
    product = _multiply(moments)
    return ProductMatrix(product.mean, product.covariance)  # type: ignore[arg-type]


def product_matrix(posterior: Posterior, leaves: str | Sequence[str]) -> ProductMatrix:
    """The exact moments of the product of a posterior's weight matrices, ignoring biases and activations.

    Args:
        posterior: from VI, with families that know the variances of independent entries, or the covariance within a
            leaf (MatrixNormal, FullCovariance and LowRank over leaves); several members form a mixture.
        leaves: the paths of the matrices from input to output, or a pattern.

    >>> import equinox as eqx, jax, posteriax as px
    >>> from posteriax import families as q
    >>> (x, y), _ = px.data.two_moons()
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 3, 2, key=jax.random.key(0)), px.Categorical())
    >>> posterior = px.fit(problem, (x, y), px.VI(q.Normal()), steps=10, key=0)
    >>> product = px.analysis.product_matrix(posterior, "layers/*/weight")
    >>> product.mean.shape, product.covariance.shape, product.outside_share > 0
    ((2, 2), (2, 2, 2, 2), True)
    """
    if not isinstance(posterior, VariationalPosterior):
        raise TypeError(
            f"exact moments need a variational posterior (px.VI), got {type(posterior).__name__}: use "
            f"px.analysis.sampled_product_matrix"
        )
    chain = _chain(posterior, leaves)
    members = [
        product_of([_layer(posterior, leaf, member) for leaf in reversed(chain)]) for member in range(posterior.members)
    ]
    mean = np.mean([member.mean for member in members], axis=0)
    covariance = members[0].covariance / len(members)
    for member in members[1:]:
        covariance += member.covariance / len(members)
    if len(members) > 1:  # a mixture: the spread between members counts too
        for member in members:
            shift = member.mean - mean
            covariance += np.multiply.outer(shift, shift) / len(members)
    return ProductMatrix(mean, covariance)


def sampled_product_matrix(
    posterior: Posterior, leaves: str | Sequence[str], draws: int = 10_000, *, key: KeyLike = 0
) -> ProductMatrix:
    """The same, estimated from draws: for any posterior, however its layers depend on each other.

    Args:
        posterior: from any method.
        leaves: the paths of the matrices from input to output, or a pattern.
        draws: number of draws; at most those stored.
        key: for the draws.

    >>> import equinox as eqx, jax, posteriax as px
    >>> (x, y), _ = px.data.two_moons()
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 3, 2, key=jax.random.key(0)), px.Categorical())
    >>> posterior = px.fit(problem, (x, y), px.HMC(warmup=5), draws=10, key=0)
    >>> px.analysis.sampled_product_matrix(posterior, "layers/*/weight").draws
    10
    """
    chain, key = _chain(posterior, leaves), as_key(key)
    rows, columns = _turned_shape(chain[-1])[0], _turned_shape(chain[0])[1]
    check_size(f"the covariance of a product with {rows * columns:,} entries", rows * columns, SMALLER)
    total = min(check_count("draws", draws), posterior.support or draws)
    names = tuple(posterior.problem.leaf_names)
    products = (
        np.asarray(_products(tuple(chain), names, chunk.network)) for chunk in chunks_of_draws(posterior, key, total)
    )
    mean, covariance = mean_and_covariance(products)
    return ProductMatrix(mean, covariance.reshape((rows, columns) * 2), total)


@partial(jax.jit, static_argnums=(0, 1))
def _products(chain: tuple[Leaf, ...], names: tuple[str, ...], params: Params) -> jax.Array:
    leaves = jax.tree.leaves(params)
    product = None
    for leaf in chain:
        matrix = _matrix(leaves[names.index(leaf.path)], leaf)
        product = matrix if product is None else jnp.matmul(matrix, product, precision="highest")
    assert product is not None
    return product


def _matrix(values: jax.Array, leaf: Leaf) -> jax.Array:
    """A leaf, or draws of it, as matrices of outputs by inputs."""
    return values if leaf.outputs_axis == 0 else values.swapaxes(-1, -2)


def _turned_shape(leaf: Leaf) -> tuple[int, ...]:
    return leaf.shape if leaf.outputs_axis == 0 else leaf.shape[::-1]


def _chain(posterior: Posterior, leaves: str | Sequence[str]) -> list[Leaf]:
    chain = chosen_weights(posterior.problem, leaves)
    for leaf in chain:
        if len(leaf.shape) != 2:
            raise ValueError(f"leaf {leaf.path} {leaf.shape} is not a matrix: product matrices are for dense layers")
    for first, second in itertools.pairwise(chain):
        outputs, inputs = _turned_shape(first), _turned_shape(second)
        if outputs[0] != inputs[1]:
            raise ValueError(
                f"{first.path} has {outputs[0]} outputs, but {second.path} takes {inputs[1]} inputs: pass leaves= as a "
                f"list of paths from input to output"
            )
    return chain


def _layer(posterior: VariationalPosterior, leaf: Leaf, member: int) -> LayerMoments:
    family = posterior.families[leaf.path]
    if family.joint or family.components:
        raise TypeError(f"the layers of {family!r} depend on each other: use px.analysis.sampled_product_matrix")
    params = jax.tree.map(lambda a: a[member], posterior.variational[leaf.path])
    mean = np.asarray(_matrix(family.mean(params), leaf), np.float64)
    try:
        if family.independent:
            return LayerMoments(mean, np.asarray(_matrix(family.variance(params), leaf), np.float64))
        check_size(f"the covariance of {leaf.path} {leaf.shape}", mean.size, SMALLER)
        covariance = np.asarray(family.covariance(params), np.float64).reshape(leaf.shape * 2)
    except NotImplementedError as error:
        raise TypeError(f"{error}: use px.analysis.sampled_product_matrix") from error
    turned = covariance if leaf.outputs_axis == 0 else covariance.transpose(1, 0, 3, 2)
    return LayerMoments(mean, covariance=turned)


def _as_moments(layer: LayerMoments | tuple[ArrayLike, ArrayLike]) -> LayerMoments:
    filled = LayerMoments(*(None if value is None else np.asarray(value, np.float64) for value in layer))  # type: ignore[arg-type]
    mean = filled.mean
    given = [value for value in filled[1:] if value is not None]
    if mean.ndim != 2 or len(given) != 1 or given[0].shape not in (mean.shape, mean.shape * 2):
        raise ValueError(
            f"a layer is a mean (rows, columns) with either a variance of that shape or a covariance (rows, columns, "
            f"rows, columns), got mean {mean.shape} and {[value.shape for value in given]}"
        )
    return filled


def _turned(layer: LayerMoments) -> LayerMoments:
    covariance = None if layer.covariance is None else layer.covariance.transpose(1, 0, 3, 2)
    return LayerMoments(layer.mean.T, None if layer.variance is None else layer.variance.T, covariance)


def _multiply(layers: list[LayerMoments]) -> LayerMoments:
    """From the left, one layer at a time."""
    mean, covariance = layers[0].mean, _covariance(layers[0])
    for layer in layers[1:]:
        carried = np.einsum("aicj,ib,jd->abcd", covariance, layer.mean, layer.mean, optimize=True)
        if layer.variance is not None:
            second = np.einsum("aici->aci", covariance) + mean[:, None, :] * mean
            columns = np.arange(layer.mean.shape[1])
            # with two index arrays, NumPy puts the indexed axis first
            carried[:, columns, :, columns] += np.moveaxis(second @ layer.variance, -1, 0)
        else:
            assert layer.covariance is not None
            second = covariance + np.multiply.outer(mean, mean)
            carried += np.einsum("ibjd,aicj->abcd", layer.covariance, second, optimize=True)
        mean, covariance = mean @ layer.mean, carried
    return LayerMoments(mean, covariance=covariance)


def _covariance(layer: LayerMoments) -> np.ndarray:
    if layer.covariance is not None:
        return layer.covariance
    assert layer.variance is not None
    return np.diag(layer.variance.reshape(-1)).reshape(layer.mean.shape * 2)


def _single_axis() -> tuple[Figure, Axes]:
    figure, ((axis,),) = subplots(1, 1, 4.8, 4.2)
    return figure, axis
