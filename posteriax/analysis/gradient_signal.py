"""The signal-to-noise ratios of gradients that a run recorded. (Swiatkowski et al. 2020, section 3.2)"""

from dataclasses import dataclass, field

import numpy as np

from posteriax._internal.leaf_paths import leaf_paths
from posteriax._internal.plot_style import PALETTE, Figure, subplots
from posteriax.posterior.posterior import Posterior
from posteriax.posterior.variational import VariationalPosterior
from posteriax.run.gradient_noise import FIELD


@dataclass(frozen=True, eq=False)
class GradientSignal:
    """Signal-to-noise ratios of a run's gradients, averaged over members.

    Args:
        steps: the step at which each window ended.
        paper: E[g^2] / Var[g] by leaf of the trained parameters, (windows,) each; 1 is pure noise.
        plain: E[g]^2 / Var[g]; 0 is pure noise.
        pooled: the sum of E[g^2] over the leaf, divided by that of Var[g]; 1 is pure noise.
        median: the median of E[g^2] / Var[g] over the leaf; empty if the run did not record it.
    """

    steps: np.ndarray
    paper: dict[str, np.ndarray]
    plain: dict[str, np.ndarray]
    pooled: dict[str, np.ndarray]
    median: dict[str, np.ndarray] = field(default_factory=dict)

    def plot(self, ending: str = "") -> Figure:
        """The pooled ratio during training, one line per leaf whose path ends in `ending`; returns the figure."""
        chosen = {name: values for name, values in self.pooled.items() if name.endswith(ending)}
        if not chosen:
            raise ValueError(f"no leaf ends in {ending!r}. Leaves: {', '.join(self.paper)}")
        figure, ((axis,),) = subplots(1, 1, 5.4, 3.4)
        for i, (name, values) in enumerate(chosen.items()):
            style = ("-", "--", ":")[i // len(PALETTE) % 3]
            axis.plot(self.steps, values, style, color=PALETTE[i % len(PALETTE)], label=name)
        axis.axhline(1.0, color="0.6", linewidth=1)
        axis.set(yscale="log", xlabel="step", ylabel="sum of $E[g^2]$ / sum of Var $g$  (1: noise)")
        axis.legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
        return figure


def gradient_noise(posterior: Posterior) -> GradientSignal:
    """The ratios that ``px.fit(..., record=px.run.GradientNoise())`` recorded, by leaf.

    Leaves are those of the parameters that the method trains: ``layers/0/weight/log_scale`` and so on for VI.

    Args:
        posterior: from a run that recorded them, or loaded from a file.

    Raises:
        ValueError: if the run did not record them.

    >>> import equinox as eqx, jax, posteriax as px
    >>> (x, y), _ = px.data.two_moons()
    >>> problem = px.Problem(eqx.nn.Linear(2, 2, key=jax.random.key(0)), px.Categorical())
    >>> posterior = px.fit(problem, (x, y), px.MAP(), steps=30, key=0, record=px.run.GradientNoise(every=20))
    >>> signal = px.analysis.gradient_noise(posterior)
    >>> list(signal.paper), signal.steps.tolist()
    (['weight', 'bias'], [10, 30])
    """
    trace = posterior.trace
    if FIELD not in trace:
        raise ValueError("this run recorded no gradients: fit with record=px.run.GradientNoise()")
    if isinstance(posterior, VariationalPosterior):
        names = leaf_paths(posterior.variational)
    else:
        names = posterior.problem.leaf_names
    values = np.asarray(trace[FIELD], np.float64)
    values = values.mean(axis=0) if values.ndim == 4 else values
    steps = np.asarray(trace[f"{FIELD}_step"])
    if len(names) != values.shape[1]:
        raise ValueError(f"the run recorded {values.shape[1]} leaves of gradients, but the posterior has {len(names)}")
    kinds = ({name: values[:, i, kind] for i, name in enumerate(names)} for kind in range(values.shape[2]))
    return GradientSignal(steps, *kinds)
