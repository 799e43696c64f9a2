"""The evidence lower bound of a fitted variational posterior.

ELBO = E_q[log p(D | w)] - KL(q || p)        in nats, for the whole data set, at T = 1
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteriax.analysis.running_covariance import chunks_of_draws
from posteriax.analysis.variational_leaves import require_variational
from posteriax.checks import as_key, check_count
from posteriax.compiler import jit
from posteriax.posterior import Posterior, VariationalPosterior
from posteriax.problem import Batch, Problem


def elbo(posterior: Posterior, data: Any, draws: int = 100, *, key: Any = 0) -> float:
    """The ELBO, its likelihood averaged over draws; of several members, the mean of theirs.

    Args:
        posterior: of VI.
        data: the training data, ``(x, y)``.
        draws: to average the likelihood over.
        key: what random draws are made from.

    >>> import equinox as eqx, jax, posteriax as px
    >>> from posteriax import families as q
    >>> train, _ = px.data.two_moons()
    >>> problem = px.Problem(eqx.nn.Linear(2, 2, key=jax.random.key(0)), px.Categorical())
    >>> posterior = px.fit(problem, train, px.VI(q.Normal()), steps=10, key=0)
    >>> px.analysis.elbo(posterior, train) < 0
    True
    """
    own, count = require_variational(posterior), check_count("draws", draws)
    total = min(count, own.support or count)
    x, y = own.problem.check(data)
    batch = Batch(jax.tree.map(jnp.asarray, x), jnp.asarray(y), jnp.ones(len(y)))
    values = [
        np.asarray(_log_likelihoods(own.problem, some, batch), np.float64)
        for some in chunks_of_draws(own, as_key(key), total)
    ]
    return float(np.concatenate(values).mean()) - kl(own, key=key)


def kl(posterior: VariationalPosterior, *, key: Any = 0) -> float:
    """KL(q || p) in nats, summed over all leaves; of several members, the mean of theirs."""
    priors, total = posterior.problem.leaf_priors, 0.0
    keys = jax.random.split(as_key(key), len(posterior.blocks))
    for block, block_key in zip(posterior.blocks, keys, strict=True):
        prior = block.prior(priors)
        each = jax.vmap(lambda own, block=block, prior=prior, k=block_key: block.family.kl(own, prior, k))
        total += float(each(posterior.variational[block.name]).mean())
    return total


@partial(jit, static_argnums=0)
def _log_likelihoods(problem: Problem, draws: Any, batch: Batch) -> jax.Array:
    return jax.lax.map(lambda unknowns: problem.log_likelihood(unknowns, batch), draws)
