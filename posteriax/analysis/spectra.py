"""Spectra of a posterior's means and standard deviations as matrices.

    A = sum_r gamma_r u_r v_r'        explained by the first r: (gamma_1^2 + ... + gamma_r^2) / sum of all gamma^2

The standard deviations of trained mean-field posteriors are close to rank one or two; their means are not.
(Swiatkowski et al. 2020, section 2)
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from posteriax._internal.plot_style import PALETTE, Figure, heat_map, subplots
from posteriax.analysis.leaves import chosen_weights, leaf_moments
from posteriax.analysis.truncation import truncate_matrix
from posteriax.posterior.posterior import Posterior


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
