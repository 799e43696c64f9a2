"""Stochastic-gradient MCMC: SGLD, SGHMC, cyclical and preconditioned, in one update.

    m <- b m + sqrt(e) g + sqrt(2 (1 - b)) M^(1/2) xi          g: gradient of the log joint, estimated from a minibatch
    w <- w + sqrt(e) M^-1 m                                    xi: standard normal

b = 0 is SGLD: w <- w + e M^-1 g + sqrt(2 e) M^(-1/2) xi. The noise is exactly what the step size e implies; the
temperature is in the log joint. Targets exp(log_joint) as e goes to 0 and batches grow. (METHODS C.3)
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posteriax._internal.checks import check_positive
from posteriax.data import Batch
from posteriax.methods.method import Lengths, Target
from posteriax.posterior import DrawsPosterior, Posterior, Trace
from posteriax.problem import Unknowns

STARTS = ("prior", "network")
DECAY, OFFSET = 0.99, 1e-7  # of the running mean square of gradients, and added to its root (METHODS C.3)


@dataclass(frozen=True, eq=False)
class SGHMC:
    """Stochastic-gradient Hamiltonian Monte Carlo. ``px.fit(..., px.SGHMC(1e-5), draws=100, chains=2)``.

    Args:
        step_size: e, of gradients of the *summed* log joint: a small fraction of the smallest posterior variance. If
            not given, 0.02 T / N, or less where the priors are narrower. With `preconditioner`, e is in units of it.
        momentum: b, at least 0 and less than 1.
        warmup_epochs: passes over the data that are thrown away.
        first_step_size: where the step size starts; it falls along a cosine to `step_size` over the warm-up. If not
            given, it is `step_size` from the first step on.
        epochs_per_draw: passes from one draw to the next: with `cyclical`, the length of a cycle.
        cyclical: the step size falls from `step_size` to 0 along a cosine in every cycle, and the draw is taken at its
            end. Every cycle may find another mode.
        preconditioner: "rmsprop" takes M = the root of the mean square of the gradients seen in the warm-up, and keeps
            it fixed from then on: an M that goes on following the weights would change what is sampled.
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
    full_batch: ClassVar[bool] = False
    samples: ClassVar[bool] = True

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
        if not isinstance(self.start, Posterior) and self.start not in STARTS:
            raise ValueError(f"start must be one of {', '.join(STARTS)}, or a posterior, got {self.start!r}")

    def lengths(self, steps_per_epoch: int) -> Lengths:
        return Lengths(
            max(1, round(self.warmup_epochs * steps_per_epoch)), max(1, round(self.epochs_per_draw * steps_per_epoch))
        )

    def prepare(self, target: Target) -> tuple[str, ...]:
        target.problem.require_density("SG-MCMC")
        if self.step_size is not None:
            return ()
        return (f"step_size was not given: {self._last_step_size(target):.2g} was used",)

    def init(self, target: Target, key: jax.Array, start: Unknowns, batch: Batch) -> "State":
        if self.start == "prior":
            start = target.problem.sample_prior(key)
        momentum = jax.tree.map(jnp.zeros_like, start)
        squares = None if self.preconditioner is None else self._first_squares(target)
        return State(start, momentum, squares, jnp.int32(0))

    def step(self, target: Target, key: jax.Array, state: "State", batch: Batch) -> tuple["State", "Info"]:
        problem = target.problem
        key_network, key_noise = jax.random.split(key)
        log_joint, gradient = jax.value_and_grad(lambda unknowns: problem.log_joint(unknowns, batch, key=key_network))(
            state.unknowns
        )
        squares = self._squares(target, state, gradient)
        step_size = self._step_size(target, state.step)
        unknowns, momentum = update(
            key_noise, state.unknowns, state.momentum, gradient, _masses(squares), step_size, self.momentum
        )
        return State(unknowns, momentum, squares, state.step + 1), Info(log_joint, step_size)

    def draw(self, target: Target, state: "State") -> Unknowns:
        return state.unknowns

    def inspect(self, trace: Trace) -> None:
        """Nothing is accepted or refused; values that are not finite stop the run by themselves."""

    def finish(self, target: Target, states: "State", draws: Any, trace: Trace) -> Posterior:
        return DrawsPosterior(target.problem, trace, draws)

    def _last_step_size(self, target: Target) -> float:
        if self.step_size is not None:
            return self.step_size
        temperature = target.problem.temperature
        if self.preconditioner:  # the root mean square of gradients is of the order of sqrt(N) / scale
            return 0.02 * temperature / target.num_examples**0.5
        narrowest = min(target.problem.leaf_scales)
        return min(0.02 * temperature / target.num_examples, 0.1 * temperature * narrowest**2)

    def _step_size(self, target: Target, step: jax.Array) -> jax.Array:
        last = self._last_step_size(target)
        if self.cyclical:
            cycle = self.lengths(target.steps_per_epoch).thin
            place = jnp.maximum(step - target.warmup, 0) % cycle / cycle
            return jnp.where(step < target.warmup, last, last * _cosine(place))
        first = self.first_step_size or last
        return last + (first - last) * _cosine(jnp.minimum(step / target.warmup, 1.0))

    def _first_squares(self, target: Target) -> Unknowns:
        """What squared gradients are about: a start that is too small would make the first steps explode."""
        problem = target.problem
        leaves, treedef = jax.tree.flatten(problem.unknowns)
        first = [
            jnp.full_like(leaf, (target.num_examples + scale**-2) / problem.temperature**2)
            for leaf, scale in zip(leaves, problem.leaf_scales, strict=True)
        ]
        return jax.tree.unflatten(treedef, first)

    def _squares(self, target: Target, state: "State", gradient: Unknowns) -> Any:
        if state.squares is None:
            return None
        decay = jnp.where(state.step < target.warmup, DECAY, 1.0)
        return jax.tree.map(lambda v, g: decay * v + (1 - decay) * jnp.square(g), state.squares, gradient)


def SGLD(step_size: float | None = None, **settings: Any) -> SGHMC:
    """Stochastic-gradient Langevin dynamics: :class:`SGHMC` without momentum, with the same settings.

    >>> SGLD(1e-5, warmup_epochs=10).momentum
    0.0
    """
    return SGHMC(step_size, 0.0, **settings)


class State(NamedTuple):
    unknowns: Unknowns
    momentum: Unknowns
    squares: Any  # running mean of squared gradients, or None
    step: jax.Array


class Info(NamedTuple):
    log_joint: jax.Array  # its estimate from the step's batch
    step_size: jax.Array


def update(
    key: jax.Array,
    unknowns: Unknowns,
    momentum: Unknowns,
    gradient: Unknowns,
    masses: Any,
    step_size: Any,
    decay: float,
) -> tuple[Unknowns, Unknowns]:
    """The one update of all these methods: new unknowns and momentum. `masses` is M, or None for the identity."""
    leaves, treedef = jax.tree.flatten(unknowns)
    keys = jax.random.split(key, len(leaves))
    root, spread = jnp.sqrt(step_size), np.sqrt(2 * (1 - decay))
    all_masses = [jnp.ones((), leaf.dtype) for leaf in leaves] if masses is None else jax.tree.leaves(masses)
    new_leaves, new_momenta = [], []
    for k, w, m, g, mass in zip(
        keys, leaves, jax.tree.leaves(momentum), jax.tree.leaves(gradient), all_masses, strict=True
    ):
        noise = jax.random.normal(k, w.shape, w.dtype)
        moved = decay * m + root * g + spread * jnp.sqrt(mass) * noise
        new_momenta.append(moved.astype(w.dtype))
        new_leaves.append((w + root * moved / mass).astype(w.dtype))
    return jax.tree.unflatten(treedef, new_leaves), jax.tree.unflatten(treedef, new_momenta)


def _masses(squares: Any) -> Any:
    return None if squares is None else jax.tree.map(lambda v: jnp.sqrt(v) + OFFSET, squares)


def _cosine(place: jax.Array) -> jax.Array:
    """1 at 0, 0 at 1."""
    return 0.5 * (1 + jnp.cos(jnp.pi * place))
