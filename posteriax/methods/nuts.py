"""The No-U-Turn Sampler: Hamiltonian Monte Carlo that finds its own trajectory length.

Every transition doubles its trajectory until it turns back on itself, and draws a state from it. During warm-up the
step size is adapted by dual averaging, and the masses from draws and gradients
(:mod:`posteriax.methods.sampling.masses`). Targets exp(log_joint) exactly. (Hoffman and Gelman 2014)
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import jax

from posteriax._internal.checks import check_count, check_positive
from posteriax.data.batches import Batch
from posteriax.methods.method import Task
from posteriax.methods.sampling.full_batch import (
    FullBatchKernel,
    FullBatchSampler,
    check_acceptance,
    refuse_stuck_chains,
)
from posteriax.methods.sampling.masses import Masses, check_masses, first_step_size, inverse_masses, learned_masses
from posteriax.methods.sampling.units import Standardised
from posteriax.methods.sampling.warmup import WarmUp, WarmUpState
from posteriax.posterior.trace import Trace
from posteriax.problem import Latents

if TYPE_CHECKING:
    from blackjax.mcmc.hmc import HMCState
    from blackjax.mcmc.nuts import NUTSInfo


@dataclass(frozen=True, kw_only=True, eq=False)
class NUTS(FullBatchSampler):
    """The No-U-Turn Sampler. ``px.fit(..., px.NUTS(), draws=500, chains=4)``.

    Args:
        warmup: transitions that are discarded, and adapt step size and masses.
        target_acceptance: the acceptance rate that the step size is adapted to.
        max_doublings: a trajectory has at most 2^max_doublings leapfrog steps.
        step_size: in units of the priors' scales. If given, neither it nor the masses (then the inverse of the priors'
            variances) are adapted.
        masses: as for :class:`HMC`.
        start, thin, micro_batches: as for :class:`HMC`.

    >>> import equinox as eqx, jax, posteriax as px
    >>> (x, y), _ = px.data.two_moons(train=50)
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 4, 1, key=jax.random.key(0)), px.Categorical())
    >>> posterior = px.fit(problem, (x, y), px.NUTS(warmup=20, max_doublings=5), draws=10, chains=2, key=0)
    >>> bool(posterior.trace["leapfrogs"].max() < 2**5)
    True
    """

    warmup: int = 500
    target_acceptance: float = 0.8
    max_doublings: int = 10
    step_size: float | None = None
    masses: Masses | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_masses(self.masses, self.step_size)
        check_count("max_doublings", self.max_doublings)
        check_acceptance(self.target_acceptance)
        if self.step_size is not None:
            check_positive("step_size", self.step_size)

    def bind(self, task: Task) -> "NUTSKernel":
        from blackjax import nuts

        self.check_task(task)
        return NUTSKernel(
            method=self,
            task=task,
            standardised=Standardised(task.problem),
            transition=nuts.build_kernel(),
            warmup=WarmUp(
                steps=self.warmup,
                first=self.step_size or first_step_size(task.problem),
                adapts_step_size=self.step_size is None,
                target_acceptance=self.target_acceptance,
                masses=learned_masses("prior" if self.step_size else self.masses, task.problem, self.warmup),
            ),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class NUTSKernel(FullBatchKernel):
    method: NUTS
    transition: Callable[..., tuple["HMCState", "NUTSInfo"]]
    warmup: WarmUp

    def init(self, key: jax.Array, start: Latents, batch: Batch) -> "State":
        import blackjax

        position, variances = self.begin(key, start, batch)
        chain = blackjax.nuts.init(position, self.log_joint_of_vector(batch))
        return State(chain, self.warmup.start(variances))

    def step(self, key: jax.Array, state: "State", batch: Batch) -> tuple["State", "Info"]:
        step_size, log_joint = self.warmup.step_size(state.adapted), self.log_joint_of_vector(batch)
        inverse = inverse_masses(state.adapted.masses, state.chain.position)
        chain, result = self.transition(key, state.chain, log_joint, step_size, inverse, self.method.max_doublings)
        adapted = self.warmup.learn(state.adapted, result.acceptance_rate, chain.position, chain.logdensity_grad)
        info = Info(
            acceptance=result.acceptance_rate,
            moved=(chain.position != state.chain.position).any(),
            divergent=result.is_divergent,
            log_joint=chain.logdensity,
            energy=result.energy,
            step_size=step_size,
            leapfrogs=result.num_integration_steps,
        )
        return State(chain, adapted), info

    def draw(self, state: "State") -> Latents:
        return self.standardised.latents(state.chain.position)

    def check_warmup(self, trace: Trace) -> None:
        refuse_stuck_chains("NUTS", trace["moved"], trace["step_size"])


class State(NamedTuple):
    chain: "HMCState"  # position as one vector, log density, gradient
    adapted: WarmUpState


class Info(NamedTuple):
    acceptance: jax.Array  # averaged over the trajectory
    moved: jax.Array
    divergent: jax.Array
    log_joint: jax.Array
    energy: jax.Array
    step_size: jax.Array
    leapfrogs: jax.Array
