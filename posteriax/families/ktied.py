"""The k-tied Normal: mean-field with standard deviations that form a matrix of rank k.

    q(W) = prod_ij N(W_ij; M_ij, A_ij^2),   A = U V',   U (m x k) and V (n x k) positive, learned in the log domain

Parameters: m n + k (m + n) instead of 2 m n. The variances A^2 have rank k (k + 1) / 2, so the `local` estimator needs
no variance matrix either. (Swiatkowski et al. 2020)
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import cast

import jax
import jax.numpy as jnp

from posteriax._internal.checks import check_count, check_positive
from posteriax.families.arrays.estimators import EstimatorPlan
from posteriax.families.arrays.gaussian import GaussianArray, VarianceFactors
from posteriax.families.family import DiagonalGaussian, Draw, Units, Variational, rows_and_columns
from posteriax.families.normal import Normal
from posteriax.networks.leaf import Leaf


@dataclass(frozen=True)
class KTied(DiagonalGaussian):
    """Mean-field with the scales of each weight matrix tied to rank k; biases stay mean-field.

    A convolution kernel is treated as a matrix of inputs (positions and channels) by output channels. A matrix with
    fewer than k rows or columns gets the highest rank it allows. If a leaf stacks the matrices of equal blocks, each
    block has its own factors.

    Args:
        k: the rank; 2 is usually as good as untied.
        scale: initial standard deviation of each weight, up to a small random perturbation of the factors.

    >>> from posteriax import families as q
    >>> q.KTied(2)
    KTied(k=2, scale=0.01)
    """

    k: int = 2
    scale: float = 0.01

    def __post_init__(self) -> None:
        check_count("k", self.k)
        check_positive("scale", self.scale)

    def for_leaf(self, leaf: Leaf) -> DiagonalGaussian:
        if leaf.is_bias:
            return Normal(self.scale)
        rank = min(leaf.one_copy.matrix_shape)
        return self if self.k <= rank else dataclasses.replace(self, k=rank)

    def misfit(self, leaf: Leaf) -> str:
        shape = leaf.one_copy.matrix_shape
        rank = min(shape) if not leaf.is_bias else self.k
        if self.k <= rank:
            return ""
        return (
            f"the scales of a {shape} matrix have rank {rank} at most, so it gets q.KTied(k={rank}) "
            f"instead of q.KTied(k={self.k})"
        )

    def init(self, key: jax.Array, value: jax.Array, leaf: Leaf) -> Variational:
        rows, columns = leaf.one_copy.matrix_shape
        start = 0.5 * (math.log(self.scale) - math.log(self.k))  # so that k products of two factors sum to `scale`
        factors = start + 0.1 * jax.random.normal(key, (*leaf.copies, rows + columns, self.k), value.dtype)
        return {"mean": value, "log_u": factors[..., :rows, :], "log_v": factors[..., rows:, :]}

    def spread(self, variational: Variational, variance: jax.Array, covariance: jax.Array | None) -> Variational:
        factors = (variational["log_u"], variational["log_v"])
        *copies, rows, _ = factors[0].shape
        columns = factors[1].shape[-2]
        by_copy = variance.reshape(-1, rows, columns)
        means = jax.vmap(lambda matrix: rows_and_columns(matrix, (rows, columns)))(by_copy)
        # keep the random differences between the k pairs of factors
        log_u, log_v = (
            start - start.mean() + (mean - 0.5 * math.log(self.k)).reshape(*copies, -1, 1)
            for start, mean in zip(factors, means, strict=True)
        )
        return {**variational, "log_u": log_u, "log_v": log_v}

    def precompute(self, variational: Variational) -> Variational:
        # shared by the draw, the KL and the entropy, each of whose gradients would take two matrix products
        scale = jnp.exp(variational["log_u"]) @ jnp.exp(variational["log_v"]).mT
        return {**variational, "scale": scale.reshape(variational["mean"].shape)}

    def moments(self, variational: Variational) -> tuple[jax.Array, jax.Array]:
        known = variational if "scale" in variational else self.precompute(variational)
        return known["mean"], known["scale"]

    def units(self, variational: Variational) -> Units:
        _, scale = self.moments(variational)
        (rows, k), columns = variational["log_u"].shape[-2:], variational["log_v"].shape[-2]
        # k products share a weight
        return Units({"mean": scale}, {"log_u": 0.5, "log_v": 0.5}, {"log_u": 2 * columns / k, "log_v": 2 * rows / k})

    def array(self, variational: Variational, keys: jax.Array, plan: EstimatorPlan, examples: int) -> Draw:
        array = super().array(variational, keys, plan, examples)
        if variational["log_u"].ndim > 2:  # the blocks of a loop
            return array
        rows, columns = variational["log_u"].shape[0], variational["log_v"].shape[0]
        if plan.estimator != "local" or self.k * (self.k + 1) // 2 * (rows + columns) >= rows * columns:
            return array
        return dataclasses.replace(cast(GaussianArray, array), factors=_variance_factors(variational))


def _variance_factors(variational: Variational) -> VarianceFactors:
    """A_ij^2 = sum_(r <= s) c_rs (U_ir U_is) (V_jr V_js), with c = 1 for r = s and 2 otherwise."""
    u, v, shape = jnp.exp(variational["log_u"]), jnp.exp(variational["log_v"]), variational["mean"].shape
    pairs = [(r, s) for r in range(u.shape[1]) for s in range(r, u.shape[1])]
    left = jnp.stack([(1 if r == s else 2) * u[:, r] * u[:, s] for r, s in pairs], axis=1)
    right = jnp.stack([v[:, r] * v[:, s] for r, s in pairs], axis=1)
    split = next(n for n in range(1, len(shape) + 1) if math.prod(shape[:n]) == u.shape[0])
    return VarianceFactors(left, right, split)
