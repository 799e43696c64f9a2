"""Ablations that show where a posterior stores its information: in its means or in its variances."""

import jax
import jax.numpy as jnp

from posteriax._internal.checks import KeyLike, as_key
from posteriax.analysis.leaves import change_leaves
from posteriax.networks.leaf import Leaf
from posteriax.posterior.posterior import Posterior
from posteriax.posterior.variational import VariationalPosterior


def zero_mean(posterior: Posterior, leaves: str = "**") -> VariationalPosterior:
    """The posterior with the means of its weights set to 0; biases keep theirs.

    If predictions stay as good, those leaves store all they know in their variances.

    Args:
        posterior: of VI, with independent Gaussian entries.
        leaves: the pattern of leaves.

    >>> import equinox as eqx, jax, posteriax as px
    >>> from posteriax import families as q
    >>> (x, y), _ = px.data.two_moons()
    >>> problem = px.Problem(eqx.nn.Linear(2, 2, key=jax.random.key(0)), px.Categorical())
    >>> posterior = px.fit(problem, (x, y), px.VI(q.Normal(), estimator="weight"), steps=10, key=0)
    >>> float(abs(px.analysis.zero_mean(posterior, "weight").mean.weight).max())
    0.0
    """
    return change_leaves(posterior, leaves, lambda _, mean, scale: (jnp.zeros_like(mean), scale))


def permute(posterior: Posterior, leaves: str = "**", *, key: KeyLike = 0) -> VariationalPosterior:
    """The posterior with the standard deviations of every weight shuffled within its leaf; the means stay.

    If predictions become useless, those leaves stored their information in their variances.

    Args:
        posterior: of VI, with independent Gaussian entries.
        leaves: the pattern of leaves.
        key: seeds the shuffle.

    >>> import equinox as eqx, jax, posteriax as px
    >>> from posteriax import families as q
    >>> (x, y), _ = px.data.two_moons()
    >>> problem = px.Problem(eqx.nn.Linear(2, 2, key=jax.random.key(0)), px.Categorical())
    >>> posterior = px.fit(problem, (x, y), px.VI(q.ZeroMeanNormal(), estimator="weight"), steps=10, key=0)
    >>> shuffled = px.analysis.permute(posterior)
    """
    base = as_key(key)

    def change(leaf: Leaf, mean: jax.Array, scale: jax.Array) -> tuple[jax.Array, jax.Array]:
        index = posterior.problem.leaf_names.index(leaf.path)
        keys = jax.random.split(jax.random.fold_in(base, index), scale.shape[0])
        shuffled = jax.vmap(lambda k, s: jax.random.permutation(k, s.reshape(-1)))(keys, scale)
        return mean, shuffled.reshape(scale.shape)

    return change_leaves(posterior, leaves, change)
