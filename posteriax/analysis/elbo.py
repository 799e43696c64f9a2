"""The evidence lower bound of a fitted variational posterior.

    ELBO = E_q[log p(D | w)] - KL(q || p)        in nats, for the whole data set, at T = 1

With ``q.Rank1(likelihood="mixture")`` the likelihood of an example is that of the mixture, as in training:
log 1/K sum_k p(y_i | x_i, w_k).
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from posteriax._internal.checks import KeyLike, as_key, check_count
from posteriax.analysis.leaves import chunks_of_draws, require_variational
from posteriax.data.batches import Batch, Data, full_batch
from posteriax.families.arrays.random_array import RandomArray
from posteriax.posterior.posterior import Posterior
from posteriax.posterior.prediction import outputs_of
from posteriax.posterior.variational import VariationalPosterior
from posteriax.problem import Latents, Problem


def elbo(posterior: Posterior, data: Data, draws: int = 100, *, key: KeyLike = 0) -> float:
    """The ELBO, with the likelihood averaged over draws; for several members, the mean of theirs.

    Args:
        posterior: from VI.
        data: the training data, ``(x, y)`` or ``(x, y, weight)``.
        draws: number of draws to average the likelihood over.
        key: for the draws.

    >>> import equinox as eqx, jax, posteriax as px
    >>> from posteriax import families as q
    >>> train, _ = px.data.two_moons()
    >>> problem = px.Problem(eqx.nn.Linear(2, 2, key=jax.random.key(0)), px.Categorical())
    >>> posterior = px.fit(problem, train, px.VI(q.Normal()), steps=10, key=0)
    >>> px.analysis.elbo(posterior, train) < 0
    True
    """
    fitted, count = require_variational(posterior), check_count("draws", draws)
    batch = jax.tree.map(jnp.asarray, full_batch(fitted.problem.check_weighted(data)))
    if any(family.likelihood == "mixture" for family in fitted.families.values()):
        return _mixture_log_likelihood(fitted, batch, count, as_key(key)) - kl(fitted, key=key)
    total = min(count, fitted.support or count)
    values = [
        np.asarray(_log_likelihoods(fitted.problem, chunk, batch), np.float64)
        for chunk in chunks_of_draws(fitted, as_key(key), total)
    ]
    return float(np.concatenate(values).mean()) - kl(fitted, key=key)


def kl(posterior: VariationalPosterior, *, key: KeyLike = 0) -> float:
    """KL(q || p) in nats, summed over all leaves; for several members, the mean of theirs."""
    priors, total = posterior.problem.leaf_priors, 0.0
    keys = jax.random.split(as_key(key), len(posterior.blocks))
    for block, block_key in zip(posterior.blocks, keys, strict=True):
        prior = block.prior(priors)
        member_kls = jax.vmap(lambda params, block=block, prior=prior, k=block_key: block.family.kl(params, prior, k))
        total += float(member_kls(posterior.variational[block.name]).mean())
    return total


def _mixture_log_likelihood(posterior: VariationalPosterior, batch: Batch, count: int, key: jax.Array) -> float:
    """E_q of the mixtures' log-likelihood: each round draws every component of every member."""
    members, components = posterior.members, posterior.components
    per_round = members * components
    rounds = 1 if posterior.support is not None else -(-count // per_round)
    shared = [not family.components for family in posterior.families.values()]
    total = 0.0
    for first in range(0, rounds * per_round, per_round):
        draws = posterior.draw(key, np.arange(first, first + per_round), rounds * per_round)
        leaves, structure = jax.tree.flatten(draws, is_leaf=lambda leaf: isinstance(leaf, RandomArray))
        # leaves outside the mixture are shared by all components; draws cycle through the members first
        firsts = np.arange(per_round) % members
        drawn = [leaf[firsts] if alike else leaf for leaf, alike in zip(leaves, shared, strict=True)]
        log_probs = _log_probs(posterior.problem, jax.tree.unflatten(structure, drawn), batch)
        by_member = logsumexp(log_probs.reshape(components, members, -1), axis=0) - np.log(components)
        total += float(by_member.sum(axis=-1).mean()) / rounds
    return total


@partial(jax.jit, static_argnums=0)
def _log_probs(problem: Problem, draws: Latents, batch: Batch) -> jax.Array:
    """log p(y_i | x_i, w_s) for every draw and example."""
    return jax.lax.map(
        lambda latents: problem.likelihood.log_prob(
            latents.likelihood, outputs_of(problem, latents.network, batch.x), batch.y
        ),
        draws,
    )


@partial(jax.jit, static_argnums=0)
def _log_likelihoods(problem: Problem, draws: Latents, batch: Batch) -> jax.Array:
    return jax.lax.map(lambda latents: problem.log_likelihood(latents, batch), draws)
