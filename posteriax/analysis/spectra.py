"""Spectra of a posterior's means and standard deviations as matrices, and what truncating them to a low rank costs.

    A = sum_r gamma_r u_r v_r'        explained by the first r: (gamma_1^2 + ... + gamma_r^2) / sum of all gamma^2
    truncated to rank k               A_k = max(0, sum_(r <= k) gamma_r u_r v_r')

The standard deviations of trained mean-field posteriors are close to rank one or two; their means are not. If
predictions survive truncation, the scales of an m x n matrix need only k (m + n) numbers. (Swiatkowski et al. 2020,
section 2 and table 2)
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteriax._internal.checks import KeyLike, check_count, check_data
from posteriax._internal.plot_style import PALETTE, Figure, heat_map, subplots
from posteriax.analysis.elbo import elbo
from posteriax.analysis.leaves import change_leaves, chosen_weights, leaf_moments, require_variational
from posteriax.data.batches import Data
from posteriax.evaluation.evaluate import evaluate
from posteriax.networks.leaf import Leaf
from posteriax.posterior.posterior import Posterior
from posteriax.posterior.variational import VariationalPosterior


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Means and standard deviations of one leaf as matrices, and their singular values.

    Args:
        mean: the matrix of means; the positions and input channels of a convolution kernel share one axis.
        scale: the matrix of standard deviations.
        mean_values: singular values of the means, largest first.
        scale_values: singular values of the standard deviations.
    """

    mean: np.ndarray
    scale: np.ndarray
    mean_values: np.ndarray
    scale_values: np.ndarray

    @property
    def mean_explained(self) -> np.ndarray:
        """The share of the squared means that each singular value explains."""
        return _shares(self.mean_values)

    @property
    def scale_explained(self) -> np.ndarray:
        """The share of the squared standard deviations that each singular value explains."""
        return _shares(self.scale_values)

    def approximation(self, k: int) -> np.ndarray:
        """The standard deviations truncated to rank k and clipped at 0, as :func:`px.analysis.truncate` does.

        For several members these are those of the mixture, which include the spread between members.
        """
        return np.asarray(truncate_matrix(jnp.asarray(self.scale), k))


@dataclass(frozen=True, eq=False)
class Spectra(Mapping[str, Spectrum]):
    """A spectrum for every leaf, by path."""

    leaves: dict[str, Spectrum]

    def __getitem__(self, name: str) -> Spectrum:
        return self.leaves[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.leaves)

    def __len__(self) -> int:
        return len(self.leaves)

    def plot(self, first: int = 10) -> Figure:
        """The share explained by the first singular values, by leaf; returns the figure."""
        figure, (axes,) = subplots(1, len(self), 2.7, 2.7, sharey=True)
        for axis, (name, spectrum) in zip(axes, self.leaves.items(), strict=True):
            for colour, label, shares in (
                (PALETTE[0], "standard deviations", spectrum.scale_explained),
                (PALETTE[3], "means", spectrum.mean_explained),
            ):
                shown = shares[:first]
                axis.plot(np.arange(1, len(shown) + 1), shown, "o-", color=colour, label=label, markersize=4)
            axis.set_title(f"{name} {spectrum.scale.shape}", fontsize="medium")
            axis.set(xlabel="singular value", ylim=(0, 1.03))
        axes[0].set_ylabel("share of the squares")
        axes[0].legend(frameon=False, fontsize="small")
        return figure

    def plot_approximations(self, ranks: Sequence[int] = (1, 2, 3)) -> Any:
        """The standard deviations of each leaf beside their approximations; returns the figure."""
        figure, axes = subplots(len(self), len(ranks) + 1, 2.5, 2.3)
        for row, (name, spectrum) in zip(axes, self.leaves.items(), strict=True):
            low, high = np.quantile(spectrum.scale, [0.01, 0.99])
            shown = [spectrum.scale, *(spectrum.approximation(k) for k in ranks)]
            titles = [name, *(f"rank {k}" for k in ranks)]
            for axis, values, title in zip(row, shown, titles, strict=True):
                image = heat_map(axis, values, title=title)
                image.set_clim(low, high)
                axis.set_xticks([])
                axis.set_yticks([])
            figure.colorbar(image, ax=row, label="standard deviation", shrink=0.9)
        return figure


def spectra(posterior: Posterior, leaves: str | Sequence[str] = "**") -> Spectra:
    """Singular values of the posterior means and standard deviations of every weight that a pattern matches.

    Args:
        posterior: from any method. Moments come from the family if it knows them, otherwise from draws.
        leaves: a pattern of leaves; biases are skipped.

    >>> import equinox as eqx, jax, posteriax as px
    >>> from posteriax import families as q
    >>> (x, y), _ = px.data.two_moons()
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical())
    >>> posterior = px.fit(problem, (x, y), px.VI(q.KTied(1)), steps=10, key=0)
    >>> spectrum = px.analysis.spectra(posterior)["layers/0/weight"]
    >>> bool(spectrum.scale_explained[0] > 0.999), len(spectrum.mean_values)
    (True, 2)
    """
    chosen = chosen_weights(posterior.problem, leaves)
    by_leaf = {}
    for leaf, moments in zip(chosen, leaf_moments(posterior, chosen), strict=True):
        mean, scale = (np.asarray(values).reshape(leaf.matrix_shape) for values in moments)
        values = (np.linalg.svd(matrix, compute_uv=False) for matrix in (mean, scale))
        by_leaf[leaf.path] = Spectrum(mean, scale, *values)
    return Spectra(by_leaf)


def _shares(values: np.ndarray) -> np.ndarray:
    squares = np.square(values)
    return squares / squares.sum() if squares.sum() > 0 else np.zeros_like(squares)


def truncate(posterior: Posterior, k: int, leaves: str = "**") -> VariationalPosterior:
    """The posterior with the standard deviations of each weight matrix truncated to rank k. Means are unchanged.

    Convolution kernels are treated as matrices of inputs (positions and channels) by output channels; biases are
    left alone.

    Args:
        posterior: from mean-field VI, or another family with independent Gaussian entries.
        k: the rank; at full rank nothing changes.
        leaves: a pattern of leaves to truncate.

    >>> import equinox as eqx, jax, posteriax as px
    >>> from posteriax import families as q
    >>> (x, y), _ = px.data.two_moons()
    >>> problem = px.Problem(eqx.nn.Linear(2, 2, key=jax.random.key(0)), px.Categorical())
    >>> posterior = px.fit(problem, (x, y), px.VI(q.Normal(), estimator="weight"), steps=10, key=0)
    >>> px.analysis.truncate(posterior, k=1).predict(x, draws=5).probs.shape
    (500, 2)
    """
    k = check_count("k", k)

    def change(leaf: Leaf, mean: jax.Array, scale: jax.Array) -> tuple[jax.Array, jax.Array]:
        matrices = scale.reshape(scale.shape[0], *leaf.matrix_shape)
        return mean, jax.vmap(lambda m: truncate_matrix(m, k))(matrices).reshape(scale.shape)

    return change_leaves(posterior, leaves, change)


def truncate_matrix(matrix: jax.Array, k: int) -> jax.Array:
    """The best approximation of rank k, with negative entries set to 0.

    >>> truncate_matrix(jnp.array([[1.0, 2.0], [2.0, 4.0]]), k=1).round(3).tolist()
    [[1.0, 2.0], [2.0, 4.0]]
    """
    left, values, right = jnp.linalg.svd(matrix, full_matrices=False)
    return jnp.maximum((left[:, :k] * values[:k]) @ right[:k], 0.0)


@dataclass(frozen=True, eq=False)
class TruncationTable:
    """One row for the trained posterior and one for each rank.

    Args:
        rows: by name ("trained", "rank 1", ...): "negative_elbo" per example in nats, if training data were given,
            and the scores of :func:`px.evaluate` on the test data.
        parameters: how many numbers the means and standard deviations of each row take.
    """

    rows: dict[str, dict[str, float]]
    parameters: dict[str, int]

    def __str__(self) -> str:
        columns = list(next(iter(self.rows.values())))
        names = [column.replace("_", " ") for column in columns]
        lines = ["  ".join(["posterior".ljust(10), *(n.rjust(14) for n in names), "parameters".rjust(12)])]
        for name, row in self.rows.items():
            cells = [f"{row[column]:.4g}".rjust(14) for column in columns]
            lines.append("  ".join([name.ljust(10), *cells, f"{self.parameters[name]:,}".rjust(12)]))
        return "\n".join(lines)

    def plot(self) -> Figure:
        """The test NLL of each row; returns the figure."""
        score = "nll"
        figure, ((axis,),) = subplots(1, 1, 4.0, 1.2 + 0.3 * len(self.rows))
        for position, (name, row) in enumerate(reversed(self.rows.items())):
            axis.barh(position, row[score], color=PALETTE[3] if name == "trained" else PALETTE[0], height=0.6)
            axis.text(row[score], position, f" {row[score]:.3g}", va="center", fontsize="small")
        axis.set_yticks(range(len(self.rows)), list(reversed(self.rows)))
        axis.set_xlabel("test NLL per example (nats)")
        axis.margins(x=0.15)
        return figure


def truncation_table(
    posterior: Posterior,
    test: Data,
    *,
    train: Data | None = None,
    ranks: Sequence[int] = (1, 2, 3),
    leaves: str = "**",
    draws: int = 100,
    key: KeyLike = 0,
) -> TruncationTable:
    """Evaluate a mean-field posterior and its truncations to low rank.

    Args:
        posterior: from VI, with independent Gaussian entries.
        test: ``(x, y)``.
        train: the training data, for the ELBO.
        ranks: the ranks to truncate to.
        leaves: a pattern of leaves to truncate.
        draws: number of draws for predictions and for the ELBO.
        key: for the draws; all rows share the same noise.

    >>> import equinox as eqx, jax, posteriax as px
    >>> from posteriax import families as q
    >>> train, test = px.data.two_moons()
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical())
    >>> posterior = px.fit(problem, train, px.VI(q.Normal()), steps=10, key=0)
    >>> table = px.analysis.truncation_table(posterior, test, train=train, ranks=(1,), draws=5)
    >>> list(table.rows), list(table.rows["rank 1"])[:3]
    (['trained', 'rank 1'], ['negative_elbo', 'accuracy', 'nll'])
    """
    trained = require_variational(posterior)
    examples = 1 if train is None else len(check_data(train)[1])
    posteriors = {"trained": trained} | {f"rank {k}": truncate(trained, k, leaves) for k in ranks}
    rows = {}
    for name, fitted in posteriors.items():
        row = {} if train is None else {"negative_elbo": -elbo(fitted, train, draws, key=key) / examples}
        rows[name] = row | evaluate(fitted.predict(test[0], draws, key=key), test[1])
    parameters = {"trained": trained.num_parameters} | {
        f"rank {k}": _parameters(trained, posteriors[f"rank {k}"], k) for k in ranks
    }
    return TruncationTable(rows, parameters)


def _parameters(trained: VariationalPosterior, truncated: VariationalPosterior, k: int) -> int:
    """Means, and k row and column factors in place of the standard deviations."""
    count = 0
    for name, params in trained.variational.items():
        leaf = trained.problem.leaf_infos[trained.problem.leaf_names.index(name)]
        if truncated.variational[name] is params:
            count += sum(a.size for a in params.values())
        else:
            rows, columns = leaf.matrix_shape
            count += trained.members * (rows * columns + min(k * (rows + columns), rows * columns))
    return count
