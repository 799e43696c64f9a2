"""Variance of the score under a rank-1 perturbation of a weight matrix, and under the matching full-rank one.

A rank-1 perturbation scales the inputs of a layer by s, with mean 1:  W = W* diag(s), Cov(s) = Sigma. Then

    E[(W - W*)_ij (W - W*)_kl] = W*_ij Sigma_jl W*_kl

and any perturbation of the matrix with that covariance gives the score f, here the log-likelihood of an example, the
same variance near W*: with G = df/dW and g = df/ds, g_j = sum_i G_ij W*_ij,

    sum_ijkl G_ij (W*_ij Sigma_jl W*_kl) G_kl  =  g' Sigma g

The full-rank side sums over pairs of weights, the rank-1 side over pairs of inputs. (Dusenberry et al. 2020, theorem 1,
which prints the covariance with Sigma_jk)
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from posteriax._internal.checks import KeyLike, as_key, check_count
from posteriax._internal.plot_style import PALETTE, Figure, subplots
from posteriax.analysis.leaves import chosen_weights, mean_latents, with_leaf
from posteriax.data.batches import Data, Inputs
from posteriax.networks.leaf import Leaf
from posteriax.posterior.posterior import Posterior
from posteriax.problem import Latents, Problem

Arrays = tuple[Inputs, jax.Array]  # (x, y) on the device


@dataclass(frozen=True, eq=False)
class ScoreVariance:
    """The variance of the log-likelihood of each example.

    Args:
        rank1: from draws of the factors, through the entire network.
        rank1_error: its Monte-Carlo standard error.
        full_rank: to first order, from the covariance of the weight matrix.
        independent: to first order, for independent weights with the same variances: without the rank-1 structure.
    """

    rank1: np.ndarray
    rank1_error: np.ndarray
    full_rank: np.ndarray
    independent: np.ndarray

    def plot(self) -> Figure:
        """Rank-1 against full-rank and independent weights, one point per example; returns the figure."""
        figure, ((axis,),) = subplots(1, 1, 4.2, 3.8)
        values = np.concatenate([self.rank1, self.full_rank, self.independent])
        ends = [values[values > 0].min(), values.max()]
        axis.plot(ends, ends, color="0.6", linewidth=1)
        axis.errorbar(
            self.full_rank, self.rank1, 2 * self.rank1_error, fmt="o", markersize=4, color=PALETTE[0], label="full rank"
        )
        axis.scatter(self.independent, self.rank1, s=14, marker="^", color=PALETTE[3], label="independent weights")
        axis.set(xscale="log", yscale="log", xlabel="variance of the score: perturbed matrix", ylabel="rank-1 factors")
        axis.legend(frameon=False, fontsize="small")
        return figure


def score_variance(
    posterior: Posterior,
    data: Data,
    leaf: str,
    covariance: ArrayLike,
    *,
    draws: int = 4000,
    key: KeyLike = 0,
) -> ScoreVariance:
    """Compare the two perturbations of one weight matrix numerically.

    Args:
        posterior: from any method; W* and all other weights are its mean.
        data: ``(x, y)``.
        leaf: the path of the matrix, whose inputs are perturbed.
        covariance: Sigma, (inputs, inputs), or a number c for Sigma = c I. Keep it small: the theorem is local.
        draws: number of draws of the factors.
        key: for the draws.

    >>> import equinox as eqx, jax, posteriax as px
    >>> (x, y), _ = px.data.two_moons()
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical())
    >>> posterior = px.fit(problem, (x, y), px.MAP(), steps=100, key=0)
    >>> result = score_variance(posterior, (x[:5], y[:5]), "layers/1/weight", 1e-4, draws=500)
    >>> bool((abs(result.rank1 - result.full_rank) < 5 * result.rank1_error + 1e-3 * result.full_rank).all())
    True
    """
    problem, params = posterior.problem, mean_latents(posterior)
    (chosen,) = chosen_weights(problem, [leaf])
    if len(chosen.shape) != 2:
        raise ValueError(f"leaf {chosen.path} {chosen.shape} is not a matrix")
    inputs = chosen.shape[chosen.in_axis]
    sigma = np.asarray(covariance, np.float32)
    sigma = sigma * np.eye(inputs, dtype=np.float32) if sigma.ndim == 0 else sigma
    if sigma.shape != (inputs, inputs):
        raise ValueError(f"covariance must be a number or ({inputs}, {inputs}), got {sigma.shape}")
    values, vectors = np.linalg.eigh(sigma)
    if values.min() < -1e-6 * max(values.max(), 1e-30) or not np.allclose(sigma, sigma.T):
        raise ValueError("covariance must be symmetric and positive semi-definite")
    root = jnp.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))
    noise = jax.random.normal(as_key(key), (check_count("draws", draws), inputs)) @ root.T
    x, y = problem.check(data)
    arrays = (jax.tree.map(jnp.asarray, x), jnp.asarray(y))
    index = problem.leaf_names.index(chosen.path)
    scores = np.asarray(_scores(problem, chosen, index, params, arrays, noise), np.float64)
    centred = np.square(scores - scores.mean(axis=0))
    variance = centred.sum(axis=0) / (len(scores) - 1)
    error = centred.std(axis=0) / np.sqrt(len(scores))
    full, independent = _first_order(problem, chosen, index, params, arrays, jnp.asarray(sigma))
    return ScoreVariance(variance, error, np.asarray(full), np.asarray(independent))


def _log_likelihoods(problem: Problem, params: Latents, data: Arrays) -> jax.Array:
    """The log-likelihood of each example."""
    x, y = data
    return problem.likelihood.log_prob(params.likelihood, problem.outputs(params.network, x), jnp.asarray(y))


@partial(jax.jit, static_argnums=(0, 1, 2))
def _scores(problem: Problem, leaf: Leaf, index: int, params: Latents, data: Arrays, noise: jax.Array) -> jax.Array:
    matrix = jax.tree.leaves(params)[index]

    def perturbed(change: jax.Array) -> jax.Array:
        along = jnp.expand_dims(1.0 + change, 1 - leaf.in_axis)
        return _log_likelihoods(problem, with_leaf(params, index, matrix * along), data)

    return jax.lax.map(perturbed, noise, batch_size=32)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _first_order(
    problem: Problem, leaf: Leaf, index: int, params: Latents, data: Arrays, sigma: jax.Array
) -> tuple[jax.Array, jax.Array]:
    matrix = jax.tree.leaves(params)[index]

    def variances(example: Arrays) -> tuple[jax.Array, jax.Array]:
        batch = jax.tree.map(lambda a: a[None], example)
        gradient = jax.grad(lambda m: _log_likelihoods(problem, with_leaf(params, index, m), batch)[0])(matrix)
        # sum_ijkl G_ij W_ij Sigma_jl W_kl G_kl: summing over i and k first avoids a matrix over pairs of weights
        moved = jnp.moveaxis(gradient * matrix, leaf.in_axis, 0)
        by_input = moved.sum(axis=1)
        squares = jnp.square(moved).sum(axis=1)
        return by_input @ sigma @ by_input, squares @ jnp.diag(sigma)

    return jax.lax.map(variances, data)
