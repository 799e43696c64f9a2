"""Microcanonical Langevin Monte Carlo: the cheapest way to a trustworthy sample.

The weights move at constant speed along a direction u that turns towards the gradient of the log joint and is
refreshed by a little noise, so that it decorrelates over a length L. There is no accept step: the step size is tuned
until the energy error per step and dimension has the variance `energy_variance`, which sets the bias (below). Started
from the members of a deep ensemble (``start="map"`` or a fitted one), this gives microcanonical Langevin ensembles.

Targets exp(log_joint) as `energy_variance` goes to 0 (Robnik et al. 2023). The bias is largest in the narrowest
directions, whose variance comes out too small. As a share of the true one, along the 5 narrowest directions of a
rotated Gaussian of condition 100 (docs/samplers.md has the errors):

    dimensions                  10      50      200     1000
    energy_variance = 5e-4      0.985   0.936   0.913   0.899      BlackJAX's default
    energy_variance = 2e-5      0.998   0.995   0.981   0.982      the default here, with 0.7 of the step size

The tuning follows BlackJAX's, but one step at a time, so that a run can be interrupted and resumed, and with running
moments, so that its memory does not grow.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posteriax._internal.checks import check_positive
from posteriax.data.batches import Batch
from posteriax.methods.method import Task
from posteriax.methods.sampling.full_batch import FullBatchKernel, FullBatchSampler
from posteriax.methods.sampling.masses import (
    Correlated,
    Diagonal,
    LearnedMasses,
    Masses,
    check_masses,
    inverse_masses,
    learned_masses,
    stretch_of,
)
from posteriax.methods.sampling.units import Standardised
from posteriax.posterior.trace import Trace
from posteriax.problem import Latents

if TYPE_CHECKING:
    from blackjax.mcmc.integrators import IntegratorState
    from blackjax.mcmc.mclmc import MCLMCInfo

UNBOUNDED = 1e30  # a step size that is never reached
WILD = 1e4  # times the target of the squared energy error: such a warm-up step is rejected and the direction redrawn
FORGET = 149.0 / 151.0  # the tuning averages over about 150 steps at first, and over the last quarter of them later


@dataclass(frozen=True, kw_only=True, eq=False)
class MCLMC(FullBatchSampler):
    """Microcanonical Langevin Monte Carlo. ``px.fit(..., px.MCLMC(start="map"), draws=500, chains=4)``.

    Args:
        warmup: steps that are discarded, and tune step size and scales.
        thin: steps from one draw to the next. A step is one or two gradients, not a trajectory, so successive states
            are strongly correlated.
        energy_variance: of the energy error per step and dimension; smaller is less biased and slower. The default
            left variances up to 2 % too small in the narrowest directions of Gaussians of up to 1,000 dimensions, which
            is the noise of 5,000 independent draws; 5e-4 takes steps 1.4 times as long and left them 10 % too small.
        step_size: if given, it is used unchanged, in units of the priors' scales, and nothing is tuned.
        masses: as for :class:`HMC`: the units in which the direction is isotropic.
        length: the distance over which the direction decorrelates, in units of the posterior's scales;
            sqrt(number of weights) if not given.
        start, micro_batches: as for :class:`HMC`. With "map", every chain starts at a mode of its own.

    >>> import equinox as eqx, jax, posteriax as px
    >>> (x, y), _ = px.data.two_moons(train=50)
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 4, 1, key=jax.random.key(0)), px.Categorical())
    >>> posterior = px.fit(problem, (x, y), px.MCLMC(warmup=100), draws=10, chains=2, key=0)
    >>> posterior.trace["step_size"].shape
    (2, 300)
    """

    warmup: int = 2000
    thin: int = 20
    energy_variance: float = 2e-5
    step_size: float | None = None
    masses: Masses | None = None
    length: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_masses(self.masses, self.step_size)
        check_positive("energy_variance", self.energy_variance)
        for name in ("step_size", "length"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))

    def bind(self, task: Task) -> "MCLMCKernel":
        from blackjax import mclmc

        if sum(leaf.size for leaf in jax.tree.leaves(task.problem.latents)) < 2:
            raise ValueError("MCLMC needs at least two latent variables: use px.HMC()")
        self.check_task(task)
        standardised, transition = Standardised(task.problem), mclmc.build_kernel()
        masses = learned_masses("prior" if self.step_size else self.masses, task.problem, self.warmup)
        return MCLMCKernel(method=self, task=task, standardised=standardised, transition=transition, masses=masses)


@dataclass(frozen=True, kw_only=True, eq=False)
class MCLMCKernel(FullBatchKernel):
    method: MCLMC
    transition: Callable[..., tuple["IntegratorState", "MCLMCInfo"]]
    masses: LearnedMasses | None

    def init(self, key: jax.Array, start: Latents, batch: Batch) -> "State":
        import blackjax

        key_start, key_direction = jax.random.split(key)
        position, variances = self.begin(key_start, start, batch)
        chain = blackjax.mclmc.init(position, self.log_joint_of_vector(batch), key_direction)
        masses = None if self.masses is None else self.masses.start(variances)
        return State(chain, self._begin_tuning(position), masses, jnp.int32(0))

    def _begin_tuning(self, position: jax.Array) -> "StepSizeTuning":
        zero = jnp.zeros((), position.dtype)
        first = self.method.step_size or 0.25 * position.size**0.5
        return StepSizeTuning(zero + first, zero + UNBOUNDED, excess=zero, weight=zero)

    def step(self, key: jax.Array, state: "State", batch: Batch) -> tuple["State", "Info"]:
        from blackjax.util import generate_unit_vector

        key, key_turn = jax.random.split(key)
        method, tuning, masses, position = self.method, state.tuning, state.masses, state.chain.position
        length = method.length or position.size**0.5 * stretch_of(masses)
        log_joint = self.log_joint_of_vector(batch)
        chain, result = self.transition(
            key, state.chain, log_joint, inverse_masses(masses, position), length, tuning.step_size
        )
        if method.step_size is None:
            warming = state.step < method.warmup
            target = position.size * method.energy_variance + jnp.square(rounding_error(chain.logdensity))
            wild = warming & (jnp.square(result.energy_change) > WILD * target)
            turned = state.chain._replace(momentum=generate_unit_vector(key_turn, chain.position))
            chain = jax.tree.map(partial(jnp.where, wild), turned, chain)
            tuned = tune_step_size(tuning, result.energy_change, result.nonans, target, forget(state.step))
            if self.masses is not None and masses is not None:
                masses = self.masses.learn(masses, state.step, chain.position, chain.logdensity_grad)
                renewed = self.masses.renews(state.step)
                tuned = jax.tree.map(partial(jnp.where, renewed), self._begin_tuning(position), tuned)
            update, before = (tuned, masses), (tuning, state.masses)
            tuning, masses = jax.tree.map(partial(jnp.where, warming), update, before)
        info = Info(
            log_joint=chain.logdensity,
            energy_change=result.energy_change,
            divergent=~result.nonans,
            step_size=state.tuning.step_size,
        )
        return State(chain, tuning, masses, state.step + 1), info

    def draw(self, state: "State") -> Latents:
        return self.standardised.latents(state.chain.position)

    def check_warmup(self, trace: Trace) -> None:
        half = np.atleast_2d(trace["divergent"])[:, self.method.warmup // 2 :]
        lost = half.mean(axis=1) > 0.5
        if lost.any():
            last = float(np.atleast_2d(trace["step_size"])[lost][0, -1])
            raise RuntimeError(
                f"MCLMC chain {int(np.argmax(lost))} of {len(lost)}: most steps of the warm-up's second half had no "
                f'finite log joint (last step size {last:.2g}). Try step_size={last / 10:.1g}, or start="map".'
            )


class StepSizeTuning(NamedTuple):
    step_size: jax.Array
    largest: jax.Array  # step size that has not led to infinities
    excess: jax.Array  # running sum of squared energy errors at the current step size, as multiples of their target
    weight: jax.Array  # of the steps in that sum


class State(NamedTuple):
    chain: "IntegratorState"  # position as one vector, direction, log density, gradient
    tuning: StepSizeTuning
    masses: Diagonal | Correlated | None  # None if they are the priors'
    step: jax.Array


class Info(NamedTuple):
    log_joint: jax.Array
    energy_change: jax.Array
    divergent: jax.Array
    step_size: jax.Array


def rounding_error(log_density: jax.Array) -> jax.Array:
    """Roughly the part of the energy error that is rounding, whatever the step size."""
    return 4 * jnp.finfo(log_density.dtype).eps * jnp.abs(log_density)


def forget(step: jax.Array) -> jax.Array:
    """The weight of the running average at the next step."""
    return jnp.maximum(FORGET, 1.0 - 4.0 / (step + 4.0))


def tune_step_size(
    tuning: StepSizeTuning, energy_change: jax.Array, finite: jax.Array, target: jax.Array, keep: jax.Array
) -> StepSizeTuning:
    """The step size at which the squared energy error would be `target`, which grows as its sixth power.

    A running average over steps, in which errors that are far too large or too small count less. It is kept relative
    to the current step size, since sixth powers of small numbers underflow in float32.
    """
    finite = finite & jnp.isfinite(energy_change)
    ratio = jnp.square(jnp.where(finite, energy_change, 0.0)) / target + 1e-8
    trust = jnp.exp(-0.5 * jnp.square(jnp.log(ratio) / 9.0)) * finite
    excess = keep * tuning.excess + trust * ratio
    weight = keep * tuning.weight + trust
    # the bound is raised again slowly: it may have been set far from the bulk
    largest = jnp.where(finite, jnp.minimum(1.02 * tuning.largest, UNBOUNDED), 0.8 * tuning.step_size)
    change = jnp.where(weight > 0, (excess / jnp.maximum(weight, 1e-30)) ** (-1 / 6), 1.0)
    step_size = jnp.minimum(change * tuning.step_size, largest)
    return StepSizeTuning(step_size, largest, excess * (step_size / tuning.step_size) ** 6, weight)
