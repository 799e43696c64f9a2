"""kappa: how much the noise of each weight costs the likelihood.

    kappa = sigma^2 d2(-log p(D | w)) / dw^2      at the posterior's mean, summed over the data, in nats

To second order, the noise of a weight costs half its kappa: weights with a small kappa can be fixed or removed. The
phase transition of variance networks begins when weights with kappa above 10^1.5 appear. (Neklyudov et al. 2018,
section 5, eq. 16)
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from posteriax._internal.plot_style import PALETTE, subplots
from posteriax.analysis.chosen_leaves import chosen_weights
from posteriax.analysis.curvature import curvature_diagonal
from posteriax.analysis.variational_leaves import mean_of, require_variational
from posteriax.posterior import Posterior

SMALLEST = 1e-25  # plotted in place of 0


@dataclass(frozen=True, eq=False)
class Kappa(Mapping[str, np.ndarray]):
    """kappa of every weight, by leaf: (members, ...) in the leaf's shape.

    Negative where the log-likelihood is convex in the weight.
    """

    leaves: dict[str, np.ndarray]

    def __getitem__(self, name: str) -> np.ndarray:
        return self.leaves[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.leaves)

    def __len__(self) -> int:
        return len(self.leaves)

    def threshold(self, keep: float) -> float:
        """The |kappa| that a share `keep` of all weights reaches; fewer weights, if the others have a kappa of 0."""
        if not 0.0 < keep <= 1.0:
            raise ValueError(f"keep must lie in (0, 1], got {keep}")
        values = np.concatenate([np.abs(own).reshape(-1) for own in self.leaves.values()])
        if keep == 1.0:
            return 0.0
        positive = values[values > 0]
        smallest = positive.min() if positive.size else np.inf
        return float(max(np.quantile(values, 1.0 - keep, method="higher"), smallest))

    def plot(self, threshold: float | None = None) -> Any:
        """Histograms of log10 |kappa| by leaf; returns the figure. Zeros are omitted, and counted in the legend."""
        figure, ((axis,),) = subplots(1, 1, 5.0, 3.2)
        logs = {name: np.log10(np.maximum(np.abs(own).reshape(-1), SMALLEST)) for name, own in self.leaves.items()}
        shown = {name: own[own > np.log10(SMALLEST)] for name, own in logs.items()}
        everything = np.concatenate(list(shown.values()))
        bins = np.linspace(everything.min(), everything.max() + 1e-9, 61) if everything.size else 10
        for i, (name, own) in enumerate(shown.items()):
            zeros = len(logs[name]) - len(own)
            label = name + (f" ({zeros:,} of {len(logs[name]):,} are 0)" if zeros else "")
            axis.hist(own, bins=bins, histtype="stepfilled", alpha=0.5, color=PALETTE[i % len(PALETTE)], label=label)
        if threshold is not None:
            axis.axvline(np.log10(threshold), color="0.2", linewidth=1)
            axis.text(np.log10(threshold), axis.get_ylim()[1], " threshold", va="top", fontsize="small")
        axis.set(xlabel="log10 |κ|", ylabel="weights")
        axis.legend(frameon=False, fontsize="small")
        return figure


def kappa(posterior: Posterior, data: Any, leaves: str | Sequence[str] = "**") -> Kappa:
    """kappa of every weight that a pattern matches.

    Args:
        posterior: from VI, with families whose variances are known.
        data: ``(x, y)``: the training data, or part of it.
        leaves: a pattern of leaves; biases are skipped.

    >>> import equinox as eqx, jax, posteriax as px
    >>> from posteriax import families as q
    >>> (x, y), _ = px.data.two_moons()
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical())
    >>> posterior = px.fit(problem, (x, y), px.VI(q.Normal()), steps=10, key=0)
    >>> px.analysis.kappa(posterior, (x, y))["layers/0/weight"].shape
    (1, 8, 2)
    """
    own = require_variational(posterior)
    chosen = chosen_weights(own.problem, leaves)
    found = {}
    for leaf in chosen:
        family = own.families[leaf.path]
        if family.joint or family.components or leaf.path not in own.variational:
            raise TypeError(f"kappa needs the variance of each weight, which {family!r} does not have")
        try:
            variance = np.asarray(jax.vmap(family.variance)(own.variational[leaf.path]), np.float64)
        except NotImplementedError as error:
            raise TypeError(f"kappa needs the variance of each weight: {error}") from error
        each = [curvature_diagonal(own.problem, mean_of(own, m), data, leaf) for m in range(own.members)]
        found[leaf.path] = variance * np.stack(each)
    return Kappa(found)
