"""What samplers with the whole data set share: their target, in parts if need be, their start, and their checks.

    log_joint(w) = [ sum_b log p(batch_b | w) + log p(w) ] / T

The sum runs over micro-batches, one after another, and over the devices of the mesh's axis "data"; the gradient is
accumulated along with it, so that the working memory is that of one micro-batch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from posteriax._internal.checks import check_count
from posteriax.data import Batch
from posteriax.methods.bulk import Bulk, disperse, find_bulk
from posteriax.methods.method import Lengths, Target
from posteriax.posterior import DrawsPosterior, Posterior, Trace
from posteriax.priors import CorrelatedNormal
from posteriax.problem import Unknowns

STARTS = ("map", "network", "prior")


@dataclass(frozen=True, kw_only=True, eq=False)
class FullBatchSampler:
    """Settings of every sampler that looks at all examples at every step.

    Args:
        warmup: steps that are thrown away and adapt what is to be adapted.
        thin: keep the last of every `thin` states as a draw.
        start: "map" climbs for a moment from each chain's own initial weights, with some noise on them, into the bulk
            of the posterior near them: the chains of a network begin as a small deep ensemble. "network" starts at
            those weights; "prior" at a draw from the prior, which may be very far from the bulk; a posterior, such as
            that of ``px.Ensemble(px.MAP(), 4)``, gives every chain one of its draws.
        micro_batches: how many parts the data are cut into, to save memory. The draws do not depend on it, but for
            rounding.
    """

    warmup: int = 200
    thin: int = 1
    start: Literal["map", "network", "prior"] | Posterior = "map"
    micro_batches: int = 1
    full_batch: ClassVar[bool] = True
    samples: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("warmup", "thin", "micro_batches"):
            check_count(name, getattr(self, name))
        if not isinstance(self.start, Posterior) and self.start not in STARTS:
            raise ValueError(f"start must be one of {', '.join(STARTS)}, or a posterior, got {self.start!r}")

    def lengths(self, steps_per_epoch: int) -> Lengths:
        return Lengths(self.warmup, self.thin)

    def prepare(self, target: Target) -> tuple[str, ...]:
        name = type(self).__name__
        target.problem.require_density(name)
        for path, leaf in zip(target.problem.leaf_names, jax.tree.leaves(target.problem.unknowns), strict=True):
            if jnp.finfo(leaf.dtype).bits < 32:
                raise TypeError(f"{name} needs params of at least float32: leaf {path} is {leaf.dtype}")
        if self.micro_batches > target.num_examples:
            raise ValueError(
                f"micro_batches={self.micro_batches} is more than there are examples, {target.num_examples}"
            )
        return ()

    def begin(self, target: Target, key: jax.Array, start: Unknowns, batch: Batch) -> Bulk:
        """Where a chain starts, given its member's own start, as a vector of :class:`Standardised` unknowns."""
        standardised = Standardised(target)
        if self.start == "map":
            start = disperse(key, start, target.problem.leaf_scales)
            return find_bulk(self.log_joint_of_vector(target, batch), standardised.vector(start))
        if self.start == "prior":
            start = target.problem.sample_prior(key)
        vector = standardised.vector(start)
        return Bulk(vector, jnp.ones_like(vector))

    def log_joint(self, target: Target, batch: Batch) -> Callable[[Unknowns], jax.Array]:
        """The log density that is sampled."""
        log_likelihood = log_likelihood_of(target, batch, self.micro_batches)
        problem = target.problem
        return lambda unknowns: (log_likelihood(unknowns) + problem.log_prior(unknowns)) / problem.temperature

    def log_joint_of_vector(self, target: Target, batch: Batch) -> Callable[[jax.Array], jax.Array]:
        """The same density over the vector of :class:`Standardised` unknowns (but for a constant)."""
        standardised, log_joint = Standardised(target), self.log_joint(target, batch)
        return lambda vector: log_joint(standardised.unknowns(vector))

    def finish(self, target: Target, states: Any, draws: Any, trace: Trace) -> Posterior:
        return DrawsPosterior(target.problem, trace, draws)


def log_likelihood_of(target: Target, batch: Batch, micro_batches: int = 1) -> Callable[[Unknowns], jax.Array]:
    """The log-likelihood of all examples as a function of the unknowns; its gradient comes along in the same passes."""
    problem = target.problem
    if micro_batches == 1 and target.data_axis is None:
        return lambda unknowns: problem.log_likelihood(unknowns, batch)

    def total(evaluate: Callable[[Batch], Any]) -> Any:
        parts = jax.tree.map(lambda a: a.reshape(micro_batches, -1, *a.shape[1:]), batch)
        first = evaluate(jax.tree.map(lambda a: a[0], parts))
        rest = jax.tree.map(lambda a: a[1:], parts)

        def add(so_far: Any, part: Batch) -> tuple[Any, None]:
            return jax.tree.map(jnp.add, so_far, evaluate(part)), None

        whole = jax.lax.scan(add, first, rest)[0] if micro_batches > 1 else first
        return whole if target.data_axis is None else jax.lax.psum(whole, target.data_axis)

    @jax.custom_vjp
    def log_likelihood(unknowns: Unknowns) -> jax.Array:
        return total(lambda part: problem.log_likelihood(unknowns, part))

    def forward(unknowns: Unknowns) -> tuple[jax.Array, Unknowns]:
        return total(lambda part: jax.value_and_grad(problem.log_likelihood)(unknowns, part))

    def backward(gradient: Unknowns, cotangent: jax.Array) -> tuple[Unknowns]:
        return (jax.tree.map(lambda g: cotangent * g, gradient),)

    log_likelihood.defvjp(forward, backward)
    return log_likelihood


class Standardised:
    """All unknowns as one vector, in units of their priors' scales at the problem's temperature.

    Samplers that adapt a mass for every weight work on it: whatever the priors, its entries start at the order of 1,
    and priors with correlated weights are taken apart into independent ones.
    """

    def __init__(self, target: Target):
        problem = target.problem
        self.priors = problem.leaf_priors
        self.scales = [
            problem.temperature**0.5 * (1.0 if isinstance(prior, CorrelatedNormal) else scale)
            for prior, scale in zip(self.priors, problem.leaf_scales, strict=True)
        ]
        self.unravel = ravel_pytree(problem.unknowns)[1]

    def vector(self, unknowns: Unknowns) -> jax.Array:
        leaves, treedef = jax.tree.flatten(unknowns)
        standard = [
            (prior.whiten(leaf) if isinstance(prior, CorrelatedNormal) else leaf) / scale
            for prior, leaf, scale in zip(self.priors, leaves, self.scales, strict=True)
        ]
        return ravel_pytree(jax.tree.unflatten(treedef, standard))[0]

    def variances(self, vector: jax.Array) -> Unknowns:
        """Variances of the vector's entries as those of the unknowns, if no prior has correlated weights."""
        leaves, treedef = jax.tree.flatten(self.unravel(vector))
        return jax.tree.unflatten(treedef, [leaf * scale**2 for leaf, scale in zip(leaves, self.scales, strict=True)])

    def unknowns(self, vector: jax.Array) -> Unknowns:
        leaves, treedef = jax.tree.flatten(self.unravel(vector))
        own = [
            (prior.unwhiten(leaf) if isinstance(prior, CorrelatedNormal) else leaf) * scale
            for prior, leaf, scale in zip(self.priors, leaves, self.scales, strict=True)
        ]
        return jax.tree.unflatten(treedef, own)


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
