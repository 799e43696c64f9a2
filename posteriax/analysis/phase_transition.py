"""Where a variance network keeps its information: in its means or in its variances, and when it moves between them.

As the noise of a multiplicative posterior grows, the network at its mean weights is at first as accurate as the average
over draws. Then its accuracy drops to chance, while that of the average is unaffected: a phase transition. Two
ablations of a fitted posterior show where its information is: without the means, and with the variances shuffled.
(Neklyudov et al. 2018, section 4.1)
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteriax._internal.checks import KeyLike, as_key, check_count, check_data
from posteriax._internal.plot_style import PALETTE, Figure, subplots
from posteriax.analysis.leaves import at_mean, change_leaves
from posteriax.data.batches import Data
from posteriax.families.family import DiagonalGaussian
from posteriax.networks.leaf import Leaf
from posteriax.posterior.posterior import Posterior
from posteriax.posterior.variational import VariationalPosterior

NAMES = ("stochastic_accuracy", "deterministic_accuracy", "ensemble_accuracy", "log_alpha", "chance_accuracy")


@dataclass(frozen=True, eq=False)
class PhaseTransition:
    """Accuracies along a run.

    Args:
        steps: at which they were measured.
        stochastic: mean accuracy of single draws.
        deterministic: accuracy at the posterior mean weights.
        ensemble: accuracy of the average over draws.
        log_alpha: the median of log(variance / mean^2) over all weights with a nonzero mean; NaN if there are none.
        chance: accuracy of always predicting the most common class.
    """

    steps: np.ndarray
    stochastic: np.ndarray
    deterministic: np.ndarray
    ensemble: np.ndarray
    log_alpha: np.ndarray
    chance: float

    @property
    def transition(self) -> int | None:
        """The first step after which the mean weights stay below half of the ensemble's accuracy above chance.

        None if there was no transition.
        """
        known = self.ensemble - self.chance
        lost = (known > 0) & (self.deterministic - self.chance < 0.5 * known)
        after = np.flatnonzero(~lost)
        first = after[-1] + 1 if len(after) else 0
        return int(self.steps[first]) if first < len(lost) else None

    def plot(self) -> Figure:
        """The accuracies along the run, with log alpha below; returns the figure."""
        rows = 2 if np.isfinite(self.log_alpha).any() else 1
        figure, axes = subplots(rows, 1, 5.4, 2.6, sharex=True)
        top = axes[0, 0]
        for colour, style, name in ((2, "-", "ensemble"), (0, "--", "stochastic"), (3, ":", "deterministic")):
            top.plot(self.steps, getattr(self, name), style, color=PALETTE[colour], label=name)
        top.set(ylabel="accuracy", ylim=(0, 1.02))
        top.legend(frameon=False, fontsize="small", loc="lower left")
        if rows == 2:
            axes[1, 0].plot(self.steps, self.log_alpha, color="0.3")
            axes[1, 0].set_ylabel("median log alpha")
        for axis in axes[:, 0]:
            if self.transition is not None:
                axis.axvline(self.transition, color="0.7", linewidth=1, zorder=0)
        axes[-1, 0].set_xlabel("step")
        return figure


def accuracies(test: Data, draws: int = 10, *, key: KeyLike = 0) -> Callable[[Posterior], dict[str, float]]:
    """A function for ``px.run.Watch``: stochastic, deterministic and ensemble accuracy on test data.

    Args:
        test: ``(x, y)``, with class labels.
        draws: number of draws per prediction.
        key: for the draws.

    >>> import equinox as eqx, jax, posteriax as px
    >>> from posteriax import families as q, priors as p
    >>> train, test = px.data.two_moons()
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical(), prior=p.LogUniform())
    >>> watch = px.run.Watch(px.analysis.accuracies(test), every=10)
    >>> posterior = px.fit(problem, train, px.VI(q.MultiplicativeNormal("layer")), steps=20, key=0, watch=watch)
    >>> px.analysis.phase_transition(posterior).ensemble.shape
    (2,)
    """
    x, y = check_data(test)
    check_count("draws", draws)

    def measure(posterior: Posterior) -> dict[str, float]:
        predictive: Any = posterior.predict(x, draws, key=key)
        labels = np.asarray(predictive.check(y))
        log_probs = predictive.log_probs_per_draw
        chosen = np.asarray(log_probs).argmax(axis=-1)
        fixed: Any = at_mean(posterior).predict(x)
        values = (
            (chosen == labels).mean(),
            (fixed.probs.argmax(axis=-1) == labels).mean(),
            (predictive.probs.argmax(axis=-1) == labels).mean(),
            _log_alpha(posterior),
            np.unique(labels, return_counts=True)[1].max() / labels.size,
        )
        return dict(zip(NAMES, map(float, values), strict=True))

    return measure


def phase_transition(posterior: Posterior) -> PhaseTransition:
    """The accuracies that a run with ``watch=px.run.Watch(px.analysis.accuracies(test), every=...)`` recorded.

    Raises:
        ValueError: if the run recorded none.

    >>> import equinox as eqx, jax, posteriax as px
    >>> train, test = px.data.two_moons()
    >>> problem = px.Problem(eqx.nn.Linear(2, 2, key=jax.random.key(0)), px.Categorical())
    >>> watch = px.run.Watch(px.analysis.accuracies(test), every=15)
    >>> phases = px.analysis.phase_transition(px.fit(problem, train, px.MAP(), steps=30, key=0, watch=watch))
    >>> phases.steps.tolist(), bool((phases.deterministic == phases.ensemble).all())
    ([15, 30], True)
    """
    trace = posterior.trace
    missing = [name for name in ("watched_step", *NAMES) if name not in trace]
    if missing:
        raise ValueError(
            "this run recorded no accuracies: fit with watch=px.run.Watch(px.analysis.accuracies(test), every=)"
        )
    stochastic, deterministic, ensemble, log_alpha, chance = (np.asarray(trace[name]) for name in NAMES)
    steps = np.asarray(trace["watched_step"])
    return PhaseTransition(steps, stochastic, deterministic, ensemble, log_alpha, float(chance[-1]))


def _log_alpha(posterior: Posterior) -> float:
    """The median of log(variance / mean^2) over all weights with independent Gaussian entries."""
    if not isinstance(posterior, VariationalPosterior):
        return float("nan")
    log_alphas = []
    for leaf in posterior.problem.leaf_infos:
        family = posterior.families[leaf.path]
        if isinstance(family, DiagonalGaussian) and not leaf.is_bias:
            mean, scale = (
                np.asarray(a, np.float64) for a in jax.vmap(family.moments)(posterior.variational[leaf.path])
            )
            nonzero = mean != 0
            log_alphas.append(2 * np.log(scale[nonzero] / np.abs(mean[nonzero])))
    values = np.concatenate(log_alphas) if log_alphas else np.zeros(0)
    return float(np.median(values)) if values.size else float("nan")


def zero_mean(posterior: Posterior, leaves: str = "**") -> VariationalPosterior:
    """The posterior with the means of its weights set to 0; biases keep theirs.

    If predictions stay as good, those leaves store all they know in their variances.

    Args:
        posterior: of VI, with independent Gaussian entries.
        leaves: the pattern of leaves.

    >>> import equinox as eqx, jax, posteriax as px
    >>> from posteriax import families as q
    >>> (x, y), _ = px.data.two_moons()
    >>> problem = px.Problem(eqx.nn.Linear(2, 2, key=jax.random.key(0)), px.Categorical())
    >>> posterior = px.fit(problem, (x, y), px.VI(q.Normal(), estimator="weight"), steps=10, key=0)
    >>> float(abs(px.analysis.zero_mean(posterior, "weight").mean.weight).max())
    0.0
    """
    return change_leaves(posterior, leaves, lambda _, mean, scale: (jnp.zeros_like(mean), scale))


def permute(posterior: Posterior, leaves: str = "**", *, key: KeyLike = 0) -> VariationalPosterior:
    """The posterior with the standard deviations of every weight shuffled within its leaf; the means stay.

    If predictions become useless, those leaves stored their information in their variances.

    Args:
        posterior: of VI, with independent Gaussian entries.
        leaves: the pattern of leaves.
        key: seeds the shuffle.

    >>> import equinox as eqx, jax, posteriax as px
    >>> from posteriax import families as q
    >>> (x, y), _ = px.data.two_moons()
    >>> problem = px.Problem(eqx.nn.Linear(2, 2, key=jax.random.key(0)), px.Categorical())
    >>> posterior = px.fit(problem, (x, y), px.VI(q.ZeroMeanNormal(), estimator="weight"), steps=10, key=0)
    >>> shuffled = px.analysis.permute(posterior)
    """
    base = as_key(key)

    def change(leaf: Leaf, mean: jax.Array, scale: jax.Array) -> tuple[jax.Array, jax.Array]:
        index = posterior.problem.leaf_names.index(leaf.path)
        keys = jax.random.split(jax.random.fold_in(base, index), scale.shape[0])
        shuffled = jax.vmap(lambda k, s: jax.random.permutation(k, s.reshape(-1)))(keys, scale)
        return mean, shuffled.reshape(scale.shape)

    return change_leaves(posterior, leaves, change)
