"""Prior scales and noise by the marginal likelihood, Laplace's approximation of it at a mode.

Rounds of three updates, from MacKay 1992, until the scales no longer change:

    w         <- closer to the mode under the current prior and noise
    s_g^2     <- sum over group g of (w - m)^2 / gamma_g          gamma_g: how many weights of g the data determine
    sigma^2   <- sum of squared residuals / (N - gamma)           gamma = sum_g gamma_g

At a mode both are where the derivatives of the evidence vanish, the curvature being held fixed. With the curvature of
all weights, the weights move by Gauss-Newton steps (Foresee and Hagan 1997); with Kronecker factors, by Adam, as in
Immer et al. 2021.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from posteriax.data import TargetMoments
from posteriax.methods.mode_search import Measured, ModeSearch, Prior
from posteriax.problem import Latents

FACTORS = (0.1, 0.3, 1.0, 3.0)  # of the given scales, to start from
TRIAL = 4  # rounds from each
FIRST_CLIMBS = 6
FIRST_RATE, RATE = 1e-2, 3e-3
FIRST_NOISE, SMALLEST_NOISE = 0.3, 1e-3  # of the spread of the targets
LARGEST_CHANGE = math.log(3.0)  # of a scale, in one round
FARTHEST = math.log(1e3)  # of a scale, from where it was given
SETTLED = 3e-3  # relative change of scales
PATIENCE = 8  # rounds in which the evidence does not rise noticeably
RISE, RISE_PER_TARGET = 0.1, 1e-3  # nats that are noticeable: the larger of the two
POLISHING = 3
TINY = 1e-30


class Scales(NamedTuple):
    """What is tuned.

    Args:
        log_factors: by leaf, the logarithm of what the given prior scales are multiplied by.
        log_noise: the logarithm of the noise; 0 if that is not tuned.
    """

    log_factors: np.ndarray
    log_noise: float = 0.0


class Round(NamedTuple):
    """Scales, latents close to the mode under them, and what was measured there."""

    scales: Scales
    latents: Latents
    measured: Measured

    @property
    def log_evidence(self) -> float:
        return self.measured.log_evidence


class Tuner:
    """The rounds of one call.

    Args:
        search: programs that find the mode and measure there.
        given: the prior as given.
        key: for minibatches.
    """

    def __init__(self, search: ModeSearch, given: Prior, key: jax.Array):
        self.search, self.given, self.key, self.climbs = search, given, key, 0
        y, weight = np.asarray(search.data.y, np.float64), search.data.weight
        counted = len(y) if weight is None else float(np.sum(weight, dtype=np.float64))
        self.targets = counted * math.prod(y.shape[1:])
        self.spread = TargetMoments.from_targets(y, weight).scale

    def prior(self, scales: Scales) -> Prior:
        """The prior with its scales multiplied by the factors."""
        pairs = zip(self.given.precisions, scales.log_factors, strict=True)
        return Prior(self.given.means, [precision * math.exp(-2 * factor) for precision, factor in pairs])

    def run(self, latents: Latents, rounds: int, per: str) -> list[Round]:
        """First one factor for all leaves, from several starts; then, from the best of them, one for each."""
        if per == "none":
            found = self.rounds(self.begin(latents, 1.0), [], rounds)
            return [*found, self.polished(self.again(best(found)))]
        leaves = range(len(self.given.means))
        together, apart = [tuple(leaves)], [(i,) for i in leaves]
        tried = [self.rounds(self.begin(latents, factor), together, min(rounds, TRIAL)) for factor in FACTORS]
        found = max(tried, key=lambda own: best(own).log_evidence)
        groups = apart if per == "leaf" else together
        found += self.rounds(self.again(best(found)), groups, rounds)
        return [*found, self.polished(self.again(best(found)))]

    def begin(self, latents: Latents, factor: float) -> Round:
        """Weights trained under the given prior times a factor."""
        noise = math.log(FIRST_NOISE * self.spread) if self.search.noise else 0.0
        scales = Scales(np.full(len(self.given.means), math.log(factor)), noise)
        for i in range(FIRST_CLIMBS):
            latents = self.climbed(latents, scales, FIRST_RATE if i < FIRST_CLIMBS // 2 else RATE)
        return self.measured(scales, latents)

    def rounds(self, first: Round, groups: Sequence[tuple[int, ...]], most: int) -> list[Round]:
        """Rounds until the scales no longer change, or changing them no longer helps."""
        found, last = [], first
        for _ in range(most):
            found.append(last._replace(measured=last.measured._replace(step=None)))  # which holds the curvature
            scales = self.updated(last, groups)
            if settled(last.scales, scales) or self.stuck(found):
                return found
            last = self.measured(scales, self.closer(last, scales))
        return [*found, last]

    def again(self, one: Round) -> Round:
        """A round with its curvature, which is kept no longer than needed."""
        return self.measured(one.scales, one.latents)

    def measured(self, scales: Scales, latents: Latents) -> Round:
        found = self.search.measure(latents, self.prior(scales))
        if not math.isfinite(found.log_evidence):
            raise FloatingPointError("the evidence is not finite: standardise the columns of x")
        return Round(scales, latents, found)

    def stuck(self, found: Sequence[Round]) -> bool:
        """Whether the evidence has not risen noticeably for some rounds."""
        values = [one.log_evidence for one in found]
        noticeable = max(RISE, RISE_PER_TARGET * self.targets)
        return len(values) > PATIENCE and max(values[-PATIENCE:]) < max(values[:-PATIENCE]) + noticeable

    def updated(self, last: Round, groups: Sequence[tuple[int, ...]]) -> Scales:
        """The scales at which the derivatives of the evidence vanish, for these weights and this curvature."""
        weights = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(last.latents.network)]
        prior, factors = self.prior(last.scales), last.scales.log_factors.copy()
        squares = [
            float((precision * np.square(weight - mean)).sum())
            for weight, mean, precision in zip(weights, *prior, strict=True)
        ]
        for group in groups:
            own, effective = sum(squares[i] for i in group), sum(last.measured.effective[i] for i in group)
            change = 0.5 * (math.log(own + TINY) - math.log(effective + TINY))
            factors[list(group)] += np.clip(change, -LARGEST_CHANGE, LARGEST_CHANGE)
        noise = last.scales.log_noise
        if self.search.noise:
            residuals = last.measured.noise_slope + self.targets  # squared, in units of the noise
            left = max(self.targets - sum(last.measured.effective.values()), 1e-3 * self.targets)
            change = 0.5 * math.log(max(residuals, TINY) / left)
            noise += float(np.clip(change, -LARGEST_CHANGE, LARGEST_CHANGE))
            noise = max(noise, math.log(SMALLEST_NOISE * self.spread))
        return Scales(np.clip(factors, -FARTHEST, FARTHEST), noise)

    def closer(self, last: Round, scales: Scales) -> Latents:
        """Latents closer to the mode under new scales: by a Gauss-Newton step, and by Adam unless that is enough."""
        latents = self.with_noise(last.latents, scales)
        if last.measured.step is not None:
            prior = self.prior(scales)
            latents, rise = self.search.move(latents, prior, last.measured.step(prior))
            if rise < RISE:
                return latents
        return self.climbed(latents, scales, RATE)

    def climbed(self, latents: Latents, scales: Scales, rate: float) -> Latents:
        self.climbs += 1
        key = jax.random.fold_in(self.key, self.climbs)
        return self.search.climb(self.with_noise(latents, scales), self.prior(scales), key, rate)

    def with_noise(self, latents: Latents, scales: Scales) -> Latents:
        if not self.search.noise:
            return latents
        return latents._replace(likelihood=latents.likelihood | {self.search.noise: np.float32(scales.log_noise)})

    def polished(self, last: Round) -> Round:
        """The same scales, at the mode."""
        for _ in range(POLISHING):
            last = self.measured(last.scales, self.closer(last, last.scales))
        return last


def best(found: Sequence[Round]) -> Round:
    """The last round, unless an earlier one was better."""
    top = max(found, key=lambda one: one.log_evidence)
    return found[-1] if found[-1].log_evidence > top.log_evidence - RISE else top


def settled(old: Scales, new: Scales) -> bool:
    """Whether the scales no longer change."""
    change = np.abs(new.log_factors - old.log_factors).max()
    return bool(change < SETTLED and abs(new.log_noise - old.log_noise) < SETTLED)
