"""What a sampler recorded after its warm-up, by chain."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from posteriax.posterior.trace import Trace

# Divergent transitions after warm-up, of all. None is best. But a few that leave R-hat and effective draws intact are
# "often good enough to move forward" (Stan's guide to its warnings), and in float32 one may be rounding.
MOST_DIVERGENT = 1e-3

Number = TypeVar("Number", int, float)


def ebfmi(energy: ArrayLike) -> np.ndarray:
    """The energy Bayesian fraction of missing information of each chain.

    E-BFMI = mean (E_t - E_{t-1})^2 / Var[E]

    Below about 0.3, resampling the momentum changes the energy so little that chains explore the tails slowly.
    (Betancourt 2016)

    Args:
        energy: the Hamiltonian at each draw, (chains, draws), or (draws,) for one chain.

    Returns:
        (chains,), or a number for one chain. nan if the energy is constant.

    >>> energy = np.random.default_rng(0).normal(size=(2, 10_000))
    >>> ebfmi(energy).round(1)
    array([2., 2.])
    """
    energy = np.asarray(energy, np.float64, order="C")
    if energy.ndim not in (1, 2) or energy.shape[-1] < 2:
        raise ValueError(f"energy must be (chains, draws) with at least 2 draws, got shape {energy.shape}")
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.square(np.diff(energy, axis=-1)).mean(axis=-1) / energy.var(axis=-1, ddof=1)


@dataclass(frozen=True)
class SamplerSummary:
    """The transitions after warm-up, one number per chain; None for what was not recorded.

    Args:
        transitions: number of transitions per chain.
        acceptance: mean acceptance probability.
        step_size: median step size of the integrator.
        divergences: number of divergent transitions.
        ebfmi: see :func:`ebfmi`.
        cut: the largest share of a trajectory that `max_leapfrogs` cut off.

    >>> trace = Trace({"acceptance": np.full((2, 50), 0.9), "divergent": np.zeros((2, 50), bool)}, warmup=10)
    >>> print(summarize_sampler(trace))
    After warm-up: acceptance 0.90, 0 divergences in 2 x 40 transitions
    """

    transitions: int
    acceptance: tuple[float, ...] | None
    step_size: tuple[float, ...] | None
    divergences: tuple[int, ...] | None
    ebfmi: tuple[float, ...] | None
    cut: tuple[float, ...] | None = None

    def __str__(self) -> str:
        parts = []
        if self.acceptance is not None:
            parts.append(f"acceptance {_range(self.acceptance, '.2f')}")
        if self.step_size is not None:
            parts.append(f"step size {_range(self.step_size, '.2g')}")
        if self.divergences is not None:
            chains = len(self.divergences)
            parts.append(f"{sum(self.divergences)} divergences in {chains} x {self.transitions} transitions")
        if self.ebfmi is not None:
            parts.append(f"E-BFMI {_range(self.ebfmi, '.2f')}")
        return "After warm-up: " + ", ".join(parts)


def summarize_sampler(trace: Trace) -> SamplerSummary | None:
    """Summarise a trace; None if it records no transitions."""
    after = after_warmup(trace)
    if not {"acceptance", "divergent", "energy"} & set(after):
        return None

    def by_chain(
        name: str, reduce: Callable[..., np.ndarray], kind: Callable[[Any], Number]
    ) -> tuple[Number, ...] | None:
        if name not in after:
            return None
        # a loaded trace may have another memory layout, and single-precision sums would then differ
        return tuple(map(kind, reduce(np.asarray(after[name], np.float64, order="C"), axis=1)))

    transitions = next(iter(after.values())).shape[1]
    return SamplerSummary(
        transitions=transitions,
        acceptance=by_chain("acceptance", np.mean, float),
        step_size=by_chain("step_size", np.median, float),
        divergences=by_chain("divergent", np.sum, int),
        ebfmi=tuple(map(float, ebfmi(after["energy"]))) if "energy" in after and transitions > 1 else None,
        cut=by_chain("cut", np.max, float),
    )


def diverges(sampler: SamplerSummary) -> bool:
    """Whether more transitions diverged after the warm-up than can be tolerated. MCLMC and SG-MCMC have no
    trajectories that could: MCLMC counts steps to infinite values instead, SG-MCMC records nothing.

    >>> [diverges(SamplerSummary(1000, None, None, (1, 0, count, 0), None)) for count in (3, 4)]
    [False, True]
    """
    divergences = sampler.divergences or ()
    return sum(divergences) > MOST_DIVERGENT * len(divergences) * sampler.transitions


def excess_divergences(sampler: SamplerSummary | None) -> int:
    """How many transitions diverged after the warm-up, if more than can be tolerated; otherwise 0."""
    return sum(sampler.divergences or ()) if sampler is not None and diverges(sampler) else 0


def after_warmup(trace: Trace) -> dict[str, np.ndarray]:
    """The statistics recorded at every step after the warm-up, by name, (chains, steps)."""
    arrays = {name: np.atleast_2d(np.asarray(values)) for name, values in trace.items()}
    steps = max((values.shape[1] for values in arrays.values()), default=0)
    return {name: values[:, trace.warmup :] for name, values in arrays.items() if values.shape[1] == steps}


def _range(values: tuple[float, ...], digits: str) -> str:
    low, high = (format(extreme, digits) for extreme in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"
