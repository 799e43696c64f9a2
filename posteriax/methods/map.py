"""Maximum a posteriori: the most probable weights.

    w* = argmax_w [ log p(D | w) + log p(w) ]      by stochastic gradients of the log joint

A Gaussian prior is weight decay. The temperature does not change w*.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import optax

from posteriax.data.batches import Batch
from posteriax.methods.method import Draws, Method, OptimizingKernel, Task
from posteriax.methods.optimizers import falling_adam, optimize
from posteriax.posterior.draws import DrawsPosterior
from posteriax.posterior.posterior import Posterior
from posteriax.posterior.trace import Trace
from posteriax.problem import Latents


@dataclass(frozen=True, eq=False)
class MAP(Method):
    """The most probable weights, as a posterior of one draw. ``Ensemble(MAP(), members)`` is a deep ensemble.

    Args:
        optimizer: an Optax transformation of gradients of the *summed* log joint; by default Adam with a learning rate
            that decays from 3e-3 to 0 along a cosine.

    >>> import equinox as eqx, jax, posteriax as px
    >>> (x, y), _ = px.data.two_moons()
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical())
    >>> posterior = px.fit(problem, (x, y), px.MAP(), steps=10, key=0)
    >>> posterior.trace["nll_per_example"].shape
    (10,)
    """

    optimizer: optax.GradientTransformation | None = None

    def bind(self, task: Task) -> "MAPKernel":
        task.problem.require_density("MAP")
        return MAPKernel(method=self, task=task, optimizer=self.optimizer or falling_adam(task.steps))


@dataclass(frozen=True, kw_only=True, eq=False)
class MAPKernel(OptimizingKernel):
    def init(self, key: jax.Array, start: Latents, batch: Batch) -> "State":
        return State(start, self.optimizer.init(start))

    def step(self, key: jax.Array, state: "State", batch: Batch) -> tuple["State", "Info"]:
        problem = self.problem

        def loss(latents: Latents) -> tuple[jax.Array, jax.Array]:
            log_likelihood = problem.log_likelihood(latents, batch, key=key)
            return -(log_likelihood + problem.log_prior(latents)) / problem.temperature, log_likelihood

        (value, log_likelihood), gradient = jax.value_and_grad(loss, has_aux=True)(state.latents)
        state = State(*optimize(self.optimizer, gradient, state.latents, state.optimizer))
        return state, Info(log_joint=-value, nll_per_example=-log_likelihood / self.task.counted_examples)

    def finish(self, states: "State", draws: Draws, trace: Trace) -> Posterior:
        members = jax.tree.map(lambda leaf: leaf[:, None], states.latents)
        return DrawsPosterior(self.problem, trace, members)


class State(NamedTuple):
    latents: Latents
    optimizer: optax.OptState


class Info(NamedTuple):
    log_joint: jax.Array  # its estimate from the step's batch
    nll_per_example: jax.Array
