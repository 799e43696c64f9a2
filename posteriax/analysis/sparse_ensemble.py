"""Sparse ensembles: posteriors in which only the weights that matter are random.

Weights with |kappa| below a threshold are set to their mean, or to zero. Most weights of a variance layer can be
removed without changing its predictions: 98 % in Neklyudov et al. 2018, section 6.4; 90 % of a smaller one in
docs/gallery.md.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from posteriax._internal.checks import KeyLike, check_choice
from posteriax._internal.plot_style import PALETTE, Figure, subplots
from posteriax.analysis.kappa import Kappa
from posteriax.analysis.leaves import require_variational
from posteriax.data.batches import Inputs
from posteriax.families.family import DiagonalGaussian
from posteriax.families.sparse import SparseNormal
from posteriax.likelihoods.predictive import Predictive
from posteriax.posterior.posterior import Posterior
from posteriax.posterior.variational import VariationalPosterior


@dataclass(frozen=True, eq=False)
class SparseEnsemble:
    """A posterior with few random weights, and what that saves.

    Args:
        posterior: draws, predicts and saves like any other; :func:`px.load` reads it back.
        kept: number of random weights in each sparse leaf, over all members.
        weights: number of weights before.
        dense_numbers: how many numbers those leaves took before.
    """

    posterior: VariationalPosterior
    kept: dict[str, int]
    weights: dict[str, int]
    dense_numbers: int

    @property
    def removed(self) -> float:
        """The share of the weights in those leaves that are no longer random."""
        return 1.0 - sum(self.kept.values()) / sum(self.weights.values())

    @property
    def compression(self) -> float:
        """How many times fewer numbers the sparse leaves take, counting the indices of kept weights."""
        sparse_numbers = sum(a.size for name in self.kept for a in self.posterior.variational[name].values())
        return self.dense_numbers / sparse_numbers

    def predict(self, x: Inputs, draws: int | None = None, *, reduce: bool = False, key: KeyLike = 0) -> Predictive:
        """As :meth:`px.posterior.Posterior.predict`."""
        return self.posterior.predict(x, draws, reduce=reduce, key=key)

    def save(self, path: str | Path) -> None:
        """As :meth:`px.posterior.Posterior.save`; only the remaining weights are written."""
        self.posterior.save(path)

    def plot(self) -> Figure:
        """The share of random weights by leaf; returns the figure."""
        figure, ((axis,),) = subplots(1, 1, 4.6, 1.0 + 0.35 * len(self.kept))
        for position, (name, kept) in enumerate(reversed(self.kept.items())):
            axis.barh(position, kept / self.weights[name], color=PALETTE[0], height=0.6)
            axis.text(kept / self.weights[name], position, f" {kept:,} of {self.weights[name]:,}", va="center")
        axis.set_yticks(range(len(self.kept)), list(reversed(self.kept)))
        axis.set(xlabel="share of weights that are random", xlim=(0, 1.4))
        return figure

    def __str__(self) -> str:
        lines = [f"{name}: {kept:,} of {self.weights[name]:,} weights are random" for name, kept in self.kept.items()]
        return "\n".join([*lines, f"{self.removed:.1%} removed, {self.compression:.1f} times fewer numbers"])


def sparse_ensemble(
    posterior: Posterior, kappa: Kappa, threshold: float, rest: Literal["zero", "mean"] = "zero"
) -> SparseEnsemble:
    """Fix all weights whose |kappa| is below a threshold.

    Args:
        posterior: from VI, with independent Gaussian entries in the leaves of `kappa`.
        kappa: of the same posterior.
        threshold: for example ``kappa.threshold(keep=0.02)``; a leaf without any weight above it is fixed entirely.
        rest: the value of the others: "zero", or their "mean".

    >>> import equinox as eqx, jax, posteriax as px
    >>> from posteriax import families as q
    >>> (x, y), _ = px.data.two_moons()
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 32, 1, key=jax.random.key(0)), px.Categorical())
    >>> posterior = px.fit(problem, (x, y), px.VI(q.Normal()), steps=10, key=0)
    >>> kappa = px.analysis.kappa(posterior, (x, y))
    >>> sparse = px.analysis.sparse_ensemble(posterior, kappa, kappa.threshold(keep=0.25))
    >>> sparse.removed, sparse.predict(x, draws=10).probs.shape
    (0.75, (500, 2))
    """
    fitted = require_variational(posterior)
    check_choice("rest", rest, ("zero", "mean"))
    if not threshold >= 0:
        raise ValueError(f"threshold must be a number of at least 0, got {threshold!r}")
    families, variational = dict(fitted.families), dict(fitted.variational)
    kept, weights = {}, {}
    for name, values in kappa.items():
        family = families.get(name)
        if not isinstance(family, DiagonalGaussian):
            raise TypeError(f"leaf {name} must have independent Gaussian entries, but has {family!r}")
        mean, scale = (np.asarray(a) for a in jax.vmap(family.moments)(variational[name]))
        if mean.shape != values.shape:
            raise ValueError(f"kappa of {name} has shape {values.shape}, but the posterior's leaf has {mean.shape}")
        chosen = np.abs(values) >= threshold
        families[name] = SparseNormal(mean.shape[1:])
        variational[name] = _sparse(mean, scale, chosen, keep_rest=rest == "mean")
        kept[name], weights[name] = int(chosen.sum()), chosen.size
    made = replace(fitted, families=families, variational=variational)
    dense = sum(a.size for name in kept for a in fitted.variational[name].values())
    return SparseEnsemble(made, kept, weights, dense)


def _sparse(mean: np.ndarray, scale: np.ndarray, chosen: np.ndarray, *, keep_rest: bool) -> dict[str, jax.Array]:
    members, size = len(mean), mean[0].size
    kept_of_member = [np.flatnonzero(mask) for mask in chosen]
    room = max(1, *(len(kept) for kept in kept_of_member))
    index = np.full((members, room), size, np.int32)  # beyond the end: unused
    values = {"mean": np.zeros((members, room), mean.dtype), "log_scale": np.zeros((members, room), mean.dtype)}
    tiny = np.finfo(scale.dtype).tiny
    for m, kept in enumerate(kept_of_member):
        index[m, : len(kept)] = kept
        values["mean"][m, : len(kept)] = mean[m].reshape(-1)[kept]
        values["log_scale"][m, : len(kept)] = np.log(np.maximum(scale[m].reshape(-1)[kept], tiny))
    parameters = {"index": index, **values} | ({"rest": mean} if keep_rest else {})
    return {name: jnp.asarray(value) for name, value in parameters.items()}
