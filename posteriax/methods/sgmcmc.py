"""Stochastic-gradient MCMC: SGLD, SGHMC, cyclical and preconditioned, in one update.

    m <- b m + sqrt(e) g + sqrt(2 (1 - b)) M^(1/2) xi          g: gradient of the log joint, estimated from a minibatch
    w <- w + sqrt(e) M^-1 m                                    xi: standard normal

b = 0 is SGLD: w <- w + e M^-1 g + sqrt(2 e) M^(-1/2) xi. The noise is exactly what the step size e requires; the
temperature is part of the log joint. Targets exp(log_joint) as e goes to 0 and batches grow.
(Welling and Teh 2011; Chen et al. 2014; cyclical: Zhang et al. 2020; preconditioned: Li et al. 2016)
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from posteriax._internal.checks import check_positive
from posteriax.data.batches import Batch
from posteriax.methods.method import Kernel, Method, RunLength, Task, check_start
from posteriax.posterior.posterior import Posterior
from posteriax.problem import Latents

DECAY, OFFSET = 0.99, 1e-7  # of the running mean square of gradients, and added to its root


@dataclass(frozen=True, eq=False)
class SGHMC(Method):
    """Stochastic-gradient Hamiltonian Monte Carlo. ``px.fit(..., px.SGHMC(1e-5), draws=100, chains=2)``.

    Args:
        step_size: e, for gradients of the *summed* log joint: a small fraction of the smallest posterior variance. If
            not given, 0.02 T / N, or less if the priors are narrower. With `preconditioner`, e is in units of it.
        momentum: b, at least 0 and less than 1.
        warmup_epochs: passes over the data that are discarded.
        first_step_size: the initial step size, which decays along a cosine to `step_size` over the warm-up. If not
            given, it is `step_size` from the first step on.
        epochs_per_draw: passes over the data from one draw to the next: with `cyclical`, the length of a cycle.
        cyclical: the step size decays from `step_size` to 0 along a cosine in every cycle, and the draw is taken at its
            end. Every cycle may find another mode.
        preconditioner: "rmsprop" sets M to the root mean square of the gradients seen in the warm-up, and keeps it
            fixed after that: an M that kept following the weights would change the sampled density.
        start: "network", the network's own weights; "prior"; or a posterior whose draws the chains start from.

    >>> import equinox as eqx, jax, posteriax as px
    >>> (x, y), _ = px.data.two_moons(train=200)
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 4, 1, key=jax.random.key(0)), px.Categorical())
    >>> method = px.SGHMC(1e-4, warmup_epochs=5, epochs_per_draw=2)
    >>> posterior = px.fit(problem, (x, y), method, draws=10, chains=2, batch_size=50, key=0)
    >>> posterior.draws.network.layers[0].weight.shape
    (2, 10, 4, 2)
    """

    step_size: float | None = None
    momentum: float = 0.9
    warmup_epochs: float = field(default=100.0, kw_only=True)
    epochs_per_draw: float = field(default=10.0, kw_only=True)
    first_step_size: float | None = field(default=None, kw_only=True)
    cyclical: bool = field(default=False, kw_only=True)
    preconditioner: Literal["rmsprop"] | None = field(default=None, kw_only=True)
    start: Literal["network", "prior"] | Posterior = field(default="network", kw_only=True)
    samples: ClassVar[bool] = True
    arviz_names: ClassVar[Mapping[str, str]] = {"log_joint": "lp"}

    def __post_init__(self) -> None:
        for name in ("step_size", "first_step_size"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))
        for name in ("warmup_epochs", "epochs_per_draw"):
            check_positive(name, getattr(self, name))
        if not 0.0 <= self.momentum < 1.0:
            raise ValueError(f"momentum must be at least 0 and less than 1, got {self.momentum}")
        if self.preconditioner not in (None, "rmsprop"):
            raise ValueError(f'preconditioner must be None or "rmsprop", got {self.preconditioner!r}')
        if self.cyclical and self.first_step_size is not None:
            raise ValueError("cyclical runs warm up at step_size: leave first_step_size out")
        check_start(self.start, ("prior", "network"))

    def run_length(self, steps_per_epoch: int) -> RunLength:
        return RunLength(
            max(1, round(self.warmup_epochs * steps_per_epoch)), max(1, round(self.epochs_per_draw * steps_per_epoch))
        )

    def bind(self, task: Task) -> "SGHMCKernel":
        task.problem.require_density("SG-MCMC")
        step_size, notes = self.step_size, ()  # type: float | None, tuple[str, ...]
        if step_size is None:
            step_size = self._default_step_size(task)
            notes = (f"step_size was not given: {step_size:.2g} was used",)
        return SGHMCKernel(method=self, task=task, notes=notes, step_size=step_size)

    def _default_step_size(self, task: Task) -> float:
        temperature = task.problem.temperature
        if self.preconditioner:  # the root mean square of gradients is of the order of sqrt(N) / scale
            return 0.02 * temperature / task.counted_examples**0.5
        narrowest = min(task.problem.leaf_scales)
        return min(0.02 * temperature / task.counted_examples, 0.1 * temperature * narrowest**2)


@dataclass(frozen=True, kw_only=True, eq=False)
class SGHMCKernel(Kernel):
    method: SGHMC
    step_size: float  # after the warm-up

    def init(self, key: jax.Array, start: Latents, batch: Batch) -> "State":
        momentum = jax.tree.map(jnp.zeros_like, start)
        squares = None if self.method.preconditioner is None else self._first_squares()
        return State(start, momentum, squares, jnp.int32(0))

    def step(self, key: jax.Array, state: "State", batch: Batch) -> tuple["State", "Info"]:
        problem = self.problem
        key_network, key_noise = jax.random.split(key)
        log_joint, gradient = jax.value_and_grad(lambda latents: problem.log_joint(latents, batch, key=key_network))(
            state.latents
        )
        squares = self._squares(state, gradient)
        step_size = self._step_size_at(state.step)
        latents, momentum = update(
            key_noise, state.latents, state.momentum, gradient, _masses(squares), step_size, self.method.momentum
        )
        return State(latents, momentum, squares, state.step + 1), Info(log_joint, step_size)

    def draw(self, state: "State") -> Latents:
        return state.latents

    def _step_size_at(self, step: jax.Array) -> jax.Array:
        last, task = self.step_size, self.task
        if self.method.cyclical:
            phase = jnp.maximum(step - task.warmup, 0) % task.thin / task.thin
            return jnp.where(step < task.warmup, last, last * _cosine(phase))
        first = self.method.first_step_size or last
        return last + (first - last) * _cosine(jnp.minimum(step / task.warmup, 1.0))

    def _first_squares(self) -> Latents:
        """A rough size of squared gradients: an initial value that is too small would make the first steps explode."""
        problem, num_examples = self.problem, self.task.counted_examples
        leaves, treedef = jax.tree.flatten(problem.latents)
        first = [
            jnp.full_like(leaf, (num_examples + scale**-2) / problem.temperature**2)
            for leaf, scale in zip(leaves, problem.leaf_scales, strict=True)
        ]
        return jax.tree.unflatten(treedef, first)

    def _squares(self, state: "State", gradient: Latents) -> Latents | None:
        if state.squares is None:
            return None
        decay = jnp.where(state.step < self.task.warmup, DECAY, 1.0)
        return jax.tree.map(lambda v, g: decay * v + (1 - decay) * jnp.square(g), state.squares, gradient)


def SGLD(step_size: float | None = None, **settings: Any) -> SGHMC:
    """Stochastic-gradient Langevin dynamics: :class:`SGHMC` without momentum, with the same settings.

    >>> SGLD(1e-5, warmup_epochs=10).momentum
    0.0
    """
    return SGHMC(step_size, 0.0, **settings)


class State(NamedTuple):
    latents: Latents
    momentum: Latents
    squares: Latents | None  # running mean of squared gradients, if there is a preconditioner
    step: jax.Array


class Info(NamedTuple):
    log_joint: jax.Array  # its estimate from the step's batch
    step_size: jax.Array


def update(
    key: jax.Array,
    latents: Latents,
    momentum: Latents,
    gradient: Latents,
    masses: Latents | None,
    step_size: jax.Array,
    decay: float,
) -> tuple[Latents, Latents]:
    """The update that all these methods share: new latents and momentum. `masses` is M, or None for the identity."""
    root, spread = jnp.sqrt(step_size), np.sqrt(2 * (1 - decay))
    if masses is None:
        masses = jax.tree.map(lambda w: jnp.ones((), w.dtype), latents)

    def moved(key: jax.Array, w: jax.Array, m: jax.Array, g: jax.Array, mass: jax.Array) -> jax.Array:
        noise = jax.random.normal(key, w.shape, w.dtype)
        return decay * m + root * g + spread * jnp.sqrt(mass) * noise

    keys = optax.tree_utils.tree_split_key_like(key, latents)
    after = jax.tree.map(moved, keys, latents, momentum, gradient, masses)
    new = jax.tree.map(lambda w, m, mass: (w + root * m / mass).astype(w.dtype), latents, after, masses)
    return new, jax.tree.map(lambda w, m: m.astype(w.dtype), latents, after)


def _masses(squares: Latents | None) -> Latents | None:
    return None if squares is None else jax.tree.map(lambda v: jnp.sqrt(v) + OFFSET, squares)


def _cosine(phase: jax.Array) -> jax.Array:
    """1 at 0, 0 at 1."""
    return 0.5 * (1 + jnp.cos(jnp.pi * phase))
