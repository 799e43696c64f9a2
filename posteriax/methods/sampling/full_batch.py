"""What full-batch samplers share: their target density, in micro-batches if requested, their start, and their checks.

    log_joint(w) = [ sum_b log p(batch_b | w) + log p(w) ] / T

The sum runs over micro-batches, one after another, and over the devices of the mesh's axis "data"; the gradient is
accumulated along with it, so that the working memory is that of one micro-batch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from posteriax._internal.checks import check_count
from posteriax.data.batches import Batch
from posteriax.methods.method import Kernel, Method, RunLength, Task, check_start
from posteriax.methods.sampling.starts import TypicalPoint, find_typical_set, jitter_start
from posteriax.methods.sampling.units import Standardised
from posteriax.posterior.posterior import Posterior
from posteriax.problem import Latents

# BlackJAX's dual averaging: init, update, final
Adaptation = tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class FullBatchSampler(Method):
    """Settings of every sampler that uses all examples at every step; :class:`HMC` explains them."""

    warmup: int = 200
    thin: int = 1
    start: Literal["map", "network", "prior"] | Posterior = "map"
    micro_batches: int = 1
    full_batch: ClassVar[bool] = True
    sums_over_devices: ClassVar[bool] = True
    samples: ClassVar[bool] = True
    arviz_names: ClassVar[Mapping[str, str]] = {
        "acceptance": "acceptance_rate",
        "divergent": "diverging",
        "leapfrogs": "n_steps",
        "log_joint": "lp",
    }

    def __post_init__(self) -> None:
        for name in ("warmup", "thin", "micro_batches"):
            check_count(name, getattr(self, name))
        check_start(self.start, ("map", "network", "prior"))

    def run_length(self, steps_per_epoch: int) -> RunLength:
        return RunLength(self.warmup, self.thin)

    def check_task(self, task: Task) -> None:
        """Raise if the sampler cannot be used for the problem."""
        task.problem.require_density(self.name)
        for path, leaf in zip(task.problem.leaf_names, jax.tree.leaves(task.problem.latents), strict=True):
            if jnp.finfo(leaf.dtype).bits < 32:
                raise TypeError(f"{self.name} needs params of at least float32: leaf {path} is {leaf.dtype}")
        if self.micro_batches > task.num_examples:
            raise ValueError(f"micro_batches={self.micro_batches} is more than there are examples, {task.num_examples}")


@dataclass(frozen=True, kw_only=True, eq=False)
class FullBatchKernel(Kernel):
    method: FullBatchSampler
    standardised: Standardised

    def begin(self, key: jax.Array, start: Latents, batch: Batch) -> TypicalPoint:
        """Where a chain starts, given the start of its member, as a vector of standardised latent variables."""
        if self.method.start == "map":
            start = jitter_start(key, start, self.problem.leaf_scales)
            return find_typical_set(self.log_joint_of_vector(batch), self.standardised.vector(start))
        vector = self.standardised.vector(start)
        return TypicalPoint(vector, jnp.ones_like(vector))

    def log_joint(self, batch: Batch) -> Callable[[Latents], jax.Array]:
        """The log density to sample from."""
        log_likelihood = log_likelihood_of(self.task, batch, self.method.micro_batches)
        problem = self.problem
        return lambda latents: (log_likelihood(latents) + problem.log_prior(latents)) / problem.temperature

    def log_joint_of_vector(self, batch: Batch) -> Callable[[jax.Array], jax.Array]:
        """The same density over the vector of standardised latent variables, up to a constant."""
        to_latents, log_joint = self.standardised.inverse(), self.log_joint(batch)
        return lambda vector: log_joint(to_latents(vector))


def log_likelihood_of(task: Task, batch: Batch, micro_batches: int = 1) -> Callable[[Latents], jax.Array]:
    """The log-likelihood of all examples as a function of the latents, with its gradient from the same passes."""
    problem = task.problem
    if micro_batches == 1 and task.data_axis is None:
        return lambda latents: problem.log_likelihood(latents, batch)

    def total(evaluate: Callable[[Batch], PyTree]) -> PyTree:
        parts = jax.tree.map(lambda a: a.reshape(micro_batches, -1, *a.shape[1:]), batch)
        first = evaluate(jax.tree.map(lambda a: a[0], parts))
        rest = jax.tree.map(lambda a: a[1:], parts)

        def add(so_far: PyTree, part: Batch) -> tuple[PyTree, None]:
            return jax.tree.map(jnp.add, so_far, evaluate(part)), None

        local = jax.lax.scan(add, first, rest)[0] if micro_batches > 1 else first
        return local if task.data_axis is None else jax.lax.psum(local, task.data_axis)

    @jax.custom_vjp
    def log_likelihood(latents: Latents) -> jax.Array:
        return total(lambda part: problem.log_likelihood(latents, part))

    def forward(latents: Latents) -> tuple[jax.Array, Latents]:
        return total(lambda part: jax.value_and_grad(problem.log_likelihood)(latents, part))

    def backward(gradient: Latents, cotangent: jax.Array) -> tuple[Latents]:
        return (jax.tree.map(lambda g: cotangent * g, gradient),)

    log_likelihood.defvjp(forward, backward)
    return log_likelihood


def check_acceptance(value: float) -> None:
    if not 0.0 < value < 1.0:
        raise ValueError(f"target_acceptance must lie strictly between 0 and 1, got {value}")


def refuse_stuck_chains(name: str, moved: np.ndarray, step_size: np.ndarray) -> None:
    """Raise if some chain never moved in its warm-up. Both arguments are (steps,) or (chains, steps)."""
    moved, step_size = np.atleast_2d(moved), np.atleast_2d(step_size)
    stuck = np.asarray(~moved.any(axis=1))
    if stuck.any():
        last = float(step_size[stuck][0, -1])
        which = f"chain {int(np.argmax(stuck))} of {len(stuck)} " if len(stuck) > 1 else ""
        raise RuntimeError(
            f"{name} {which}accepted none of {moved.shape[1]} warm-up proposals (last step size {last:.2g}). "
            f'Try step_size={last / 10:.1g}, a longer warmup, or start="map".'
        )
