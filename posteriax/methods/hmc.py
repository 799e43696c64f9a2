"""Hamiltonian Monte Carlo with the full data set: the reference for all other methods.

    H(w, m) = -log_joint(w) + |m|^2 / 2     leapfrog for a time tau, then accept with min(1, exp(-dH)), else stay

Targets exp(log_joint) exactly. A trajectory lasts a quarter of a Gaussian's period, after which it has forgotten its
start; `masses` chooses the Gaussian:

    "adapted", "low-rank", "dense"
                the posterior's, learned in warm-up (sampling/masses.py): a mass for every weight, with the directions
                that correlations stretch most, or with all that have been seen; tau = pi / 2, times the stretch that
                is left
    "prior"     the prior's, with scale s: tau = pi s / 2 * sqrt(T), masses 1; where leaves have priors of different
                scales s_l, their masses are (s / s_l)^2 (Izmailov et al. 2021)
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from posteriax._internal.checks import check_count, check_positive
from posteriax.data.batches import Batch
from posteriax.methods.method import Draws, Task
from posteriax.methods.sampling.full_batch import (
    FullBatchKernel,
    FullBatchSampler,
    check_acceptance,
    log_likelihood_of,
    refuse_stuck_chains,
)
from posteriax.methods.sampling.masses import (
    Correlated,
    Diagonal,
    LearnedMasses,
    Masses,
    check_masses,
    first_step_size,
    learned_masses,
    metric_of,
    prior_metric,
    reference_scale,
    stretch_of,
)
from posteriax.methods.sampling.units import Standardised
from posteriax.methods.sampling.warmup import WarmUp, WarmUpState
from posteriax.posterior.posterior import Posterior
from posteriax.posterior.trace import Trace
from posteriax.priors.prior import Whitening
from posteriax.problem import Latents, Problem

if TYPE_CHECKING:
    from blackjax.mcmc.hmc import HMCState
    from blackjax.mcmc.metrics import Metric

DIVERGENT = 1000.0  # nats of energy error
JITTER = 0.1  # of a trajectory that correlations have not stretched
EARLY_LEAPFROGS = 64  # of a trajectory, in the first quarter of the warm-up


@dataclass(frozen=True, kw_only=True, eq=False)
class HMC(FullBatchSampler):
    """Full-batch Hamiltonian Monte Carlo. ``px.fit(..., px.HMC(), draws=200, chains=4)``.

    Args:
        step_size: of the leapfrog; adapted in warm-up if not given. In units of the weights (with masses from the
            priors), or of their posterior scales (with adapted masses).
        trajectory: the time tau of one trajectory, in the same units; a quarter of a period if not given.
        masses: "adapted" learns a mass for every weight in warm-up, "low-rank" also how weights are correlated along
            the 32 directions in which that matters most, "dense" along all directions; "prior" takes masses from the
            priors. By default learned, dense for up to 2,000 weights, unless you give a step size or a trajectory, or a
            prior has correlated weights. Correlations need a warm-up of 100 or more, and one of twice the number of
            weights to be known in all directions.
        warmup: transitions that are discarded, and adapt step size and masses.
        target_acceptance: the acceptance rate that the step size is adapted to.
        jitter: every trajectory's length is drawn uniformly within this fraction of tau. A fixed length can be a
            whole number of periods along some direction, which would then never move. 0.1 by default, and more for
            trajectories that correlations have stretched.
        max_leapfrogs: the largest number of leapfrog steps of a trajectory. Trajectories that it cuts short are noted
            in the trace; a run that would lose more than half of every trajectory is refused.
        start: "map" climbs briefly from the chain's own initial weights, with some noise added, into the bulk of the
            posterior nearby; "network" starts at those weights, "prior" at a draw from the prior, which may be far
            from the bulk; a posterior, such as that of ``px.Ensemble(px.MAP(), 4)``, gives every chain a draw.
        thin: keep every `thin`-th state as a draw.
        micro_batches: how many parts to split the data into, to save memory. The draws do not depend on it, except
            for rounding.
        float64_accept: whether to compute the energies of the accept step in double precision, for data so large or
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
    masses: Masses | None = None
    target_acceptance: float = 0.8
    jitter: float | None = None
    max_leapfrogs: int = 10_000
    float64_accept: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in (("step_size", self.step_size), ("trajectory", self.trajectory)):
            if value is not None:
                check_positive(name, value)
        check_count("max_leapfrogs", self.max_leapfrogs)
        check_acceptance(self.target_acceptance)
        check_masses(self.masses)
        if self.jitter is not None and not 0.0 <= self.jitter < 1.0:
            raise ValueError(f"jitter must be at least 0 and less than 1, got {self.jitter}")

    def bind(self, task: Task) -> "HMCKernel":
        if self.float64_accept and not jax.config.jax_enable_x64:  # type: ignore[attr-defined]
            raise ValueError('float64_accept needs double precision: jax.config.update("jax_enable_x64", True)')
        masses, length = self._learned_masses(task.problem), prior_trajectory(self.trajectory, task.problem)
        if self.step_size is not None and masses is None:
            refuse_cut_trajectories(length / self.step_size, self.max_leapfrogs)
        self.check_task(task)
        return HMCKernel(
            method=self,
            task=task,
            standardised=Standardised(task.problem),
            warmup=WarmUp(
                steps=self.warmup,
                first=self.step_size or (length / 20 if masses is None else first_step_size(task.problem)),
                adapts_step_size=self.step_size is None,
                target_acceptance=self.target_acceptance,
                masses=masses,
            ),
            prior_metric=prior_metric(task.problem) if masses is None else None,
            prior_trajectory=length,
        )

    def _learned_masses(self, problem: Problem) -> LearnedMasses | None:
        """How masses are learned in warm-up; None if they are taken from the priors."""
        priors = zip(problem.leaf_names, problem.leaf_priors, strict=True)
        correlated = [name for name, prior in priors if isinstance(prior, Whitening)]
        if self.masses not in (None, "prior") and correlated:
            raise ValueError(
                f'masses="{self.masses}" are learned for weights with independent priors, but the prior of '
                f'{correlated[0]} has correlated weights: use masses="prior"'
            )
        given = self.step_size is not None or self.trajectory is not None or correlated
        kind = "prior" if self.masses is None and given else self.masses
        return learned_masses(kind, problem, self.warmup)


@dataclass(frozen=True, kw_only=True, eq=False)
class HMCKernel(FullBatchKernel):
    method: HMC
    warmup: WarmUp
    prior_metric: "Metric | None"  # if masses are not learned
    prior_trajectory: float

    def init(self, key: jax.Array, start: Latents, batch: Batch) -> "State":
        import blackjax

        typical = self.begin(key, start, batch)
        position = self.standardised.latents(typical.position)
        chain = blackjax.hmc.init(position, self.log_joint(batch))
        adapted = self.warmup.start(self.standardised.variances(typical.variances))
        return State(chain, self._parts(batch, position), adapted)

    def step(self, key: jax.Array, state: "State", batch: Batch) -> tuple["State", "Info"]:
        from blackjax.mcmc.hmc import HMCState
        from blackjax.mcmc.integrators import IntegratorState, velocity_verlet

        key_length, key_momentum, key_accept = jax.random.split(key, 3)
        step_size, leapfrogs, cut = self._trajectory(state, key_length)
        metric = self.prior_metric or metric_of(cast("Diagonal | Correlated", state.adapted.masses))
        momentum = metric.sample_momentum(key_momentum, state.chain.position)
        leapfrog = velocity_verlet(self.log_joint(batch), metric.kinetic_energy)
        begin = IntegratorState(state.chain.position, momentum, state.chain.logdensity, state.chain.logdensity_grad)
        end = jax.lax.fori_loop(0, leapfrogs, lambda _, at: leapfrog(at, step_size), begin)

        parts = self._parts(batch, end.position)
        kinetic = [metric.kinetic_energy(self._precise(at.momentum)) for at in (begin, end)]
        change = energy_change(state.parts, parts, kinetic[1] - kinetic[0], self.problem.temperature)
        acceptance = jnp.minimum(1.0, jnp.exp(-change))
        accepted = jnp.log(jax.random.uniform(key_accept, (), change.dtype)) < -change
        proposed = HMCState(end.position, end.logdensity, end.logdensity_grad)
        chain, parts = jax.tree.map(partial(jnp.where, accepted), (proposed, parts), (state.chain, state.parts))
        adapted = self.warmup.learn(state.adapted, acceptance, chain.position, chain.logdensity_grad)
        info = Info(
            acceptance=acceptance.astype(jnp.float32),
            accepted=accepted,
            divergent=change > DIVERGENT,
            log_joint=chain.logdensity,
            energy=kinetic[0] - state.chain.logdensity,
            step_size=step_size,
            leapfrogs=leapfrogs,
            cut=cut,
        )
        return State(chain, parts, adapted), info

    def draw(self, state: "State") -> Latents:
        return state.chain.position

    def check_warmup(self, trace: Trace) -> None:
        refuse_stuck_chains("HMC", trace["accepted"], trace["step_size"])
        lost, allowed = float(np.max(np.atleast_2d(trace["cut"])[:, -1])), self.method.max_leapfrogs
        refuse_cut_trajectories(allowed / (1.0 - lost), allowed)

    def finish(self, states: "State", draws: Draws, trace: Trace) -> Posterior:
        lost = float(np.max(np.atleast_2d(trace["cut"])[:, trace.warmup :]))
        if lost > 0:
            cut = f"max_leapfrogs={self.method.max_leapfrogs} cut off up to {lost:.0%} of a trajectory"
            enough = math.ceil(self.method.max_leapfrogs / (1.0 - lost))
            note = f"{cut}: max_leapfrogs={enough} would complete them"
            trace = replace(trace, notes=(*trace.notes, note))
        return super().finish(states, draws, trace)

    def _trajectory(self, state: "State", key: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """The size and number of leapfrog steps, and the share of the trajectory that `max_leapfrogs` cuts off."""
        method, step_size = self.method, self.warmup.step_size(state.adapted)
        if state.adapted.masses is None or method.trajectory is not None:
            time, jitter = jnp.asarray(self.prior_trajectory, jnp.float32), jnp.asarray(JITTER)
        else:
            time = math.pi / 2 * stretch_of(state.adapted.masses).astype(jnp.float32)
            jitter = stretched_jitter(time)
        jitter = jitter if method.jitter is None else jnp.asarray(method.jitter)
        length = time * (1.0 + jitter * jax.random.uniform(key, (), jnp.float32, minval=-1.0, maxval=1.0))
        if method.step_size is None:
            # until step size and masses are roughly right, a full trajectory may take far too many steps
            early = state.adapted.step < method.warmup // 4
            length = jnp.where(early, jnp.minimum(length, EARLY_LEAPFROGS * step_size), length)
        needed = jnp.ceil(length / step_size)
        leapfrogs = jnp.clip(needed, 1, method.max_leapfrogs).astype(jnp.int32)
        cut = jnp.maximum(1.0 - method.max_leapfrogs / needed, 0.0)
        # shorten the step so that it divides the trajectory evenly
        # float32 also under x64: weights keep their precision when they are moved by it
        return jnp.minimum(length / leapfrogs, step_size).astype(jnp.float32), leapfrogs, cut

    def _parts(self, batch: Batch, latents: Latents) -> "LogJointTerms":
        latents, batch = self._precise(latents), self._precise(batch)
        log_likelihood = log_likelihood_of(self.task, batch, self.method.micro_batches)(latents)
        return LogJointTerms(log_likelihood, self.problem.log_prior(latents))

    def _precise(self, tree: PyTree) -> PyTree:
        if not self.method.float64_accept:
            return tree
        return jax.tree.map(lambda a: a.astype(jnp.float64) if jnp.issubdtype(a.dtype, jnp.floating) else a, tree)


class LogJointTerms(NamedTuple):
    """The terms of the log joint, times T. Differences are taken term by term, which loses fewer digits in float32."""

    log_likelihood: jax.Array
    log_prior: jax.Array


class State(NamedTuple):
    chain: "HMCState"  # position, log density, gradient
    parts: LogJointTerms
    adapted: WarmUpState


class Info(NamedTuple):
    acceptance: jax.Array
    accepted: jax.Array
    divergent: jax.Array
    log_joint: jax.Array
    energy: jax.Array
    step_size: jax.Array
    leapfrogs: jax.Array
    cut: jax.Array  # share of the trajectory that max_leapfrogs left out


def energy_change(before: LogJointTerms, after: LogJointTerms, kinetic: jax.Array, temperature: float) -> jax.Array:
    """H after - H before; infinite instead of NaN."""
    likelihood, prior = (new - old for new, old in zip(after, before, strict=True))
    change = kinetic - (likelihood + prior) / temperature
    return jnp.where(jnp.isnan(change), jnp.inf, change)


def prior_trajectory(given: float | None, problem: Problem) -> float:
    """The time of a trajectory with masses from the priors, unless it is given."""
    if given is not None:
        return given
    return math.pi / 2 * reference_scale(problem) * math.sqrt(problem.temperature)


def stretched_jitter(length: jax.Array) -> jax.Array:
    """The jitter of a trajectory that was stretched from pi / 2 to `length`, as a fraction of it.

    A trajectory that is long enough for correlated weights can be a whole number of periods of the others: with a
    stretch of 4, whose trajectory lasts 2 pi, and a tenth of it as jitter, log sigma of a linear regression had 160
    effective draws in 4,000. Lengths that differ by a period in all average its return away, and none is shorter
    than a quarter of a period.
    """
    return jnp.clip(length - math.pi / 2, JITTER * length, math.pi) / length


def refuse_cut_trajectories(leapfrogs: float, allowed: int) -> None:
    """Raise if more than half of every trajectory would be left out."""
    if leapfrogs > 2 * allowed:
        raise RuntimeError(
            f"HMC needs {math.ceil(leapfrogs):,} leapfrogs for one trajectory, but max_leapfrogs={allowed:,} allows "
            f'less than half of them: chains would hardly move. Try px.NUTS(), masses="adapted", inputs of comparable '
            f"scales, or max_leapfrogs={math.ceil(leapfrogs)} if you can afford it."
        )
