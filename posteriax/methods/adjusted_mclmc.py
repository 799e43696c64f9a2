"""Adjusted microcanonical Langevin Monte Carlo: exact, with the dynamics of :class:`MCLMC`.

The weights move at constant speed along a direction that turns towards the gradient of the log joint, for a path of
length L from a random direction; then the end is accepted with min(1, exp(-dE)), else the chain stays. The path is

    L = pi / 2 sqrt(d) stretch          a quarter of a Gaussian's period at the speed of HMC, as in HMC

in the units of the masses (sampling/masses.py), each within a fraction `jitter` of L. Targets exp(log_joint) exactly.
(Riou-Durand and Vogrinc 2022, Robnik et al. 2025)
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp

from posteriax._internal.checks import check_count, check_positive
from posteriax.data.batches import Batch
from posteriax.methods.hmc import stretched_jitter
from posteriax.methods.method import Task
from posteriax.methods.sampling.full_batch import (
    FullBatchKernel,
    FullBatchSampler,
    check_acceptance,
    refuse_stuck_chains,
)
from posteriax.methods.sampling.masses import (
    Masses,
    check_masses,
    first_step_size,
    inverse_masses,
    learned_masses,
    stretch_of,
)
from posteriax.methods.sampling.units import Standardised
from posteriax.methods.sampling.warmup import WarmUp, WarmUpState
from posteriax.posterior.trace import Trace
from posteriax.problem import Latents

if TYPE_CHECKING:
    from blackjax.mcmc.hmc import HMCInfo, HMCState


@dataclass(frozen=True, kw_only=True, eq=False)
class AdjustedMCLMC(FullBatchSampler):
    """MCLMC with an accept step, which makes it exact. ``px.fit(..., px.AdjustedMCLMC(), draws=500, chains=4)``.

    Args:
        warmup: transitions that are discarded, and adapt step size and masses.
        target_acceptance: the acceptance rate that the step size is adapted to.
        masses: as for :class:`HMC`.
        step_size: in units of the priors' scales. If given, neither it nor the masses (then the inverse of the priors'
            variances) are adapted.
        length: of a path, in units of the masses; see above if not given.
        max_steps: the largest number of steps of a path, of two gradients each.
        start, thin, micro_batches: as for :class:`HMC`.

    >>> import equinox as eqx, jax, posteriax as px
    >>> (x, y), _ = px.data.two_moons(train=50)
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 4, 1, key=jax.random.key(0)), px.Categorical())
    >>> posterior = px.fit(problem, (x, y), px.AdjustedMCLMC(warmup=20), draws=10, chains=2, key=0)
    >>> posterior.trace["acceptance"].shape
    (2, 30)
    """

    target_acceptance: float = 0.9
    masses: Masses | None = None
    step_size: float | None = None
    length: float | None = None
    max_steps: int = 5_000

    def __post_init__(self) -> None:
        super().__post_init__()
        check_masses(self.masses, self.step_size)
        check_acceptance(self.target_acceptance)
        check_count("max_steps", self.max_steps)
        for name, value in (("step_size", self.step_size), ("length", self.length)):
            if value is not None:
                check_positive(name, value)

    def bind(self, task: Task) -> "AdjustedMCLMCKernel":
        from blackjax import adjusted_mclmc

        size = sum(leaf.size for leaf in jax.tree.leaves(task.problem.latents))
        if size < 2:
            raise ValueError("AdjustedMCLMC needs at least two latent variables: use px.HMC()")
        self.check_task(task)
        return AdjustedMCLMCKernel(
            method=self,
            task=task,
            standardised=Standardised(task.problem),
            transition=adjusted_mclmc.build_kernel(),
            warmup=WarmUp(
                steps=self.warmup,
                first=self.step_size or size**0.5 * first_step_size(task.problem),  # its speed is 1, HMC's sqrt(d)
                adapts_step_size=self.step_size is None,
                target_acceptance=self.target_acceptance,
                masses=learned_masses("prior" if self.step_size else self.masses, task.problem, self.warmup),
            ),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class AdjustedMCLMCKernel(FullBatchKernel):
    method: AdjustedMCLMC
    transition: Callable[..., tuple["HMCState", "HMCInfo"]]
    warmup: WarmUp

    def init(self, key: jax.Array, start: Latents, batch: Batch) -> "State":
        import blackjax

        position, variances = self.begin(key, start, batch)
        chain = blackjax.adjusted_mclmc.init(position, self.log_joint_of_vector(batch))
        return State(chain, self.warmup.start(variances))

    def step(self, key: jax.Array, state: "State", batch: Batch) -> tuple["State", "Info"]:
        key_length, key = jax.random.split(key)
        method, position, masses = self.method, state.chain.position, state.adapted.masses
        step_size = self.warmup.step_size(state.adapted)
        time = math.pi / 2 * stretch_of(masses).astype(jnp.float32)
        jitter = stretched_jitter(time)
        path = jnp.asarray(method.length or time * position.size**0.5, jnp.float32)
        path *= 1.0 + jitter * jax.random.uniform(key_length, (), jnp.float32, minval=-1.0, maxval=1.0)
        steps = jnp.clip(jnp.ceil(path / step_size), 1, method.max_steps).astype(jnp.int32)
        log_joint, inverse = self.log_joint_of_vector(batch), inverse_masses(masses, position)
        size = jnp.minimum(path / steps, step_size)
        chain, result = self.transition(key, state.chain, log_joint, size, (steps,), inverse)
        adapted = self.warmup.learn(state.adapted, result.acceptance_rate, chain.position, chain.logdensity_grad)
        info = Info(
            acceptance=result.acceptance_rate,
            accepted=result.is_accepted,
            divergent=result.is_divergent,
            log_joint=chain.logdensity,
            step_size=step_size,
            leapfrogs=2 * steps,
        )
        return State(chain, adapted), info

    def draw(self, state: "State") -> Latents:
        return self.standardised.latents(state.chain.position)

    def check_warmup(self, trace: Trace) -> None:
        refuse_stuck_chains("AdjustedMCLMC", trace["accepted"], trace["step_size"])


class State(NamedTuple):
    chain: "HMCState"  # position as one vector, log density, gradient
    adapted: WarmUpState


class Info(NamedTuple):
    acceptance: jax.Array
    accepted: jax.Array
    divergent: jax.Array
    log_joint: jax.Array
    step_size: jax.Array
    leapfrogs: jax.Array  # gradients: two a step
