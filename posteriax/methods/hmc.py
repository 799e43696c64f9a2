"""Hamiltonian Monte Carlo with the full data set: the yardstick.

    H(w, m) = -log_joint(w) + |m|^2 / 2     leapfrog for a time tau, then accept with min(1, exp(-dH)), else stay

Targets exp(log_joint) exactly. The trajectory lasts tau = pi * scale / 2 * sqrt(T), a quarter of the period of a
Gaussian prior with that scale: with no data one trajectory forgets where it came from. Where leaves have priors of
different scales s_l, their masses are (scale / s_l)^2, so that all have the same period. (METHODS C.1, trap 0.2.11)
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from posteriax.checks import check_count, check_positive
from posteriax.methods.full_batch import FullBatchSampler, log_likelihood_of, refuse_stuck_chains
from posteriax.methods.mass import metric, reference_scale
from posteriax.methods.method import Target
from posteriax.problem import Batch, Unknowns
from posteriax.trace import Trace

DIVERGENT = 1000.0  # nats of energy error


@dataclass(frozen=True, kw_only=True, eq=False)
class HMC(FullBatchSampler):
    """Full-batch Hamiltonian Monte Carlo. ``px.fit(..., px.HMC(), draws=200, chains=4)``.

    Args:
        step_size: of the leapfrog, in units of the weights; adapted in warm-up if not given.
        trajectory: the time tau of one trajectory, in the same units; pi * prior scale / 2 * sqrt(T) if not given.
        warmup: transitions that are thrown away and, without `step_size`, adapt it.
        target_acceptance: what the adaptation aims at.
        jitter: every trajectory's length is drawn uniformly within this fraction of tau. A fixed length can be a
            whole number of periods of some direction, which would then never move.
        start: "prior" draws each chain's start from the prior, so that chains that agree have really met;
            "map" starts at the top of the log joint nearest to the network's own weights; "network" at those weights;
            a posterior, such as that of a deep ensemble, gives every chain one of its draws.
        max_leapfrogs: no trajectory takes more steps than this, whatever the adaptation tries.
        thin: keep the last of every `thin` states as a draw.
        micro_batches: how many parts the data are cut into, to save memory. The draws do not depend on it, but for
            rounding.
        float64_accept: whether to accept or reject by energies computed in double precision, for data so large or
            likelihoods so sharp that float32 cannot tell two energies apart. Needs ``jax_enable_x64``; the leapfrog
            stays in the precision of the weights.

    >>> import equinox as eqx, jax, posteriax as px
    >>> (x, y), _ = px.data.two_moons(train=50)
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 4, 1, key=jax.random.key(0)), px.Categorical())
    >>> posterior = px.fit(problem, (x, y), px.HMC(warmup=20), draws=10, chains=2, key=0)
    >>> posterior.draws.network.layers[0].weight.shape
    (2, 10, 4, 2)
    """

    step_size: float | None = None
    trajectory: float | None = None
    target_acceptance: float = 0.8
    jitter: float = 0.1
    max_leapfrogs: int = 2000
    float64_accept: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("step_size", "trajectory"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))
        check_count("max_leapfrogs", self.max_leapfrogs)
        check_acceptance(self.target_acceptance)
        if not 0.0 <= self.jitter < 1.0:
            raise ValueError(f"jitter must be at least 0 and less than 1, got {self.jitter}")

    def prepare(self, target: Target) -> tuple[str, ...]:
        if self.float64_accept and not jax.config.jax_enable_x64:  # type: ignore[attr-defined]
            raise ValueError('float64_accept needs double precision: jax.config.update("jax_enable_x64", True)')
        return super().prepare(target)

    def init(self, target: Target, key: jax.Array, start: Unknowns, batch: Batch) -> "State":
        import blackjax

        start = self.begin(target, key, start, batch)
        chain = blackjax.hmc.init(start, self.log_joint(target, batch))
        first = self.step_size or trajectory_length(self, target) / 20
        adaptation = jax.tree.map(lambda a: jnp.asarray(a, _real(a)), _adaptation(self)[0](first))
        return State(chain, self._parts(target, batch, start), adaptation, jnp.zeros((), jnp.int32))

    def step(self, target: Target, key: jax.Array, state: "State", batch: Batch) -> tuple["State", "Info"]:
        from blackjax.mcmc.hmc import HMCState
        from blackjax.mcmc.integrators import IntegratorState, velocity_verlet

        key_length, key_momentum, key_accept = jax.random.split(key, 3)
        step_size, leapfrogs = self._trajectory(target, state, key_length)
        masses = metric(target)
        momentum = masses.sample_momentum(key_momentum, state.chain.position)
        leapfrog = velocity_verlet(self.log_joint(target, batch), masses.kinetic_energy)
        begin = IntegratorState(state.chain.position, momentum, state.chain.logdensity, state.chain.logdensity_grad)
        end = jax.lax.fori_loop(0, leapfrogs, lambda _, at: leapfrog(at, step_size), begin)

        parts = self._parts(target, batch, end.position)
        kinetic = [masses.kinetic_energy(self._precise(at.momentum)) for at in (begin, end)]
        change = energy_change(state.parts, parts, kinetic[1] - kinetic[0], target.problem.temperature)
        acceptance = jnp.minimum(1.0, jnp.exp(-change))
        accepted = jnp.log(jax.random.uniform(key_accept, (), change.dtype)) < -change
        proposed = HMCState(end.position, end.logdensity, end.logdensity_grad)
        chain, parts = jax.tree.map(partial(jnp.where, accepted), (proposed, parts), (state.chain, state.parts))
        adaptation = state.adaptation
        if self.step_size is None:
            update = _adaptation(self)[1](adaptation, acceptance)
            warming = state.step < self.warmup
            adaptation = jax.tree.map(lambda n, o: jnp.where(warming, n, o).astype(o.dtype), update, adaptation)
        info = Info(
            acceptance=acceptance.astype(jnp.float32),
            accepted=accepted,
            divergent=change > DIVERGENT,
            log_joint=chain.logdensity,
            energy=kinetic[0] - state.chain.logdensity,
            step_size=step_size,
            leapfrogs=leapfrogs,
        )
        return State(chain, parts, adaptation, state.step + 1), info

    def draw(self, target: Target, state: "State") -> Unknowns:
        return state.chain.position

    def inspect(self, trace: Trace) -> None:
        refuse_stuck_chains("HMC", trace["accepted"], trace["step_size"])

    def _trajectory(self, target: Target, state: "State", key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The size and number of leapfrog steps."""
        if self.step_size is None:
            warming, adaptation = state.step < self.warmup, state.adaptation
            step_size = jnp.exp(jnp.where(warming, adaptation.log_step_size, adaptation.log_step_size_avg))
        else:
            step_size = jnp.asarray(self.step_size, jnp.float32)
        stretch = 1.0 + self.jitter * jax.random.uniform(key, (), jnp.float32, minval=-1.0, maxval=1.0)
        length = trajectory_length(self, target) * stretch
        leapfrogs = jnp.clip(jnp.ceil(length / step_size), 1, self.max_leapfrogs).astype(jnp.int32)
        # the last bit of freedom: a step that divides the trajectory, never longer than the adapted one
        return jnp.minimum(length / leapfrogs, step_size), leapfrogs

    def _parts(self, target: Target, batch: Batch, unknowns: Unknowns) -> "Parts":
        unknowns, batch = self._precise(unknowns), self._precise(batch)
        log_likelihood = log_likelihood_of(target, batch, self.micro_batches)(unknowns)
        return Parts(log_likelihood, target.problem.log_prior(unknowns))

    def _precise(self, tree: Any) -> Any:
        if not self.float64_accept:
            return tree
        return jax.tree.map(lambda a: a.astype(jnp.float64) if jnp.issubdtype(a.dtype, jnp.floating) else a, tree)


class Parts(NamedTuple):
    """The two terms of the log joint, times T. Their differences are formed apart: each is small where both are large,
    and float32 keeps seven digits. (METHODS C.1)"""

    log_likelihood: jax.Array
    log_prior: jax.Array


class State(NamedTuple):
    chain: Any  # BlackJAX's: position, log density, gradient
    parts: Parts
    adaptation: Any  # BlackJAX's dual averaging
    step: jax.Array


class Info(NamedTuple):
    acceptance: jax.Array
    accepted: jax.Array
    divergent: jax.Array
    log_joint: jax.Array
    energy: jax.Array
    step_size: jax.Array
    leapfrogs: jax.Array


def energy_change(before: Parts, after: Parts, kinetic: jax.Array, temperature: float) -> jax.Array:
    """H after - H before; infinite where it is not a number."""
    likelihood, prior = (new - old for new, old in zip(after, before, strict=True))
    change = kinetic - (likelihood + prior) / temperature
    return jnp.where(jnp.isnan(change), jnp.inf, change)


def trajectory_length(method: HMC, target: Target) -> float:
    if method.trajectory is not None:
        return method.trajectory
    return math.pi / 2 * reference_scale(target) * math.sqrt(target.problem.temperature)


def check_acceptance(value: float) -> None:
    if not 0.0 < value < 1.0:
        raise ValueError(f"target_acceptance must lie strictly between 0 and 1, got {value}")


def _real(value: Any) -> Any:
    """float32 for what is real, whatever the precision of the weights: a step size needs no more."""
    return jnp.float32 if jnp.issubdtype(jnp.result_type(value), jnp.floating) else jnp.int32


def _adaptation(method: HMC) -> Any:
    from blackjax.adaptation.step_size import dual_averaging_adaptation

    return dual_averaging_adaptation(method.target_acceptance)
