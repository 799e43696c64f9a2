"""Attacks: how small a change of the inputs makes a posterior's predictions wrong, and whether its uncertainty rises.

FGSM takes one step along the sign of the gradient of the predictive p(y | x, D) = 1/S sum_s p(y | x, w_s) of S fixed
draws (Goodfellow et al. 2015), PGD several, projected onto a box around the clean inputs (Madry et al. 2018):

    x <- clip(x - step sign(d log p(y | x, D) / dx))        untargeted: away from the true label y
    x <- clip(x + step sign(d log p(t | x, D) / dx))        targeted: towards the label t

It is the gradient of the mean over draws, not of one draw's log probability (expectation over draws, Athalye et al.
2018):

    d p(y | x, D) / dx = 1/S sum_s p_s (1 - p_s) d log[p_s / (1 - p_s)] / dx        p_s = p(y | x, w_s)

Log-odds have a gradient even where softmax is saturated, and the weights p_s (1 - p_s) are kept in the log domain: a
network whose probabilities are 1 in float32 gets its true gradient, not a zero that would look like robustness.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import entr, logsumexp
from jaxtyping import PyTree
from numpy.typing import ArrayLike

from posteriax._internal.checks import as_key, check_count, check_positive
from posteriax._internal.memory import ChunkPlan
from posteriax.posterior.posterior import Posterior
from posteriax.posterior.prediction import outputs_of, plan_program
from posteriax.problem import Latents, Problem

Target = Literal["next"] | int | Sequence[int] | np.ndarray | None
DrawsInChunks = Callable[[], Iterable[tuple[Latents, np.int32]]]  # each with its number of valid draws


@dataclass(frozen=True)
class PGD:
    """Projected gradient descent on a posterior's predictions of classes, targeted or not, from the clean inputs.

    With `bound` it is the attack of Madry et al. (2018) without its random start: the basic iterative method of Kurakin
    et al. (2017). :func:`px.evaluation.FGSM` is its first step alone.

    Args:
        step: how far every input value moves in an iteration, in the units of x.
        iterations: how many steps.
        target: None to move away from the true label; "next" to move towards the label after the true one,
            (y + 1) mod C; or a label, or one label per example, to move towards.
        draws: how many draws of the posterior the attack uses, the same in all iterations; all if there are fewer.
        bound: the largest change of any input value; None for no bound other than steps and range.
        low, high: the range of input values; None for no limit.

    >>> import equinox as eqx, jax, posteriax as px
    >>> train, (x, y) = px.data.two_moons(train=100, test=50)
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical())
    >>> posterior = px.fit(problem, train, px.MAP(), steps=200, key=0)
    >>> attacked = px.evaluation.PGD(0.1, iterations=5, bound=0.5, low=None, high=None).run(posterior, x, y)
    >>> attacked.accuracy.shape, bool(attacked.accuracy[-1] < attacked.accuracy[0])
    ((6,), True)
    """

    step: float
    iterations: int = 10
    target: Target = None
    draws: int = 10
    bound: float | None = None
    low: float | None = 0.0
    high: float | None = 1.0

    def __post_init__(self) -> None:
        check_positive("step", self.step)
        check_count("iterations", self.iterations)
        check_count("draws", self.draws)
        if self.bound is not None:
            check_positive("bound", self.bound)
        low, high = -np.inf if self.low is None else self.low, np.inf if self.high is None else self.high
        if not low < high:
            raise ValueError(f"low must be less than high, got low={self.low} and high={self.high}")
        object.__setattr__(self, "target", _as_target(self.target))

    def __str__(self) -> str:
        kind = "untargeted" if self.target is None else "targeted"
        within = "" if self.bound is None else f" within {self.bound:g}"
        name, steps = ("FGSM", "one step") if self.iterations == 1 else ("PGD", f"{self.iterations} steps")
        return f"{kind} {name} attack, {steps} of {self.step:g}{within}, at most {self.draws} draws"

    def run(self, posterior: Posterior, x: PyTree, y: ArrayLike, key: int | jax.Array = 0) -> "Attacked":
        """Attack all examples, each by itself, and record how the posterior predicts after every iteration.

        Args:
            posterior: of a problem that predicts classes, one label per example.
            x: clean inputs in floating point, within `low` and `high`, with a leading axis of N examples.
            y: true labels, (N,).
            key: an int or a JAX key for random draws.

        The recorded predictions use the same draws that were attacked: the worst case. Score other draws with
        ``posterior.predict(attacked.x, draws=100, key=1)``. Working memory stays below 256 MB whatever the number of
        draws and examples.
        """
        x, labels, target = self._checked(posterior, x, y)
        total = min(self.draws, posterior.support or self.draws)
        aims = labels if target is None else target
        plan = plan_program(slope_of_draws, posterior.problem, (x, aims), total, posterior.template, x=x)
        chunks_of_draws = _chunks_of_draws(posterior, plan, total, as_key(key))
        parts = []
        for start, (clean, aim) in plan.chunks((x, aims)):
            path = self._follow(plan, chunks_of_draws, clean, aim)
            _check_finite(path[0], start)
            parts.append(path)
        n = len(labels)
        attacked = jax.tree.map(lambda *rows: np.concatenate(rows)[:n], *[path[0] for path in parts])
        predicted, entropies = (np.concatenate(rows, axis=1)[:, :n] for rows in list(zip(*parts, strict=True))[1:])
        return Attacked(self, attacked, labels, target, predicted, entropies)

    def _follow(
        self, plan: ChunkPlan, chunks_of_draws: DrawsInChunks, clean: PyTree, aim: np.ndarray
    ) -> tuple[PyTree, np.ndarray, np.ndarray]:
        """The attacked examples, and the predicted labels and entropies at every iterate, (T + 1, rows) each."""
        x, predictions = clean, []
        for iteration in range(self.iterations + 1):
            slope = reduce(join, (plan.run(draws, (x, aim), count) for draws, count in chunks_of_draws()))
            predictions.append(jax.device_get(predicted(slope.log_probs)))
            if iteration < self.iterations:
                x = _move(self, x, clean, slope.gradient)
        labels, entropies = (np.stack(values) for values in zip(*predictions, strict=True))
        return jax.device_get(x), labels, entropies

    def _checked(self, posterior: Posterior, x: PyTree, y: ArrayLike) -> tuple[PyTree, np.ndarray, np.ndarray | None]:
        """Inputs in the precision that JAX uses, labels and targets (None if untargeted)."""
        if not isinstance(posterior, Posterior):
            raise TypeError(f"posterior must be a posterior from px.fit or px.load, got {type(posterior).__name__}")
        likelihood = posterior.problem.likelihood
        if not likelihood.predicts_classes:
            raise TypeError(
                f"an attack needs a likelihood that predicts classes, such as px.Categorical() or px.Bernoulli(), got "
                f"{likelihood!r}"
            )
        x, labels = posterior.problem.check((x, y))
        shape = jax.eval_shape(likelihood.log_probs, likelihood.latents(), posterior.problem.output_spec(x)).shape
        if len(shape) != 2:
            raise ValueError(f"the attack needs one label per example, but the network predicts {shape[1:-1]} labels")
        for leaf in jax.tree.leaves(x):
            self._check_values(leaf)
        x = jax.tree.map(lambda leaf: np.asarray(leaf, jax.dtypes.canonicalize_dtype(leaf.dtype)), x)
        return x, labels, self._target_labels(labels, shape[-1])

    def _check_values(self, x: np.ndarray) -> None:
        if not jnp.issubdtype(x.dtype, jnp.floating):
            raise TypeError(
                f"x must be floating point, since the attack changes it by small steps, got dtype {x.dtype}: use "
                f"x.astype('float32'), with low= and high= for its range"
            )
        low, high = (None if end is None else np.asarray(end, x.dtype) for end in (self.low, self.high))
        if (low is not None and x.min() < low) or (high is not None and x.max() > high):
            raise ValueError(
                f"x has values from {x.min():.3g} to {x.max():.3g}, outside of low={self.low} and high={self.high}: "
                f"give the range of your inputs, or low=None, high=None if they have none"
            )

    def _target_labels(self, labels: np.ndarray, classes: int) -> np.ndarray | None:
        if self.target is None:
            return None
        if isinstance(self.target, str):
            return ((labels + 1) % classes).astype(np.int32)
        target = np.asarray(self.target, np.int64)
        if target.ndim and len(target) != len(labels):
            raise ValueError(f"target has {len(target)} labels, but x has {len(labels)} examples")
        if target.max() >= classes:
            raise ValueError(
                f"target has the label {target.max()}, but there are {classes} classes (labels 0 to {classes - 1})"
            )
        return np.broadcast_to(target, labels.shape).astype(np.int32)


def FGSM(
    step: float, *, target: Target = None, draws: int = 10, low: float | None = 0.0, high: float | None = 1.0
) -> PGD:
    """The fast gradient sign method (Goodfellow et al. 2015): one step of :class:`px.evaluation.PGD`, of length `step`.

    >>> print(FGSM(0.1))
    untargeted FGSM attack, one step of 0.1, at most 10 draws
    """
    return PGD(step, 1, target, draws, low=low, high=high)


@dataclass(frozen=True, eq=False)
class Attacked:
    """Attacked inputs, and the predictions for them after every iteration; iteration 0 is the clean inputs.

    Args:
        attack: its settings.
        x: the inputs after the last iteration.
        y: the true labels, (N,).
        target: the target labels, (N,); None in an untargeted attack.
        labels: the predicted labels, (iterations + 1, N).
        entropies: the predictive entropies in nats, (iterations + 1, N).

    >>> labels, entropies = np.array([[0, 1, 0], [1, 1, 0]]), np.array([[0.1, 0.5, 0.1], [0.6, 0.5, 0.1]])
    >>> attacked = Attacked(PGD(0.1, iterations=1), np.zeros((3, 2)), np.array([0, 0, 0]), None, labels, entropies)
    >>> attacked.success.tolist(), attacked.accuracy.round(2).tolist(), attacked.entropy.round(2).tolist()
    ([0.0, 0.5], [0.67, 0.33], [0.23, 0.4])
    """

    attack: PGD
    x: PyTree
    y: np.ndarray
    target: np.ndarray | None
    labels: np.ndarray
    entropies: np.ndarray

    @property
    def attackable(self) -> np.ndarray:
        """Which examples count, (N,): those whose clean prediction is not already what the attack wants."""
        if self.target is None:
            return self.labels[0] == self.y
        return (self.labels[0] != self.target) & (self.target != self.y)

    @property
    def success(self) -> np.ndarray:
        """Success rate by iteration, (iterations + 1,): the share of attackable examples that are not predicted as the
        true label, or if targeted, are predicted as the target. NaN if none is attackable."""
        succeeded = self.labels != self.y if self.target is None else self.labels == self.target
        count = self.attackable.sum()
        return succeeded[:, self.attackable].sum(axis=1) / count if count else np.full(len(self.labels), np.nan)

    @property
    def accuracy(self) -> np.ndarray:
        """Share of all examples that are predicted as their true label, by iteration, (iterations + 1,)."""
        return (self.labels == self.y).mean(axis=1)

    @property
    def entropy(self) -> np.ndarray:
        """Mean predictive entropy of all examples in nats, by iteration, (iterations + 1,)."""
        return self.entropies.mean(axis=1)

    def __str__(self) -> str:
        lines = [f"{self.attack}, {len(self.y)} examples", "iteration  success  accuracy  entropy"]
        for i, row in enumerate(zip(self.success, self.accuracy, self.entropy, strict=True)):
            lines.append("{:9d}  {:7.3f}  {:8.3f}  {:7.3f}".format(i, *row))
        return "\n".join(lines)


@partial(jax.jit, static_argnums=0)
def _move(attack: PGD, x: PyTree, clean: PyTree, slope: PyTree) -> PyTree:
    direction = -1.0 if attack.target is None else 1.0

    def moved(value: jax.Array, start: jax.Array, slope: jax.Array) -> jax.Array:
        value = value + (direction * attack.step * jnp.sign(slope)).astype(value.dtype)
        if attack.bound is not None:
            value = jnp.clip(value, start - attack.bound, start + attack.bound)
        return jnp.clip(value, attack.low, attack.high)

    return jax.tree.map(moved, x, clean, slope)


def _chunks_of_draws(posterior: Posterior, plan: ChunkPlan, total: int, key: jax.Array) -> DrawsInChunks:
    """All draws in chunks, with the number of valid draws in each: kept if one chunk holds all, else redrawn."""

    def chunk(first: int) -> tuple[Latents, np.int32]:
        indices, count = plan.chosen(first, total)
        return posterior.draw(key, indices, total), np.int32(count)

    if plan.draws >= total:
        kept = [chunk(0)]
        return lambda: kept
    return lambda: map(chunk, range(0, total, plan.draws))


def _as_target(target: Target) -> Target:
    """None, "next", a label or a tuple of them."""
    if target is None or (isinstance(target, str) and target == "next"):
        return target
    labels = np.asarray(target)
    if labels.dtype.kind not in "iu" or labels.ndim > 1 or not labels.size or labels.min() < 0:
        raise ValueError(f'target must be None, "next", a label or an array of one for each example, got {target!r}')
    return tuple(labels.tolist()) if labels.ndim else int(labels)


def _check_finite(x: PyTree, first: int) -> None:
    for leaf in jax.tree.leaves(x):
        if not np.isfinite(leaf).all():
            example = first + int(np.argwhere(~np.isfinite(leaf))[0][0])
            raise RuntimeError(f"the gradient of the network with respect to x is not finite near example {example}")


class Slope(NamedTuple):
    """The predictive at x and its gradient, from any number of draws."""

    log_probs: jax.Array  # log sum_s p_s of every class, (N, C)
    log_weight: jax.Array  # the largest log[p_s (1 - p_s)] of the label, (N,)
    gradient: PyTree  # d sum_s p_s / dx of the label, divided by the largest p_s (1 - p_s); like x


def join(a: Slope, b: Slope) -> Slope:
    """Combine two sets of draws."""
    largest = jnp.maximum(a.log_weight, b.log_weight)
    ours, theirs = jnp.exp(a.log_weight - largest), jnp.exp(b.log_weight - largest)
    gradient = jax.tree.map(lambda u, v: _per_example(ours, u) + _per_example(theirs, v), a.gradient, b.gradient)
    return Slope(jnp.logaddexp(a.log_probs, b.log_probs), largest, gradient)


def slope_of_draws(problem: Problem, draws: Latents, inputs: tuple[PyTree, jax.Array], count: ArrayLike) -> Slope:
    """The slope at inputs (x, label) over the first `count` draws, one after another to need the memory of one."""
    x, label = inputs

    def draw_slope(index: jax.Array | int) -> Slope:
        draw: Latents = jax.tree.map(lambda leaf: leaf[index], draws)
        _, pull_back, (log_probs, log_weight) = jax.vjp(partial(_log_odds, problem, draw, label), x, has_aux=True)
        (gradient,) = pull_back(jnp.ones_like(log_weight))
        return Slope(log_probs, log_weight, jax.tree.map(_at_least_float32, gradient))

    log_probs, log_weight, gradient = jax.eval_shape(draw_slope, 0)
    none = Slope(
        _full(log_probs, -jnp.inf), _full(log_weight, -jnp.inf), jax.tree.map(lambda a: _full(a, 0.0), gradient)
    )
    return jax.lax.fori_loop(0, count, lambda i, slope: join(slope, draw_slope(i)), none)


def _log_odds(
    problem: Problem, draw: Latents, label: jax.Array, x: PyTree
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    log_probs = problem.likelihood.log_probs(draw.likelihood, outputs_of(problem, draw.network, x))
    is_label = jnp.arange(log_probs.shape[-1]) == label[:, None]
    label_log_prob = logsumexp(log_probs, axis=-1, where=is_label)
    other_log_prob = logsumexp(log_probs, axis=-1, where=~is_label)
    return label_log_prob - other_log_prob, (log_probs, label_log_prob + other_log_prob)


@jax.jit
def predicted(log_sums: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Labels and entropies, from log probabilities up to an additive constant."""
    return log_sums.argmax(axis=-1), entr(jax.nn.softmax(log_sums)).sum(axis=-1)


def _full(spec: jax.ShapeDtypeStruct, value: float) -> jax.Array:
    return jnp.full(spec.shape, value, spec.dtype)


def _per_example(factor: jax.Array, values: jax.Array) -> jax.Array:
    return factor.reshape(-1, *[1] * (values.ndim - 1)) * values


def _at_least_float32(values: jax.Array) -> jax.Array:
    return values.astype(jnp.promote_types(values.dtype, jnp.float32))
