"""The dominant mode of a set of draws: those assigned to the heaviest component of a Gaussian mixture.

Mixtures with 1, 2, ... components are fitted in the space of the first principal components, and the Bayesian
information criterion chooses between them. In weight space a full covariance per component would have more parameters
than there are draws, and the criterion's penalty would decide alone. (Farquhar et al. 2020, section 6.1)
"""

from dataclasses import dataclass

import numpy as np

from posteriax._internal.checks import check_count
from posteriax._internal.plot_style import PALETTE, Figure, subplots


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
