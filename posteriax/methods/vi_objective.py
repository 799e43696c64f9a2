"""The objective of variational inference, for one draw of the weights.

    -E_q[log p(D | w)] / T + KL(q || p) / T + (1/T - 1) H(q)

The draw enters the network leaf by leaf, as a plain array or as a random array that the network's own operations
dispatch on (:mod:`posteriax.families.arrays`).
"""

from typing import Any

import jax
import jax.numpy as jnp
import quax

from posteriax.data import Batch
from posteriax.families.arrays import KEYS_PER_LEAF
from posteriax.methods.vi_blocks import BlockPlan, Blocks, Mixture, mixture_of
from posteriax.priors import has_density
from posteriax.problem import Latents, Problem


def block_keys(key: jax.Array, blocks: Blocks) -> jax.Array:
    """A row of keys for every block of leaves, and one for all other randomness, from a single split."""
    return jax.random.split(key, (len(blocks) + 1, KEYS_PER_LEAF))


def random_outputs(problem: Problem, blocks: Blocks, variational: Any, keys: jax.Array, x: Any) -> tuple[Latents, Any]:
    """The network's outputs with every leaf drawn by its own estimator, and the leaves as they were drawn.

    With families of a mixture, the outputs of all components in a leading axis; other leaves are the same in all.
    `keys` has a row for every block of leaves, and one for the network's own randomness.
    """
    examples = jax.tree.leaves(x)[0].shape[0]
    mixture = mixture_of(blocks)

    def drawn(block: BlockPlan, keys: jax.Array, component: Any = None) -> list[Any]:
        own = variational[block.name]
        if component is not None:
            own, keys = block.family.component(own, component), jax.vmap(jax.random.fold_in, (0, None))(keys, component)
        return block.leaves.split(block.family.array(own, keys, block.plan, examples))

    shared = {block.name: drawn(block, keys[i]) for i, block in enumerate(blocks) if not block.family.components}

    def outputs(component: Any = None) -> tuple[Any, Any]:
        arrays: list[Any] = [None] * len(problem.leaf_names)
        for i, block in enumerate(blocks):
            parts = shared[block.name] if block.name in shared else drawn(block, keys[i], component)
            for index, array in zip(block.leaves.indices, parts, strict=True):
                arrays[index] = array
        latents: Latents = jax.tree.unflatten(jax.tree.structure(problem.latents), arrays)
        apply = problem.network.apply
        if any(isinstance(array, quax.Value) for array in arrays):  # plain draws need no dispatch
            apply = quax.quaxify(apply)
        return latents, apply(latents.network, x, key=keys[-1, 0])

    if mixture is None:
        return outputs()
    own = jax.tree.unflatten(jax.tree.structure(problem.latents), range(len(problem.leaf_names))).likelihood
    likelihood = jax.tree.map(lambda i: shared[problem.leaf_names[i]][0], own)
    return Latents(None, likelihood), jax.vmap(lambda k: outputs(k)[1])(jnp.arange(mixture.components))


def objective(
    problem: Problem, blocks: Blocks, kl_weight: Any, learned: Any, keys: jax.Array, batch: Batch
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """The objective to minimise, for one draw; and its log-likelihood and KL."""
    variational = {block.name: block.family.precompute(learned[block.name]) for block in blocks}
    latents, outputs = random_outputs(problem, blocks, variational, keys, batch.x)
    log_likelihood = _log_likelihood(problem, mixture_of(blocks), latents, outputs, batch)
    kl, complexity = complexity_of(problem, blocks, variational, keys[-1, 1])
    if mixture_of(blocks) is None:
        complexity += _path_correction(problem, blocks, variational, latents)
    return -log_likelihood / problem.temperature + kl_weight * complexity, (log_likelihood, kl)


def _log_likelihood(
    problem: Problem, mixture: Mixture | None, latents: Latents, outputs: Any, batch: Batch
) -> jax.Array:
    if mixture is None:
        return problem.log_likelihood_of_outputs(latents, outputs, batch)
    each = jax.vmap(lambda o: problem.likelihood.log_prob(latents.likelihood, o, batch.y))(outputs)
    if mixture.likelihood == "average":
        return jnp.vdot(batch.weight, each.mean(axis=0))
    return jnp.vdot(batch.weight, jax.nn.logsumexp(each, axis=0) - jnp.log(mixture.components))


def complexity_of(problem: Problem, blocks: Blocks, variational: Any, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """KL(q || p), and the full term of the objective in q and p: the same at T = 1."""
    priors = problem.leaf_priors
    keys = jax.random.split(key, len(blocks))
    kl = sum(
        block.family.kl(variational[block.name], block.leaves.prior(priors), block_key)
        for block, block_key in zip(blocks, keys, strict=True)
    )
    t = problem.temperature
    if t == 1.0:
        return kl, kl  # type: ignore[return-value]
    entropy = sum(block.family.entropy(variational[block.name]) for block in blocks)
    return kl, kl / t + (1.0 / t - 1.0) * entropy  # type: ignore[return-value]


def _path_correction(problem: Problem, blocks: Blocks, variational: Any, latents: Latents) -> jax.Array:
    """A term whose value is 0 and whose gradient has mean 0 and cancels the noise of the draw if q is the posterior.

    It turns the gradient of -H(q) - E_q[log p(w)] / T into that of log q(w) - log p(w) / T at the draw w, with the
    parameters of q in log q held fixed. Together with the likelihood's gradient this is 0 for every w if q is the
    posterior. (Roeder et al. 2017)
    """
    priors, drawn, t = problem.leaf_priors, jax.tree.leaves(latents), problem.temperature
    correction = jnp.zeros(())
    for block in blocks:
        own, prior = variational[block.name], block.leaves.prior(priors)
        if not has_density(prior) or block.family.kl_note(prior):
            continue
        w = block.leaves.join(drawn) if block.family.joint else drawn[block.leaves.indices[0]]
        at_draw = block.family.log_density(jax.lax.stop_gradient(own), w) if isinstance(w, jax.Array) else None
        if at_draw is None:
            continue
        at_draw -= prior.log_prob(w).sum() / t
        entropy = block.family.entropy(own)
        exact = (block.family.kl(own, prior, jax.random.key(0)) + entropy) / t - entropy
        correction += (at_draw - exact) - jax.lax.stop_gradient(at_draw - exact)
    return correction
