"""The cost of mean-field: full and diagonal Gaussians fitted to the draws of a posterior's dominant mode.

    E_KL = KL(q_full || q_diag) = -1/2 log det(correlation matrix)
    E_W  = W2(p, q_diag) - W2(p, q_full)                p: the draws themselves

The dominant mode is the heaviest component of a Gaussian mixture. Mixtures with 1, 2, ... components are fitted in the
space of the first principal components, and the Bayesian information criterion chooses between them. In weight space a
full covariance per component would have more parameters than there are draws, and the criterion's penalty would decide
alone.

With finitely many draws both costs are positive even if the weights are independent: E_KL is about

    d (d - 1) / (4 (n - 1 - (2 d + 5) / 6))             d weights, n independent draws

so each is also computed for a *null*, the same draws with the dependence between weights removed, and the difference is
reported. (Farquhar et al. 2020, section 6.1)
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import jax
import numpy as np
from jax.typing import ArrayLike

from posteriax._internal.checks import check_choice, check_count
from posteriax._internal.memory import check_size
from posteriax._internal.plot_style import PALETTE, Figure, subplots
from posteriax.analysis.leaves import DrawnLeaf
from posteriax.posterior.draws import DrawsPosterior
from posteriax.posterior.posterior import Posterior

Null = Literal["shift", "permute"]
POINTS = 1000  # draws matched by the assignment, whose time is cubic in their number


@dataclass(frozen=True, eq=False)
class DominantMode:
    """The draws of the heaviest component.

    Args:
        members: indices of those draws, in order.
        components: number of components of the chosen mixture.
        bic: the criterion for 1, 2, ... components; smaller is better.
        dimensions: number of principal components used.
        explained: the share of the variance that they explain.
    """

    members: np.ndarray
    components: int
    bic: np.ndarray
    dimensions: int
    explained: float

    def plot(self) -> Figure:
        """The criterion by number of components; returns the figure."""
        figure, ((axis,),) = subplots(1, 1, 3.6, 2.8)
        axis.plot(np.arange(1, len(self.bic) + 1), self.bic, "o-", color=PALETTE[0])
        axis.axvline(self.components, color="0.7", linewidth=1, zorder=0)
        axis.set(xlabel="components of the mixture", ylabel="BIC", xticks=range(1, len(self.bic) + 1))
        return figure


def dominant_mode(draws: np.ndarray, most: int = 5, dimensions: int = 5, *, seed: int = 0) -> DominantMode:
    """Find the dominant mode.

    Args:
        draws: (n, d).
        most: the largest number of components to try.
        dimensions: number of principal components; reduced if the draws have fewer, or are too few for a covariance.
        seed: for the initialisation of the mixtures.

    >>> rng = np.random.default_rng(0)
    >>> draws = rng.normal(size=(300, 20)) + np.where(np.arange(300) < 200, 0.0, 9.0)[:, None]
    >>> mode = dominant_mode(draws)
    >>> mode.components, len(mode.members), int(mode.members.max())
    (2, 200, 199)
    """
    try:
        from sklearn.mixture import GaussianMixture
    except ImportError as error:
        raise ImportError("Gaussian mixtures need scikit-learn: pip install 'posteriax[analysis]'") from error
    n, d = draws.shape
    most, dimensions = check_count("most", most), check_count("dimensions", dimensions)
    if n < 4:
        raise ValueError(f"a mixture needs at least 4 draws, got {n}")
    kept = max(1, min(dimensions, d, n // 20))
    centred = draws - draws.mean(axis=0)
    # with fewer draws than weights this is n x n: nothing is quadratic in the number of weights
    left, values, _ = np.linalg.svd(centred, full_matrices=False)
    scores = left[:, :kept] * values[:kept]
    total = np.square(values).sum()
    if total == 0.0:
        raise ValueError("all draws are identical: there are no modes to find")
    models = []
    for components in range(1, most + 1):
        if n < 2 * components * (kept + 1):  # too few draws for that many covariances
            break
        models.append(GaussianMixture(components, n_init=3, random_state=seed, reg_covar=1e-6 * total / n).fit(scores))
    bic = np.array([model.bic(scores) for model in models])
    best = models[int(bic.argmin())]
    labels = best.predict(scores)
    heaviest = int(np.bincount(labels, minlength=best.n_components).argmax())
    share = float(np.square(values[:kept]).sum() / total)
    return DominantMode(np.flatnonzero(labels == heaviest), best.n_components, bic, kept, share)


class Interval(NamedTuple):
    """A mean over restarts and its 95 % interval (Student's t); the interval is NaN for one restart."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class MeanFieldCost:
    """The cost of a diagonal covariance, one value for every restart.

    Args:
        kl: E_KL, in nats; infinite if there are no more draws than weights.
        kl_null: the same with the dependence between weights removed.
        w: E_W, in the units of the weights.
        w_null: the same with the dependence between weights removed.
        weights: d.
        draws: n, in the dominant mode.
        modes: the dominant modes.
    """

    kl: np.ndarray
    kl_null: np.ndarray
    w: np.ndarray
    w_null: np.ndarray
    weights: int
    draws: np.ndarray
    modes: list[DominantMode] = field(repr=False)

    @property
    def expected_null(self) -> np.ndarray:
        """The expectation of `kl_null` for independent draws; a larger null shows their autocorrelation."""
        return np.array([expected_null(self.weights, n) for n in self.draws])

    @property
    def kl_excess(self) -> Interval:
        """E_KL minus its null."""
        with np.errstate(invalid="ignore"):  # infinity minus infinity is NaN
            return interval(self.kl - self.kl_null)

    @property
    def w_excess(self) -> Interval:
        """E_W minus its null."""
        return interval(self.w - self.w_null)

    def __str__(self) -> str:
        kl, w = self.kl_excess, self.w_excess
        return (
            f"{self.weights:,} weights, {len(self.kl)} restarts, {self.draws.mean():,.0f} draws of the dominant mode\n"
            f"E_KL {_describe(kl)} nats ({self.kl.mean():.4g} minus a null of {self.kl_null.mean():.4g})\n"
            f"E_W  {_describe(w)} ({self.w.mean():.4g} minus a null of {self.w_null.mean():.4g})"
        )

    def plot(self) -> Figure:
        """The values of each restart beside their null; returns the figure."""
        figure, (axes,) = subplots(1, 2, 3.4, 3.2)
        for axis, name, value, null in (
            (axes[0], "$E_{KL}$ (nats)", self.kl, self.kl_null),
            (axes[1], "$E_W$", self.w, self.w_null),
        ):
            for i, (label, values) in enumerate({"draws": value, "null": null}.items()):
                axis.scatter(np.full(len(values), i), values, s=24, color=PALETTE[i], label=label)
            for pair in zip(value, null, strict=True):
                axis.plot([0, 1], pair, color="0.8", linewidth=0.8, zorder=0)
            axis.set_xticks([0, 1], ["draws", "independent\nweights"])
            axis.set(xlim=(-0.5, 1.5), ylabel=name)
            axis.set_ylim(bottom=min(0.0, *value, *null))
        return figure


def mean_field_cost(
    posterior: Posterior | ArrayLike,
    *,
    points: int = POINTS,
    null: Null = "shift",
    most_components: int = 5,
    dimensions: int = 5,
    seed: int = 0,
) -> MeanFieldCost:
    """How much a diagonal covariance loses against a full one, on the dominant mode of every restart.

    Args:
        posterior: from a sampler, whose chains are the restarts; or draws, (restarts, n, d) or (n, d).
        points: maximum number of draws that E_W matches by exact assignment.
        null: how the dependence between weights is removed: "shift" rotates the draws of each weight by a different,
            evenly spaced lag, which keeps the autocorrelation of chains (and some dependence, if that reaches further
            than draws / weights steps); "permute" shuffles them, as "shift" does with more weights than draws.
        most_components: of the mixture that finds the dominant mode (:func:`px.analysis.dominant_mode`).
        dimensions: number of principal components it is fitted in.
        seed: for the shifts, the mixtures and the draws of the Gaussians.

    E_KL is infinite if there are no more draws than weights. E_W works for any number of weights: it never forms a
    weights x weights matrix.

    >>> rng = np.random.default_rng(0)
    >>> mixed = rng.normal(size=(3, 400, 4)) @ (np.eye(4) + 0.5)
    >>> cost = mean_field_cost(mixed, points=200)
    >>> cost.kl_excess.low > 0.1, bool((cost.kl_null < 0.05).all())
    (True, True)
    """
    points = check_count("points", points)
    check_choice("null", null, ("shift", "permute"))
    rows, weights = [], 0
    for i, draws in enumerate(_restarts(posterior)):
        rng, weights = np.random.default_rng([seed, i]), draws.shape[1]
        mode = dominant_mode(draws, most_components, dimensions, seed=seed)
        kept = draws[mode.members]
        noise = rng.standard_normal((min(points, len(kept)), weights))
        chosen = rng.choice(len(kept), len(noise), replace=False)
        independent = without_dependence(kept, null, rng)
        kl, kl_null = kl_cost(kept), kl_cost(independent)
        w, w_null = w_cost(kept, noise, chosen), w_cost(independent, noise, chosen)
        rows.append((kl, kl_null, w, w_null, mode))
    modes = [row[4] for row in rows]
    costs = np.array([row[:4] for row in rows]).T
    draws_in_mode = np.array([len(mode.members) for mode in modes])
    return MeanFieldCost(costs[0], costs[1], costs[2], costs[3], weights, draws_in_mode, modes)


def kl_cost(draws: np.ndarray) -> float:
    """-1/2 log det of the correlation matrix of the draws; infinite if it is singular.

    >>> kl_cost(np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]]))
    0.0
    """
    n, d = draws.shape
    if n <= d:  # the correlation matrix would be singular
        return float("inf")
    check_size(f"the correlations of {d:,} weights", d, "E_KL needs a smaller network")
    scale = draws.std(axis=0)
    if (scale == 0).any():
        return float("inf")
    standard = (draws - draws.mean(axis=0)) / scale
    sign, log_det = np.linalg.slogdet(standard.T @ standard / n)
    return float(abs(log_det) / 2) if sign > 0 else float("inf")


def w_cost(draws: np.ndarray, noise: np.ndarray, chosen: np.ndarray) -> float:
    """W2(p, q_diag) - W2(p, q_full), with the same noise for both Gaussians and the same draws to compare with.

    q_full is sampled with the symmetric square root of the covariance, applied through the singular vectors of the
    draws, so no weights x weights matrix is formed.
    """
    mean, n = draws.mean(axis=0), len(draws)
    _, values, directions = np.linalg.svd(draws - mean, full_matrices=False)
    full = mean + ((noise @ directions.T) * (values / np.sqrt(n - 1))) @ directions
    diagonal = mean + noise * draws.std(axis=0, ddof=1)
    points = draws[chosen]
    return wasserstein(points, diagonal) - wasserstein(points, full)


def wasserstein(first: np.ndarray, second: np.ndarray) -> float:
    """W2 of two empirical distributions with equally many points, by exact assignment.

        W2^2 = min over permutations s of mean_i |a_i - b_s(i)|^2

    Args:
        first: (n, d).
        second: (n, d).

    >>> points = np.array([[0.0], [1.0], [5.0]])
    >>> wasserstein(points, points[::-1] + 2.0)
    2.0
    """
    from scipy.optimize import linear_sum_assignment
    from scipy.spatial.distance import cdist

    if first.shape != second.shape or first.ndim != 2:
        raise ValueError(f"W2 needs two arrays of the same shape (n, d), got {first.shape} and {second.shape}")
    costs = cdist(first, second, "sqeuclidean")
    rows, columns = linear_sum_assignment(costs)
    return float(np.sqrt(costs[rows, columns].mean()))


def expected_null(weights: int, draws: int) -> float:
    """E[E_KL] for independent Gaussian weights and independent draws; infinite if there are too few draws.

    >>> round(expected_null(200, 2000), 2)
    5.15
    """
    denominator = draws - 1 - (2 * weights + 5) / 6
    return weights * (weights - 1) / (4 * denominator) if draws > weights else float("inf")


def without_dependence(draws: np.ndarray, null: Null, rng: np.random.Generator) -> np.ndarray:
    """The draws, with those of each weight in a different order."""
    n, d = draws.shape
    if null == "permute" or d > n:  # more weights than lags to shift by
        return rng.permuted(draws, axis=0)
    shifts = rng.permutation(np.arange(d) * n // d)  # as far apart as they can be
    return np.take_along_axis(draws, (np.arange(n)[:, None] + shifts) % n, axis=0)


def interval(values: np.ndarray, level: float = 0.95) -> Interval:
    """The mean of independent values and its Student-t interval."""
    from scipy.special import stdtrit

    if len(values) < 2:
        return Interval(float(values.mean()), float("nan"), float("nan"))
    with np.errstate(invalid="ignore"):
        half = stdtrit(len(values) - 1, 0.5 + level / 2) * values.std(ddof=1) / np.sqrt(len(values))
    return Interval(float(values.mean()), float(values.mean() - half), float(values.mean() + half))


def _restarts(posterior: Posterior | ArrayLike) -> Iterator[np.ndarray]:
    if isinstance(posterior, DrawsPosterior):
        stored = jax.tree.leaves(posterior.draws.network)
        chains, draws_per_chain = stored[0].shape[:2]
        restarts: Iterable[np.ndarray] = (
            np.concatenate([_chain(leaf, i).reshape(draws_per_chain, -1) for leaf in stored], axis=1)
            for i in range(chains)
        )
    elif isinstance(posterior, Posterior):
        raise TypeError(f"mean_field_cost needs draws, from a sampler or as an array; got {type(posterior).__name__}")
    else:
        given = np.asarray(posterior, np.float64)
        restarts = given[None] if given.ndim == 2 else given
    for draws in restarts:
        if draws.ndim != 2 or draws.shape[0] < 4 or draws.shape[1] < 2:
            raise ValueError(
                f"draws must be (restarts, n, d) with n of at least 4 and d of at least 2, got {draws.shape}"
            )
        if not np.isfinite(draws).all():
            raise ValueError("draws has non-finite values")
        yield draws


def _chain(leaf: DrawnLeaf, i: int) -> np.ndarray:
    """One chain's draws of a leaf, in memory or on disk."""
    return np.asarray(leaf[i, np.arange(leaf.shape[1])], np.float64)


def _describe(value: Interval) -> str:
    around = "" if np.isnan(value.low) else f" (95 %: {value.low:.4g} to {value.high:.4g})"
    return f"{value.mean:.4g}{around}"
