"""Signal and noise of the gradients that training sees, for every leaf, in windows of a few batches.

    paper:   mean over the leaf of  E[g^2] / Var[g]
    plain:   mean over the leaf of  E[g]^2 / Var[g]  =  paper - (W - 1) / W
    pooled:  sum over the leaf of E[g^2]  /  sum over the leaf of Var[g]
    median:  median over the leaf of E[g^2] / Var[g]

with E and Var over a window of W batches, for every parameter; Var divides by W - 1. For pure noise the expected paper
value is (W - 1) / W + (W - 1) / (W (W - 3)), 1.03 for ten batches, and the plain one 0.13; with an infinite window they
are 1 and 0. Parameters whose gradient does not vary are left out. Those whose gradient hardly varies (scales of pruned
units, which see only the KL) can dominate a mean of ratios, but neither the pooled ratio nor the median. "paper" is the
k-tied paper (Swiatkowski et al. 2020).
"""

import functools
from collections import namedtuple
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from posteriax._internal.checks import check_count
from posteriax._internal.running_moments import add_value
from posteriax.data.batches import Batch
from posteriax.methods.ensemble import same_for_all_members
from posteriax.methods.method import Info, Kernel, Method, OptimizingKernel, State, Task
from posteriax.posterior.posterior import Posterior
from posteriax.posterior.trace import Trace
from posteriax.problem import Latents

FIELD = "gradient_noise"
NONE = -1.0  # finite, as all states must be


@dataclass(frozen=True)
class GradientNoise:
    """What ``px.fit(..., record=px.run.GradientNoise())`` records; :func:`px.analysis.gradient_noise` reads it.

    Nothing is computed between windows, so that a run costs at most a few per cent more. Recording does not change the
    run.

    Args:
        window: batches per window; with 2 or 3 the averaged ratios have no finite expectation.
        every: steps from the start of one window to the start of the next.

    >>> import equinox as eqx, jax, posteriax as px
    >>> from posteriax import families as q
    >>> (x, y), _ = px.data.two_moons()
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical())
    >>> record = px.run.GradientNoise(window=10, every=20)
    >>> posterior = px.fit(problem, (x, y), px.VI(q.Normal()), steps=50, key=0, record=record)
    >>> px.analysis.gradient_noise(posterior).steps.tolist()
    [10, 30, 50]
    """

    window: int = 10
    every: int = 100

    def __post_init__(self) -> None:
        check_count("window", self.window)
        check_count("every", self.every)
        if self.window < 2:
            raise ValueError("window must be at least 2 batches: one gradient has no variance")
        if self.every < self.window:
            raise ValueError(f"every must be at least the window of {self.window} batches, got {self.every}")


class RecordingState(NamedTuple):
    """An optimiser's state, and the running moments of the gradients it is given."""

    inner: optax.OptState
    mean: optax.Updates
    variance: optax.Updates
    step: jax.Array
    ratios: jax.Array  # (leaves, 4): paper, plain, pooled, median, at a window's last step; NONE otherwise


def record_gradients(method: Method, noise: GradientNoise) -> Method:
    """The same method, which also records the noise of its gradients."""
    if method.samples:
        raise _no_optimizer(method)
    return RecordedMethod(method, noise)


@dataclass(frozen=True, eq=False)
class RecordedMethod(Method):
    """A method that optimises, with a recorder before its optimiser."""

    inner: Method
    noise: GradientNoise

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def start(self) -> Any:
        return self.inner.start

    def bind(self, task: Task) -> "RecordingKernel":
        kernel = self.inner.bind(task)
        if not isinstance(kernel, OptimizingKernel):
            raise _no_optimizer(self.inner)
        kernel = replace(kernel, optimizer=_recording(kernel.optimizer, self.noise))
        return RecordingKernel(method=self, task=task, notes=kernel.notes, inner=kernel)


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordingKernel(Kernel):
    inner: OptimizingKernel

    def init(self, key: jax.Array, start: Latents, batch: Batch) -> State:
        return self.inner.init(key, start, batch)

    def step(self, key: jax.Array, state: State, batch: Batch) -> tuple[State, Info]:
        state, info = self.inner.step(key, state, batch)
        return state, _extended(info._fields)(*info, state.optimizer.ratios)

    def finish(self, states: State, draws: Latents | None, trace: Trace) -> Posterior:
        if FIELD in trace:  # keep only the last step of each window
            values = trace[FIELD]
            single = values.ndim == 3  # (steps, leaves, 4), or members before that
            ends = (values != NONE).any(axis=(1, 2) if single else (0, 2, 3))
            kept = {
                FIELD: np.compress(ends, values, axis=0 if single else 1),
                f"{FIELD}_step": np.flatnonzero(ends) + 1,
            }
            trace = replace(trace, arrays={**trace.arrays, **kept})
        return self.inner.finish(states, draws, trace)


@functools.cache  # one class, however often a step is traced: JAX compares the classes of two results
def _extended(fields: tuple[str, ...]) -> type:
    return namedtuple("Info", (*fields, FIELD))


def _no_optimizer(method: Method) -> ValueError:
    return ValueError(
        f"record=px.run.GradientNoise() is for methods with an optimizer (px.VI, px.MAP), not {method.name}"
    )


def _recording(optimizer: optax.GradientTransformation, noise: GradientNoise) -> optax.GradientTransformation:
    """The same optimiser, with the signal and noise of its gradients in its state."""

    def init(params: optax.Params) -> RecordingState:
        zeros = jax.tree.map(jnp.zeros_like, params)
        none = jnp.full((len(jax.tree.leaves(params)), 4), NONE)
        return RecordingState(optimizer.init(params), zeros, zeros, jnp.int32(0), none)

    def update(
        gradient: optax.Updates, state: RecordingState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, RecordingState]:
        in_window = same_for_all_members(state.step % noise.every)
        mean, variance = jax.lax.cond(
            in_window < noise.window,
            lambda: _accumulate(gradient, state.mean, state.variance, in_window),
            lambda: (state.mean, state.variance),
        )
        ratios = jax.lax.cond(
            in_window == noise.window - 1,
            lambda: _ratios(mean, variance, noise.window),
            lambda: jnp.full_like(state.ratios, NONE),
        )
        updates, inner = optimizer.update(gradient, state.inner, params)
        return updates, RecordingState(inner, mean, variance, state.step + 1, ratios)

    return optax.GradientTransformation(init, update)


def _accumulate(
    gradient: optax.Updates, mean: optax.Updates, variance: optax.Updates, in_window: jax.Array
) -> tuple[optax.Updates, optax.Updates]:
    # a window starts from zero: subtracting the last one's mean would leave its rounding, a variance of nearly 0
    mean = jax.tree.map(lambda m: jnp.where(in_window == 0, jnp.zeros_like(m), m), mean)
    return add_value(mean, variance, gradient, 1 / (in_window + 1))


def _ratios(mean: optax.Updates, variances: optax.Updates, window: int) -> jax.Array:
    def leaf_ratios(m: jax.Array, v: jax.Array) -> jax.Array:
        variance = v * (window / (window - 1))
        varies = variance > 0
        ratios = jnp.square(m) / jnp.where(varies, variance, 1.0)
        plain = jnp.where(varies, ratios, 0.0).sum() / jnp.maximum(varies.sum(), 1)
        median = jnp.nan_to_num(jnp.nanmedian(jnp.where(varies, ratios, jnp.nan)))
        pooled = jnp.where(varies, jnp.square(m), 0.0).sum() / jnp.where(varies.any(), variance.sum(), 1.0)
        part = (window - 1) / window  # E[g^2] is E[g]^2 plus this fraction of Var[g]
        return jnp.stack([plain + part, plain, pooled + part, median + part])

    return jnp.stack(
        [leaf_ratios(m, v) for m, v in zip(jax.tree.leaves(mean), jax.tree.leaves(variances), strict=True)]
    )
