"""What an estimator chooses for a table by the log score of held-out rows, and an ensemble with what was chosen.

    score(c) = mean over rows of log [ 1/M sum_m p(y | x, w_m) ]        w_m: modes under c that have not seen the row

A candidate c is a scale of the prior (a factor of He's) and a likelihood, such as noise that is constant or predicted.
The scale of a learned noise is the one with the best score as well: at a mode, whose weights fit part of the noise, it
would be too small. The ensemble's members are modes under the best candidate, from all rows.

Networks are trained eight at a time by one program, whose numbers of steps and candidates are arguments: it is compiled
once for every shape of data and network, in 1 to 3 seconds, and used again by every fit of that shape.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy.special import logsumexp

from posteriax import priors as p
from posteriax._internal import cpu_tuning
from posteriax.data.batches import Batch
from posteriax.likelihoods.likelihood import Likelihood
from posteriax.networks.network import network as as_network
from posteriax.posterior.draws import DrawsPosterior
from posteriax.posterior.trace import Trace
from posteriax.problem import Latents, Problem
from posteriax.tabular.networks import Architecture, hidden_sizes, make_mlp

FACTORS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # of He's scales
TOGETHER = 8  # networks, and members of the ensemble
FOLDS = 4  # of few rows, with two networks each
HELD_OUT_ONCE = 5  # of rows enough to choose networks by, every fifth is held out, once, with eight networks
WHOLE, BATCH = 512, 256  # rows that are a batch together, and the size of a batch of more
RATE = 1e-2  # of Adam, falling to 0 along a cosine
STEPS, ROWS_OF_STEPS, MOST_STEPS = 400, 256, 4000  # for as many rows; they grow like rows^0.75
ENOUGH_TO_CHOOSE = 500  # rows, for several networks to be tried
DEEPER = (((64, 64), "tanh"), ((16, 16, 16, 16), "relu"))
REFINED = (
    4  # times as many for the last choice of the scale, where networks are chosen: short training needs less prior
)
LONGER = 1  # times as many for the ensemble; twice as many, again and again, while its log joint still rises
DOUBLINGS = 3
LEVEL = 0.02  # nats per example that the third quarter of the steps may gain
RECORDED = 64  # values of the log joint
NOISES = np.linspace(-7.0, 1.5, 171)  # logarithms of the noise that are tried, of standardised targets


@dataclass(frozen=True)
class Perceptron:
    """A network and a likelihood, by values that tell whether a compiled program can be used again.

    Args:
        inputs: columns.
        hidden: units of each hidden layer.
        outputs: of the network.
        activation: by its name.
        likelihood: with its own unknowns.
        equinox: whether it is Equinox's perceptron, whose leaves the command line's files name, or the zoo's.
    """

    inputs: int
    hidden: tuple[int, ...]
    outputs: int
    activation: str
    likelihood: Likelihood
    equinox: bool = False

    @property
    def label(self) -> str:
        """In a note."""
        layers = "-".join(map(str, self.hidden)) or "linear"
        noise = ", noise predicted" if predicts_noise(self.likelihood) else ""
        return f"{layers} {self.activation}{noise}"

    def network(self) -> object:
        """With some starting weights."""
        if not self.equinox:
            return make_mlp(self.inputs, self.outputs, self.hidden, self.activation, 0, 0)
        return Architecture(
            "table", (self.inputs,), self.outputs, self.hidden[0], len(self.hidden), self.activation
        ).build(0)

    def with_likelihood(self, likelihood: Likelihood, outputs: int) -> "Perceptron":
        return replace(self, likelihood=likelihood, outputs=outputs)

    def problem(self, factor: float) -> Problem:
        """With a prior of He's scales times a factor; targets are standardised, counts or labels."""
        return _problem(self, factor)


@lru_cache(maxsize=32)  # so that predictions of equal problems share their programs; these networks are small
def _problem(perceptron: Perceptron, factor: float) -> Problem:
    net = as_network(perceptron.network(), example=np.zeros((2, perceptron.inputs), np.float32))
    prior = p.HeNormal(gain=2.0 * factor**2, bias_scale=factor)
    return Problem(net, perceptron.likelihood.for_target_scale(1.0), prior=prior)


def predicts_noise(likelihood: Likelihood) -> bool:
    return getattr(likelihood, "scale", None) == "predicted"


def networks_for(rows: int) -> list[tuple[tuple[int, ...], str]]:
    """Hidden layers and activations to choose from: one for few rows, which cannot tell which is better.

    >>> networks_for(100)
    [((128,), 'tanh')]
    """
    usual = (hidden_sizes(rows), "tanh")
    return [usual] if rows < ENOUGH_TO_CHOOSE else list(dict.fromkeys([usual, *DEEPER]))


class Choice(NamedTuple):
    """What was chosen.

    Args:
        perceptron: the network and the likelihood.
        factor: of the prior's scales.
        log_noise: the logarithm of the noise, if it is learned.
        score: of held-out rows, nats per row, by likelihood and factor.
        held: how what was chosen predicts these rows.
    """

    perceptron: Perceptron
    factor: float
    log_noise: float | None
    score: dict[tuple[str, float], float]
    held: "HeldOut | None" = None

    @property
    def problem(self) -> Problem:
        return self.perceptron.problem(self.factor)

    @property
    def words(self) -> str:
        """What was chosen, and the scores of what was not."""
        best: dict[str, float] = {}
        for (label, _), score in self.score.items():
            best[label] = max(score, best.get(label, -np.inf))
        scores = "; ".join(f"{label} {score:.3f}" for label, score in best.items())
        return (
            f"chosen by the log score of held-out rows: {self.perceptron.label}, a prior of {self.factor:g} times He's "
            f"scales (the best of each: {scores})"
        )


def choose(
    networks: Sequence[Perceptron],
    data: tuple[np.ndarray, ...],
    *,
    seed: int,
    others: Sequence[tuple[Likelihood, int]] = (),
    factors: Sequence[float] = FACTORS,
    seconds: float | None = None,
) -> Choice:
    """The network, the likelihood and the scale of the prior with the best log score of held-out rows.

    All networks are tried with the first likelihood, then, the best first, with the others, from the scale that was
    best for the network on. Another likelihood must be better by more than the standard error of the difference, or
    below 500 rows, twice that.

    Args:
        networks: to choose from, with the likelihood that is tried first.
        data: ``(x, y)`` or ``(x, y, weight)``, prepared rows.
        seed: of folds and networks.
        others: further likelihoods of the same targets, and how many outputs each needs.
        factors: of the prior's scales, to try.
        seconds: after which no other candidate is tried; None for no limit.

    >>> from posteriax.likelihoods.classes import Categorical
    >>> x = np.random.default_rng(0).normal(size=(80, 2)).astype(np.float32)
    >>> line = Perceptron(2, (8,), 2, "tanh", Categorical())
    >>> choose([line], (x, (x[:, 0] > 0).astype(np.int32)), seed=0).factor > 1  # the classes do not overlap
    True
    """
    ends = np.inf if seconds is None else time.monotonic() + seconds
    tried: Tried = {}
    for perceptron in networks:
        _try(perceptron, data, seed, factors, ends, tried)
    best = _best_of(tried, networks)
    by_score = sorted((top for net in networks if (top := _best_of(tried, [net]))), key=lambda top: -tried[top].score)
    for likelihood, outputs in others:
        others_tried = []
        for network, factor in by_score:
            others_tried.append(network.with_likelihood(likelihood, outputs))
            _try(others_tried[-1], data, seed, factors, ends, tried, start=factor)
        top = _best_of(tried, others_tried)
        errors = 1.0 if len(data[1]) >= ENOUGH_TO_CHOOSE else 2.0
        if top is not None and tried[top].is_better(tried[best], errors):
            best = top
    scores = {(perceptron.label, factor): held.score for (perceptron, factor), held in tried.items()}
    (perceptron, factor), held = best, tried[best]
    if len(data[1]) >= ENOUGH_TO_CHOOSE and len(factors) > 1:
        factor, held = _refined(perceptron, factor, held, data, seed, factors, ends)
    return Choice(perceptron, factor, held.log_noise, scores, held)


def _refined(
    perceptron: Perceptron,
    factor: float,
    before: "HeldOut",
    data: tuple[np.ndarray, ...],
    seed: int,
    factors: Sequence[float],
    ends: float,
) -> tuple[float, "HeldOut"]:
    """The factor of the prior's scales with which longer training predicts best, this one or less, and how well."""
    if time.monotonic() > ends:
        return factor, before
    trainer, best = Trainer(perceptron, data, seed), before._replace(by_row=np.full(len(before.by_row), -np.inf))
    for lower in sorted((other for other in factors if other <= factor), reverse=True):
        began = time.monotonic()
        held = trainer.held_out_score(lower, REFINED)
        if held.score <= best.score:
            break
        factor, best = lower, held
        if 2 * time.monotonic() - began > ends:  # the next one takes as long
            break
    return factor, best


class HeldOut(NamedTuple):
    """How a candidate predicts rows that it has not seen.

    Args:
        by_row: the log score of each, nats.
        weight: how many rows each counts as.
        log_noise: the logarithm of the noise for which it is best, if that is learned.
    """

    by_row: np.ndarray
    weight: np.ndarray
    log_noise: float | None

    @property
    def score(self) -> float:
        """The mean log score."""
        return float(np.average(self.by_row, weights=self.weight))

    def is_better(self, other: "HeldOut", errors: float = 1.0) -> bool:
        """Whether the mean is larger by so many standard errors of the difference: what is simpler is kept."""
        gain = self.by_row - other.by_row
        mean = np.average(gain, weights=self.weight)
        error = np.sqrt(np.average(np.square(gain - mean), weights=self.weight) / len(gain))
        return bool(mean > errors * error)


Candidate = tuple[Perceptron, float]
Tried = dict[Candidate, HeldOut]


def _best_of(tried: Tried, networks: Sequence[Perceptron]) -> Any:
    """The candidate of these networks with the best score; None if none was tried."""
    candidates = [candidate for candidate in tried if candidate[0] in networks]
    return max(candidates, key=lambda candidate: tried[candidate].score, default=None)


def _try(
    perceptron: Perceptron,
    data: tuple[np.ndarray, ...],
    seed: int,
    factors: Sequence[float],
    ends: float,
    tried: Tried,
    start: float | None = None,
) -> None:
    """Add the scores of a network under the promising factors, unless the time is over."""
    if tried and time.monotonic() > ends:
        return
    trainer = Trainer(perceptron, data, seed)
    for factor in _promising(factors, partial(_tried_score, tried, perceptron), start):
        tried[perceptron, factor] = trainer.held_out_score(factor)
        if time.monotonic() > ends:
            return


def _tried_score(tried: Tried, perceptron: Perceptron, factor: float) -> float:
    return tried[perceptron, factor].score


def _promising(
    factors: Sequence[float], score: Callable[[float], float], start: float | None = None
) -> Iterator[float]:
    """The middle two, or the first and the next larger one, then on in the direction in which the score rises.

    >>> list(_promising((0.3, 1.0, 3.0, 10.0), lambda factor: -abs(factor - 3.0)))
    [1.0, 3.0, 10.0]
    >>> list(_promising((0.3, 1.0, 3.0, 10.0), lambda factor: -factor))
    [1.0, 3.0, 0.3]
    >>> list(_promising((0.3, 1.0, 3.0, 10.0), lambda factor: -factor, start=10.0))
    [3.0, 10.0, 1.0, 0.3]
    """
    factors = sorted(factors)
    low = max((len(factors) - 1) // 2, 0) if start is None else min(factors.index(start), max(len(factors) - 2, 0))
    yield factors[low]
    if len(factors) == 1:
        return
    yield factors[low + 1]
    rises = score(factors[low + 1]) > score(factors[low])
    at, step = (low + 1, 1) if rises else (low, -1)
    while 0 <= at + step < len(factors):
        yield factors[at + step]
        if score(factors[at + step]) <= score(factors[at]):
            return
        at += step


def fit_ensemble(
    choice: Choice, data: tuple[np.ndarray, ...], *, seed: int, seconds: float | None = None
) -> DrawsPosterior:
    """Modes of all rows under what was chosen, from eight starts.

    They are trained for as many steps as those that made the choice, and again for twice as many while the third
    quarter of the steps still gains more than 0.02 nats per example, or until `seconds` would be exceeded. From 500
    rows on that is done once: the prior was chosen for about this length, and eight times as long, predicted noise is
    overfitted.
    """
    rows = len(data[1])
    trainer = Trainer(choice.perceptron, data, seed + 1)
    longer, doublings = (REFINED, 1) if rows >= ENOUGH_TO_CHOOSE else (LONGER, DOUBLINGS)
    steps, began = longer * steps_for(rows), time.monotonic()
    most = 2**doublings * steps
    while True:
        before = time.monotonic()
        trained = trainer.train(np.ones((TOGETHER, rows), bool), choice.factor, steps, choice.log_noise)
        log_joint = np.asarray(trained.log_joint)
        quarter = RECORDED // 4
        thirds = log_joint[:, 2 * quarter : 3 * quarter]
        gained = thirds[:, -quarter // 4 :].mean() - thirds[:, : quarter // 4].mean()
        counted = float(np.sum(data[2])) if len(data) > 2 else rows
        level = bool(gained < LEVEL * counted)
        now = time.monotonic()
        too_long = seconds is not None and now - began + 2 * (now - before) > seconds
        if level or too_long or steps >= most:
            break
        steps *= 2
    notes = (
        choice.words,
        f"{'' if level else 'not '}converged after {steps} steps",
    )
    trace = Trace(
        {"log_joint": log_joint, "level_step": np.array([steps if level else -1]), "converged": np.array([level])},
        notes,
        time.monotonic() - began,
    )
    draws = jax.tree.map(lambda leaf: np.asarray(leaf)[:, None], trained.latents)
    return DrawsPosterior(choice.problem, trace, draws)


def steps_for(rows: int) -> int:
    """Steps of Adam for a table.

    >>> steps_for(100), steps_for(1000), steps_for(40_000)
    (400, 1111, 4000)
    """
    return min(int(STEPS * max(1.0, rows / ROWS_OF_STEPS) ** 0.75), MOST_STEPS)


def assign_folds(y: np.ndarray, seed: int, rows: int) -> np.ndarray:
    """The fold in which each row is held out, the same share of every class; -1 for rows that never are.

    >>> sorted(assign_folds(np.array([0, 0, 0, 0, 1, 1, 1, 1]), 0, 8)[:4].tolist())
    [0, 1, 2, 3]
    """
    labels = y if y.dtype.kind in "iub" and y.size == rows else np.zeros(rows)
    order = np.lexsort((np.random.default_rng(seed).permutation(rows), labels.reshape(rows)))
    fold = np.empty(rows, int)
    if rows >= ENOUGH_TO_CHOOSE:
        fold[order] = np.where(np.arange(rows) % HELD_OUT_ONCE == 0, 0, -1)
    else:
        fold[order] = np.arange(rows) % (FOLDS if rows >= FOLDS else 2)
    return fold


class Trained(NamedTuple):
    """Networks that were trained together, and their log joints, (networks, RECORDED)."""

    latents: Latents
    log_joint: jax.Array


class Trainer:
    """Trains networks on one table.

    Args:
        perceptron: what they are.
        data: prepared rows.
        seed: of starts and batches.
    """

    def __init__(self, perceptron: Perceptron, data: tuple[np.ndarray, ...], seed: int):
        self.perceptron = perceptron
        x, y = perceptron.problem(1.0).check((data[0], data[1]))
        self.x, self.y = jnp.asarray(x), jnp.asarray(y)
        self.weight = np.ones(len(y), np.float32) if len(data) < 3 else np.asarray(data[2], np.float32)
        self.keys = jax.random.split(jax.random.key(seed), TOGETHER)
        self.fold = assign_folds(np.asarray(data[1]), seed, len(y))

    def train(self, seen: np.ndarray, factor: float, steps: int, log_noise: float | None = None) -> Trained:
        """Eight networks, each on the rows that it may see, (8, N)."""
        given = np.float32(np.nan if log_noise is None else log_noise)
        weights = jnp.asarray(seen * self.weight)
        arguments = self.keys, self.x, self.y, weights, np.float32(factor), given, np.int32(steps)
        return _programs()[0](self.perceptron, *arguments)

    def outputs(self, trained: Trained) -> np.ndarray:
        """Of all networks for all rows, (8, N, outputs)."""
        return np.asarray(_programs()[1](self.perceptron, trained.latents.network, self.x))

    def held_out_score(self, factor: float, longer: int = 1) -> HeldOut:
        """The log score of held-out rows for a factor of the prior's scales, after `longer` times the usual steps."""
        rows = len(self.y)
        held, folds = np.flatnonzero(self.fold >= 0), int(self.fold.max()) + 1
        seen = np.repeat([self.fold != k for k in range(folds)], TOGETHER // folds, axis=0)
        trained = self.train(seen, factor, longer * steps_for(rows))
        # of the networks that have not seen a row: (members, held-out rows, outputs)
        outputs = self.outputs(trained).reshape(folds, TOGETHER // folds, rows, -1)
        return self.score(outputs[self.fold[held], :, held].swapaxes(0, 1), held, trained)

    def score(self, outputs: np.ndarray, held: np.ndarray, trained: Trained) -> HeldOut:
        """The log score of held-out rows, from outputs (members, rows, ...)."""
        likelihood, weight = self.perceptron.problem(1.0).likelihood, self.weight[held].astype(np.float64)
        y, members = self.y[held], len(outputs)
        if likelihood.log_noise is None:
            own = jax.tree.map(lambda leaf: leaf.mean(axis=0), trained.latents.likelihood)
            each = np.stack([np.asarray(likelihood.log_prob(own, jnp.asarray(o), y), np.float64) for o in outputs])
            return HeldOut(logsumexp(each, axis=0) - np.log(members), weight, None)
        targets = outputs.shape[-1]
        off = np.asarray(y, np.float64).reshape(1, len(held), targets) - outputs
        scales = NOISES[:, None, None]
        each = -0.5 * np.square(off).sum(axis=-1) * np.exp(-2 * scales) - targets * (scales + 0.5 * np.log(2 * np.pi))
        by_row = logsumexp(each, axis=1) - np.log(members)
        best = int(np.average(by_row, axis=1, weights=weight).argmax())
        return HeldOut(by_row[best], weight, float(NOISES[best]))


@lru_cache(maxsize=1)
def _programs() -> tuple[Callable[..., Trained], Callable[..., jax.Array]]:
    """Compiled once for each perceptron and shape. Not on import, which should not start JAX's backend."""
    platform = cpu_tuning.default_platform()
    train = jax.jit(_train, static_argnums=0, compiler_options=cpu_tuning.options_for_steps(platform))
    return train, jax.jit(_outputs, static_argnums=0, compiler_options=cpu_tuning.options_for_one_run(platform))


def _outputs(perceptron: Perceptron, params: Any, x: jax.Array) -> jax.Array:
    return jax.vmap(partial(perceptron.problem(1.0).network.apply, x=x))(params)


def _train(
    perceptron: Perceptron,
    keys: jax.Array,
    x: jax.Array,
    y: jax.Array,
    weights: jax.Array,
    factor: jax.Array,
    log_noise: jax.Array,
    steps: jax.Array,
) -> Trained:
    """Adam from eight random starts. A noise that is given is not trained."""
    problem, rows = perceptron.problem(1.0), len(y)
    noise, adam = problem.likelihood.log_noise, optax.scale_by_adam()
    likelihood_priors = problem.priors.likelihood
    scales = [prior.scale for prior in problem.leaf_priors[: len(jax.tree.leaves(problem.network.params))]]
    is_given = jnp.isfinite(log_noise)

    def log_prior(latents: Latents) -> jax.Array:
        leaves = jax.tree.leaves(latents.network)
        squares = sum(jnp.square(leaf / scale).sum() for leaf, scale in zip(leaves, scales, strict=True))
        own = sum(prior.log_prob(latents.likelihood[name]).sum() for name, prior in likelihood_priors.items())
        return own - 0.5 * squares / factor**2

    def train_one(key: jax.Array, weight: jax.Array) -> Trained:
        leaves, structure = jax.tree.flatten(problem.network.params)
        starts = jax.random.split(jax.random.fold_in(key, 0), len(leaves))
        begun = [
            scale / jnp.sqrt(2.0) * jax.random.normal(k, leaf.shape) if leaf.ndim > 1 else jnp.zeros_like(leaf)
            for k, leaf, scale in zip(starts, leaves, scales, strict=True)
        ]
        own = {name: jnp.asarray(value, jnp.float32) for name, value in problem.likelihood.latents().items()}
        if noise is not None:
            own[noise] = jnp.where(is_given, log_noise, own[noise])
        latents = Latents(jax.tree.unflatten(structure, begun), own)

        def log_joint(latents: Latents, batch: Batch) -> jax.Array:
            return problem.log_likelihood(latents, batch) + log_prior(latents)

        def advance(step: jax.Array, state: tuple[Latents, Any, jax.Array]) -> tuple[Latents, Any, jax.Array]:
            latents, moments, history = state
            batch = Batch(x, y, weight)
            if rows > WHOLE:
                chosen = jax.random.randint(jax.random.fold_in(key, step + 1), (BATCH,), 0, rows)
                batch = Batch(x[chosen], y[chosen], weight[chosen] * (rows / BATCH))
            value, slope = jax.value_and_grad(log_joint)(latents, batch)
            if noise is not None:
                kept = jnp.where(is_given, 0.0, slope.likelihood[noise])
                slope = slope._replace(likelihood=slope.likelihood | {noise: kept})
            move, moments = adam.update(slope, moments)
            rate = RATE * 0.5 * (1 + jnp.cos(jnp.pi * step / steps))
            latents = jax.tree.map(lambda leaf, m: leaf + rate * m, latents, move)
            # the mean of the steps that share a place
            history = history.at[step * RECORDED // steps].add(value * RECORDED / steps)
            return latents, moments, history

        history = jnp.zeros(RECORDED)
        latents, _, history = jax.lax.fori_loop(0, steps, advance, (latents, adam.init(latents), history))
        return Trained(latents, history)

    return jax.vmap(train_one)(keys, weights)
