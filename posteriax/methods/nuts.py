"""The No-U-Turn Sampler: Hamiltonian Monte Carlo that finds its own trajectory length.

Every transition doubles its trajectory until it turns back on itself, and draws a state from it. During warm-up the
step size is adapted by dual averaging, and the masses, one for every weight, from draws and gradients
(:mod:`posteriax.methods.sampling.units`). Targets exp(log_joint) exactly. (Hoffman and Gelman 2014)
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp

from posteriax._internal.checks import check_count, check_positive
from posteriax.data.batches import Batch
from posteriax.methods.method import Task
from posteriax.methods.sampling.full_batch import (
    Adaptation,
    FullBatchKernel,
    FullBatchSampler,
    check_acceptance,
    refuse_stuck_chains,
)
from posteriax.methods.sampling.units import Diagonal, Standardised, learn, start_diagonal
from posteriax.posterior.trace import Trace
from posteriax.problem import Latents

if TYPE_CHECKING:
    from blackjax.adaptation.step_size import DualAveragingAdaptationState
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

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("max_doublings", self.max_doublings)
        check_acceptance(self.target_acceptance)
        if self.step_size is not None:
            check_positive("step_size", self.step_size)

    def bind(self, task: Task) -> "NUTSKernel":
        from blackjax import nuts
        from blackjax.adaptation.step_size import dual_averaging_adaptation

        self.check_task(task)
        return NUTSKernel(
            method=self,
            task=task,
            standardised=Standardised(task.problem),
            transition=nuts.build_kernel(),
            adaptation=dual_averaging_adaptation(self.target_acceptance),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class NUTSKernel(FullBatchKernel):
    method: NUTS
    transition: Callable[..., tuple["HMCState", "NUTSInfo"]]
    adaptation: Adaptation

    def init(self, key: jax.Array, start: Latents, batch: Batch) -> "State":
        import blackjax

        typical, given = self.begin(key, start, batch), self.method.step_size
        chain = blackjax.nuts.init(typical.position, self.log_joint_of_vector(batch))
        # this scaling keeps the acceptance rate constant in high dimensions
        first = given or typical.position.size**-0.25
        variances = typical.variances if given is None else jnp.ones_like(typical.variances)
        state = State(chain, self.adaptation[0](first), start_diagonal(variances), jnp.int32(0))
        return jax.tree.map(lambda a: jnp.asarray(a, jnp.result_type(a)), state)

    def step(self, key: jax.Array, state: "State", batch: Batch) -> tuple["State", "Info"]:
        warming, given = state.step < self.method.warmup, self.method.step_size
        if given is None:
            log_step = jnp.where(warming, state.step_size.log_step_size, state.step_size.log_step_size_avg)
            step_size = jnp.exp(log_step)
        else:
            step_size = jnp.asarray(given, state.chain.position.dtype)
        chain, result = self.transition(
            key,
            state.chain,
            self.log_joint_of_vector(batch),
            step_size,
            state.diagonal.variances,
            self.method.max_doublings,
        )
        adapted = state.step_size, state.diagonal
        if given is None:
            step_sizes = self.adaptation[1](state.step_size, result.acceptance_rate)
            update = step_sizes, learn(state.diagonal, chain.position, chain.logdensity_grad)
            adapted = jax.tree.map(lambda n, o: jnp.where(warming, n, o).astype(o.dtype), update, adapted)
        info = Info(
            acceptance=result.acceptance_rate,
            moved=(chain.position != state.chain.position).any(),
            divergent=result.is_divergent,
            log_joint=chain.logdensity,
            energy=result.energy,
            step_size=step_size,
            leapfrogs=result.num_integration_steps,
        )
        return State(chain, *adapted, state.step + 1), info

    def draw(self, state: "State") -> Latents:
        return self.standardised.latents(state.chain.position)

    def check_warmup(self, trace: Trace) -> None:
        refuse_stuck_chains("NUTS", trace["moved"], trace["step_size"])


class State(NamedTuple):
    chain: "HMCState"  # position as one vector, log density, gradient
    step_size: "DualAveragingAdaptationState"
    diagonal: Diagonal  # its variances are the inverse masses
    step: jax.Array


class Info(NamedTuple):
    acceptance: jax.Array  # averaged over the trajectory
    moved: jax.Array
    divergent: jax.Array
    log_joint: jax.Array
    energy: jax.Array
    step_size: jax.Array
    leapfrogs: jax.Array
