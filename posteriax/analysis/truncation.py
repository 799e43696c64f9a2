"""Truncating trained standard deviations to a low rank.

    sigma ~ sum_(r <= k) gamma_r u_r v_r',   clipped at 0

If predictions survive this, the scales of an m x n matrix need only k (m + n) numbers. (Swiatkowski et al. 2020,
section 2.4)
"""

import jax
import jax.numpy as jnp

from posteriax._internal.checks import check_count
from posteriax.analysis.variational_leaves import change_leaves
from posteriax.posterior import Posterior, VariationalPosterior
from posteriax.priors import Leaf


def truncate(posterior: Posterior, k: int, leaves: str = "**") -> VariationalPosterior:
    """The posterior with the standard deviations of each weight matrix truncated to rank k. Means are unchanged.

    Convolution kernels are treated as matrices of inputs (positions and channels) by output channels; biases are
    left alone.

    Args:
        posterior: from mean-field VI, or another family with independent Gaussian entries.
        k: the rank; at full rank nothing changes.
        leaves: a pattern of leaves to truncate.

    >>> import equinox as eqx, jax, posteriax as px
    >>> from posteriax import families as q
    >>> (x, y), _ = px.data.two_moons()
    >>> problem = px.Problem(eqx.nn.Linear(2, 2, key=jax.random.key(0)), px.Categorical())
    >>> posterior = px.fit(problem, (x, y), px.VI(q.Normal(), estimator="weight"), steps=10, key=0)
    >>> px.analysis.truncate(posterior, k=1).predict(x, draws=5).probs.shape
    (500, 2)
    """
    k = check_count("k", k)

    def change(leaf: Leaf, mean: jax.Array, scale: jax.Array) -> tuple[jax.Array, jax.Array]:
        matrices = scale.reshape(scale.shape[0], *leaf.matrix_shape)
        return mean, jax.vmap(lambda m: truncate_matrix(m, k))(matrices).reshape(scale.shape)

    return change_leaves(posterior, leaves, change)


def truncate_matrix(matrix: jax.Array, k: int) -> jax.Array:
    """The best approximation of rank k, with negative entries set to 0.

    >>> truncate_matrix(jnp.array([[1.0, 2.0], [2.0, 4.0]]), k=1).round(3).tolist()
    [[1.0, 2.0], [2.0, 4.0]]
    """
    left, values, right = jnp.linalg.svd(matrix, full_matrices=False)
    return jnp.maximum((left[:, :k] * values[:k]) @ right[:k], 0.0)
