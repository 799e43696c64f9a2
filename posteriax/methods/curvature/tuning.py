"""Prior scales and noise chosen by the marginal likelihood, in Laplace's approximation at a mode: ``p.tune``.

Rounds of three updates, from MacKay 1992, until the scales no longer change:

    w         <- closer to the mode under the current prior and noise
    s_g^2     <- sum over group g of (w - m)^2 / gamma_g          gamma_g: how many weights of g the data determine
    sigma^2   <- sum of squared residuals / (N - gamma)           gamma = sum_g gamma_g

At a mode, with the curvature held fixed, the derivatives of the evidence vanish at these values. With the curvature of
all weights, the weights move by Gauss-Newton steps (Foresee and Hagan 1997); with Kronecker factors, by Adam, as in
Immer et al. 2021. The evidence, and the search for the mode, are in evidence.py.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import jax
import numpy as np
import numpyro.distributions as dist
from jaxtyping import PyTree

from posteriax._internal.checks import as_key, check_choice, check_count, check_positive
from posteriax.data.batches import Examples
from posteriax.data.sources import is_loader
from posteriax.data.target_scale import TargetMoments
from posteriax.methods.curvature.evidence import GaussianPriors, Measured, ModeSearch
from posteriax.methods.curvature.structures import plan_curvature
from posteriax.methods.method import Task, check_same_network
from posteriax.networks.tracing.program import spec_of_example
from posteriax.posterior.draws import DrawsPosterior
from posteriax.posterior.posterior import Posterior
from posteriax.posterior.trace import Trace
from posteriax.priors.prior import Given, Prior, base_distribution, has_density
from posteriax.priors.standard import Normal
from posteriax.problem import Latents, Problem

FACTORS = (1.0, 0.3, 3.0, 0.1)  # of the given scales, to start from; the first ones if there is little time
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
LARGEST_ROWS = 25_000_000  # numbers in the rows of the curvature
LARGEST_PRODUCT = 4_000_000_000  # multiplications to decompose it

Structure = Literal["auto", "full", "kronecker", "diagonal"]


def tune_prior(
    problem: Problem,
    data: PyTree,
    *,
    per: Literal["leaf", "network", "none"] = "leaf",
    structure: Structure = "auto",
    noise: Literal["fixed", "learned"] = "fixed",
    start: Literal["network"] | Posterior = "network",
    rounds: int = 100,
    seconds: float | None = None,
    key: int | jax.Array = 0,
) -> "TunedProblem":
    """The problem with the prior scales, and the noise, under which the data are most probable.

    Maximises Laplace's approximation of the marginal likelihood p(D), in rounds that move the weights towards the mode
    and then the scales to where the derivatives of the evidence vanish (MacKay 1992; Immer et al. 2021).

    Args:
        problem: with Gaussian priors, ``p.Normal()`` or ``p.HeNormal()``; their scales are where the search starts.
        data: ``(x, y)`` or ``(x, y, weight)``, arrays. Standardise the columns first.
        per: "leaf", a scale for each leaf; "network", one factor for the scales of all leaves; or "none", which leaves
            the prior as it is and chooses only the noise.
        structure: of the curvature: "full", "kronecker" or "diagonal"; "auto" takes the first if it is small enough.
        noise: what to do with the scale of ``px.Normal(scale="learned")``, which is tuned as well: "fixed" keeps the
            chosen value, as in ``px.Normal(scale=0.12)``; "learned" leaves it to be inferred with the weights.
        start: "network", the network's own weights, or a posterior of one point such as that of ``px.MAP()``.
        rounds: at most; the search ends when the scales have settled.
        seconds: the limit of time, looked at between rounds, a few of which are made in any case; None for no limit.
            Where it ends a search, the result depends on the machine.
        key: an int or a JAX key, for the minibatches of large data.

    Returns:
        A :class:`px.Problem` whose `tuning` says what was chosen (print it), and whose `mode` has the weights that
        were found on the way, for ``px.Laplace(mode=tuned.mode)``.

    >>> import equinox as eqx, jax, posteriax as px
    >>> from posteriax import priors as p
    >>> (x, y), _ = px.data.two_moons(train=50)
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 4, 1, key=jax.random.key(0)), px.Categorical(), p.HeNormal())
    >>> tuned = p.tune(problem, (x, y), rounds=2)
    >>> sorted(tuned.prior)
    ['layers/0/bias', 'layers/0/weight', 'layers/1/bias', 'layers/1/weight']
    """
    check_choice("per", per, ("leaf", "network", "none"))
    check_choice("structure", structure, ("auto", "full", "kronecker", "diagonal"))
    check_choice("noise", noise, ("fixed", "learned"))
    check_count("rounds", rounds)
    _check_problem(problem, data)
    examples = problem.check_weighted(data)
    problem = problem.for_data(data)
    problem, _ = problem.reading(jax.tree.map(lambda a: np.asarray(a[:2]), examples.x))
    if seconds is not None:
        check_positive("seconds", seconds)
    tuner = Tuner(_search(problem, examples, structure), _given_priors(problem), as_key(key), seconds)
    history = tuner.run(_start(problem, start), rounds, per)
    return _tuned_problem(tuner, history, noise)


@dataclass(frozen=True, eq=False)
class Tuning:
    """What was chosen; prints as a table.

    Args:
        scales: the prior's standard deviation for each leaf (root mean square, if it differs between weights).
        noise: the standard deviation of Gaussian noise, in the units that the network's outputs have; None if it was
            not tuned.
        log_evidence: Laplace's approximation of log p(D) at the mode under the chosen prior.
        history: the same in each round that led there.
        effective: how many weights of each leaf the data determine.
        sizes: how many weights each leaf has.
        structure: of the curvature.
    """

    scales: dict[str, float]
    noise: float | None
    log_evidence: float
    history: np.ndarray
    effective: dict[str, float]
    sizes: dict[str, int]
    structure: str

    def __str__(self) -> str:
        width = max(map(len, self.scales))
        lines = [f"{'leaf':{width}}  prior scale  weights  determined by the data"]
        lines += [
            f"{name:{width}}  {scale:11.4g}  {self.sizes[name]:7,}  {self.effective[name]:.1f}"
            for name, scale in self.scales.items()
        ]
        lines += [] if self.noise is None else [f"noise {self.noise:.4g}"]
        lines.append(f"log evidence {self.log_evidence:.1f} ({self.structure} curvature)")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class TunedProblem(Problem):
    """A problem with the prior that :func:`posteriax.priors.tune` chose.

    Args:
        tuning: the scales, the noise and the evidence; print it.
        latents_at_mode: the most probable latents under the chosen prior.
    """

    tuning: Tuning = field(default=None, repr=False)  # type: ignore[assignment]
    latents_at_mode: Latents = field(default=None, repr=False)  # type: ignore[assignment]

    @property
    def mode(self) -> DrawsPosterior:
        """The most probable weights under the chosen prior, found on the way: ``px.Laplace(mode=tuned.mode)``."""
        return DrawsPosterior(self, Trace({}), jax.tree.map(lambda leaf: leaf[None, None], self.latents_at_mode))


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
        seconds: the limit of time.
    """

    def __init__(self, search: ModeSearch, given: GaussianPriors, key: jax.Array, seconds: float | None = None):
        self.search, self.given, self.key, self.climbs = search, given, key, 0
        self.ends = math.inf if seconds is None else time.monotonic() + seconds
        y, weight = np.asarray(search.data.y, np.float64), search.data.weight
        counted = len(y) if weight is None else float(np.sum(weight, dtype=np.float64))
        self.targets = counted * math.prod(y.shape[1:])
        self.spread = TargetMoments.from_targets(y, weight).scale

    def prior(self, scales: Scales) -> GaussianPriors:
        """The prior with its scales multiplied by the factors."""
        pairs = zip(self.given.precisions, scales.log_factors, strict=True)
        return GaussianPriors(self.given.means, [precision * math.exp(-2 * factor) for precision, factor in pairs])

    def run(self, latents: Latents, rounds: int, per: str) -> list[Round]:
        """First one factor for all leaves, from several starts; then, from the best of them, a factor for each leaf."""
        if per == "none":
            history = self.rounds(self.begin(latents, 1.0), [], rounds)
            return [*history, self.polished(self.again(best(history)))]
        leaves = range(len(self.given.means))
        all_leaves, single_leaves = [tuple(leaves)], [(i,) for i in leaves]
        tried: list[list[Round]] = []
        for factor in FACTORS:
            if not tried or not self.is_over:
                tried.append(self.rounds(self.begin(latents, factor), all_leaves, min(rounds, TRIAL)))
        history = max(tried, key=lambda rounds: best(rounds).log_evidence)
        groups = single_leaves if per == "leaf" else all_leaves
        if not self.is_over:
            history += self.rounds(self.again(best(history)), groups, rounds)
        return [*history, self.polished(self.again(best(history)))]

    @property
    def is_over(self) -> bool:
        """Whether the time is."""
        return time.monotonic() > self.ends

    def begin(self, latents: Latents, factor: float) -> Round:
        """Weights trained under the given prior times a factor."""
        noise = math.log(FIRST_NOISE * self.spread) if self.search.noise else 0.0
        scales = Scales(np.full(len(self.given.means), math.log(factor)), noise)
        for i in range(FIRST_CLIMBS):
            latents = self.climbed(latents, scales, FIRST_RATE if i < FIRST_CLIMBS // 2 else RATE)
        return self.measured(scales, latents)

    def rounds(self, first: Round, groups: Sequence[tuple[int, ...]], most: int) -> list[Round]:
        """Rounds until the scales no longer change, or changing them no longer helps."""
        history, last = [], first
        for _ in range(most):
            history.append(last._replace(measured=last.measured._replace(step=None)))  # which holds the curvature
            scales = self.updated(last, groups)
            if settled(last.scales, scales) or self.stuck(history) or self.is_over:
                return history
            last = self.measured(scales, self.closer(last, scales))
        return [*history, last]

    def again(self, last: Round) -> Round:
        """A round with its curvature, which is kept no longer than needed."""
        return self.measured(last.scales, last.latents)

    def measured(self, scales: Scales, latents: Latents) -> Round:
        measured = self.search.measure(latents, self.prior(scales))
        if not math.isfinite(measured.log_evidence):
            raise FloatingPointError("the evidence is not finite: standardise the columns of x")
        return Round(scales, latents, measured)

    def stuck(self, history: Sequence[Round]) -> bool:
        """Whether the evidence has not risen noticeably for some rounds."""
        values = [past.log_evidence for past in history]
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
            total, effective = sum(squares[i] for i in group), sum(last.measured.effective[i] for i in group)
            change = 0.5 * (math.log(total + TINY) - math.log(effective + TINY))
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


def best(history: Sequence[Round]) -> Round:
    """The last round, unless an earlier round was better."""
    top = max(history, key=lambda past: past.log_evidence)
    return history[-1] if history[-1].log_evidence > top.log_evidence - RISE else top


def settled(old: Scales, new: Scales) -> bool:
    """Whether the scales no longer change."""
    change = np.abs(new.log_factors - old.log_factors).max()
    return bool(change < SETTLED and abs(new.log_noise - old.log_noise) < SETTLED)


def has_small_curvature(rows: int, weights: int) -> bool:
    """Whether the curvature of all weights is small enough to decompose in every round."""
    return rows * weights <= LARGEST_ROWS and rows * weights * min(rows, weights) <= LARGEST_PRODUCT


def _tuned_problem(tuner: Tuner, history: list[Round], noise: str) -> TunedProblem:
    """The problem with the scales of the last round."""
    scales, latents, measured = history[-1]
    search, problem = tuner.search, tuner.search.problem
    prior, names = tuner.prior(scales), problem.leaf_names
    with_noise = math.exp(scales.log_noise) if search.noise else None
    likelihood, mode = problem.likelihood, jax.device_get(latents)
    if with_noise is not None and noise == "fixed":
        likelihood = likelihood.with_noise(with_noise)
        mode = mode._replace(likelihood={k: v for k, v in mode.likelihood.items() if k != search.noise})
    tuning = Tuning(
        scales={names[i]: float(np.sqrt(np.mean(1 / p))) for i, p in enumerate(prior.precisions)},
        noise=with_noise,
        log_evidence=measured.log_evidence,
        history=np.array([past.log_evidence for past in history]),
        effective={names[i]: value for i, value in sorted(measured.effective.items())},
        sizes={names[i]: p.size for i, p in enumerate(prior.precisions)},
        structure=search.structure,
    )
    return TunedProblem(
        network=problem.network,
        likelihood=likelihood,
        prior={names[i]: _as_prior(*moments) for i, moments in enumerate(zip(*prior, strict=True))},
        temperature=problem.temperature,
        fixed=problem.fixed,
        tuning=tuning,
        latents_at_mode=mode,
    )


def _check_problem(problem: object, data: PyTree) -> None:
    if not isinstance(problem, Problem):
        raise TypeError(f"p.tune takes a px.Problem, got {type(problem).__name__}")
    if is_loader(data):
        raise ValueError("p.tune passes over the data many times: give arrays (x, y), not a loader")
    if problem.temperature != 1.0:
        raise ValueError(
            f"the marginal likelihood is that of temperature 1, but the problem has {problem.temperature:g}: tune it "
            f"at 1, then set the temperature"
        )


def _given_priors(problem: Problem) -> GaussianPriors:
    """The means and precisions of the network's weights."""
    means, precisions = [], []
    for name, leaf, prior in zip(
        problem.leaf_names, jax.tree.leaves(problem.network.params), problem.leaf_priors, strict=False
    ):
        base = base_distribution(prior)
        if not isinstance(base, dist.Normal):
            why = "" if has_density(prior) else ", which has no density"
            raise ValueError(
                f"p.tune chooses the scales of Gaussian priors with independent weights, but {name} has "
                f"{type(base).__name__}{why}: start from p.Normal() or p.HeNormal()"
            )
        means.append(np.broadcast_to(np.asarray(base.loc, np.float64), leaf.shape))
        precisions.append(np.broadcast_to(np.asarray(base.scale, np.float64) ** -2, leaf.shape))
    return GaussianPriors(means, precisions)


def _as_prior(mean: np.ndarray, precision: np.ndarray) -> Prior:
    """The prior of one leaf: a single scale if all its weights have the same."""
    scale = 1 / np.sqrt(precision)
    if np.ptp(mean) == 0 and np.ptp(precision) == 0:
        return Normal(float(scale.flat[0]), float(mean.flat[0]))
    return Given(dist.Normal(mean.astype(np.float32), scale.astype(np.float32)))


def _start(problem: Problem, start: Literal["network"] | Posterior) -> Latents:
    if not isinstance(start, Posterior):
        check_choice("start", start, ("network",))
        return problem.latents
    if not isinstance(start, DrawsPosterior) or start.support > 1:
        raise ValueError(f"start must be one set of weights, such as that of px.MAP(), got {start!r}")
    check_same_network(start, problem)
    return jax.tree.map(lambda leaf: leaf[0], start.draw(jax.random.key(0), np.arange(1), 1))


def _search(problem: Problem, examples: Examples, structure: Structure) -> ModeSearch:
    sample = jax.tree.map(lambda a: np.asarray(a[:8]), examples.x)
    task = Task(
        problem=problem,
        example=spec_of_example(sample),
        num_examples=len(examples.y),
        steps=1,
        couples_examples=problem.couples_examples(sample),
    )
    if task.couples_examples:
        raise ValueError(
            "the network's outputs for one example depend on the others in its batch (batch statistics), so the "
            f"curvature of its likelihood is not a sum over examples. {problem.network.how_to_uncouple}"
        )
    leaves = jax.tree.leaves(problem.network.params)
    weights = sum(leaf.size for leaf in leaves)
    rows = len(examples.y) * math.prod(problem.output_spec(sample).shape[1:])
    if structure == "auto":
        structure = "full" if has_small_curvature(rows, weights) else "kronecker"
    if structure == "full" and not has_small_curvature(rows, weights):
        raise ValueError(
            f"the curvature of {rows:,} outputs by {weights:,} weights is too large to decompose in every round: use "
            f'structure="kronecker"'
        )
    plan = None if structure == "full" else plan_curvature(structure, task, range(len(leaves)))
    return ModeSearch(problem, examples, structure, plan, problem.likelihood.log_noise)
