"""Units for samplers: latent variables scaled by their priors, posterior scales learned in warm-up, and masses.

:class:`Standardised` is the vector of latent variables in units of their priors' scales. :class:`Diagonal` has the
scale of every weight under the posterior, learned during warm-up from draws and gradients:

    v_i = sqrt( Var[w_i] / Var[g_i] )           g: gradient of the log joint

For a Gaussian, Var[g_i] is one over the variance of w_i given all others, so v_i is the geometric mean of its marginal
and its conditional variance: the diagonal that makes the density closest to a standard normal in Fisher divergence, as
nutpie uses it. Gradients are as informative about scale as draws, so a dozen states already give usable values, and
nothing has to be shrunk towards a constant that may be far too large for a posterior much narrower than its prior.
Both variances are averages that count state t with the weight t^3: early states, far from the bulk, are soon forgotten.

Masses for Hamiltonian dynamics are the inverse of these variances (:func:`diagonal_metric`) or come from the priors
(:func:`prior_metric`): a leaf whose prior has scale s_l gets the mass (scale / s_l)^2, with one common scale, so that
under the priors alone all leaves oscillate with the same period. A prior with correlated weights and covariance C gives
its leaf the mass matrix scale^2 C^-1, so that the same holds in every direction, however wide or narrow the prior is.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import PyTree

from posteriax._internal.running_moments import add_value
from posteriax.priors.prior import Whitening
from posteriax.problem import Latents, Problem

if TYPE_CHECKING:
    from blackjax.mcmc.metrics import Metric

POWER = 3.0  # of a state's number, as its weight in the running moments
FEWEST = 10  # states before the estimate replaces the first guess


class Standardised:
    """All latent variables as one vector, in units of their priors' scales at the problem's temperature.

    Samplers that adapt one mass per weight use it: whatever the priors, its entries are initially of order 1, and
    correlated priors are whitened.
    """

    def __init__(self, problem: Problem):
        self.problem = problem
        self.priors = problem.leaf_priors
        self.scales = [
            problem.temperature**0.5 * (1.0 if isinstance(prior, Whitening) else scale)
            for prior, scale in zip(self.priors, problem.leaf_scales, strict=True)
        ]

    def vector(self, latents: Latents) -> jax.Array:
        """The vector of these latent variables."""
        leaves, treedef = jax.tree.flatten(latents)
        standard = [
            (prior.whiten(leaf) if isinstance(prior, Whitening) else leaf) / scale
            for prior, leaf, scale in zip(self.priors, leaves, self.scales, strict=True)
        ]
        return ravel_pytree(jax.tree.unflatten(treedef, standard))[0]

    def variances(self, vector: jax.Array) -> Latents:
        """Variances of the vector's entries as those of the latent variables, if no prior has correlated weights."""
        leaves, treedef = jax.tree.flatten(ravel_pytree(self.problem.latents)[1](vector))
        return jax.tree.unflatten(treedef, [leaf * scale**2 for leaf, scale in zip(leaves, self.scales, strict=True)])

    def latents(self, vector: jax.Array) -> Latents:
        """The inverse of `vector`."""
        return self.inverse()(vector)

    def inverse(self) -> Callable[[jax.Array], Latents]:
        """The function from vectors to latent variables, for repeated calls: its setup is traced once."""
        unravel = ravel_pytree(self.problem.latents)[1]

        def latents(vector: jax.Array) -> Latents:
            leaves, treedef = jax.tree.flatten(unravel(vector))
            scaled = [
                (prior.unwhiten(leaf) if isinstance(prior, Whitening) else leaf) * scale
                for prior, leaf, scale in zip(self.priors, leaves, self.scales, strict=True)
            ]
            return jax.tree.unflatten(treedef, scaled)

        return latents


class Diagonal(NamedTuple):
    """Running moments of draws and gradients, each with the weights' shape, and the variances in use."""

    variances: PyTree
    states: jax.Array  # how many
    mean: PyTree
    variance: PyTree
    gradient_mean: PyTree
    gradient_variance: PyTree


def start_diagonal(variances: PyTree) -> Diagonal:
    """No state seen yet; `variances` are a first guess."""
    zeros = jax.tree.map(jnp.zeros_like, variances)
    return Diagonal(variances, jnp.zeros((), jnp.float32), zeros, zeros, zeros, zeros)


def learn(diagonal: Diagonal, position: PyTree, gradient: PyTree) -> Diagonal:
    """Update the moments with one more state of the warm-up."""
    count = diagonal.states + 1
    share = (POWER + 1) / (count + POWER)
    mean, variance = add_value(diagonal.mean, diagonal.variance, position, share)
    gradient_mean, gradient_variance = add_value(diagonal.gradient_mean, diagonal.gradient_variance, gradient, share)
    estimate = partial(_estimate, count >= FEWEST)
    variances = jax.tree.map(estimate, diagonal.variances, variance, gradient_variance)
    return Diagonal(variances, count, mean, variance, gradient_mean, gradient_variance)


def stretch(diagonal: Diagonal) -> jax.Array:
    """How much wider than its scales the posterior is because of correlations: 1 for independent weights, else more.

        sqrt( sum r_i^2 / sum r_i ),    r_i = Var[w_i] / v_i

    A trajectory has to be longer by about this to cross the posterior.
    """
    ratios = jax.tree.leaves(jax.tree.map(jnp.divide, diagonal.variance, diagonal.variances))
    squares, total = (sum(jnp.sum(ratio**power) for ratio in ratios) for power in (2, 1))
    known = (diagonal.states >= FEWEST) & (total > 0)
    return jnp.where(known, jnp.sqrt(jnp.maximum(squares / jnp.where(known, total, 1.0), 1.0)), 1.0)


def _estimate(
    enough: jax.Array, current: jax.Array, draw_variance: jax.Array, gradient_variance: jax.Array
) -> jax.Array:
    """The estimate where there is one; a weight that never moved, or whose gradient never changed, keeps its scale."""
    usable = enough & (draw_variance > 0) & (gradient_variance > 0)
    estimate = jnp.sqrt(draw_variance) / jnp.sqrt(jnp.where(usable, gradient_variance, 1.0))  # a ratio could overflow
    usable &= jnp.isfinite(estimate) & (estimate > 0)
    return jnp.where(usable, estimate, current).astype(current.dtype)


def reference_scale(problem: Problem) -> float:
    """One scale for all weights: the geometric mean of their priors' scales."""
    sizes = [leaf.size for leaf in jax.tree.leaves(problem.latents)]
    logs = [math.log(scale) for scale in problem.leaf_scales]
    return math.exp(float(np.average(logs, weights=sizes)))


def prior_metric(problem: Problem) -> "Metric":
    """A mass, or a mass matrix, for every leaf, from its prior."""
    scale = reference_scale(problem)
    return _metric(
        [
            _matrix_mass(prior, scale) if isinstance(prior, Whitening) else _scalar_mass(leaf_scale / scale)
            for prior, leaf_scale in zip(problem.leaf_priors, problem.leaf_scales, strict=True)
        ]
    )


def diagonal_metric(variances: PyTree) -> "Metric":
    """A mass of 1 / variance for every weight."""
    return _metric([_entry_masses(leaf) for leaf in jax.tree.leaves(variances)])


def _metric(masses: list["_Mass"]) -> "Metric":
    """BlackJAX's metric, leaf by leaf; its own diagonal one flattens all leaves into a vector at every step."""
    from blackjax.mcmc.metrics import Metric

    def sample_momentum(key: jax.Array, position: PyTree) -> PyTree:
        leaves, treedef = jax.tree.flatten(position)
        keys = jax.random.split(key, len(leaves))
        momenta = [
            mass.momentum(jax.random.normal(k, leaf.shape, leaf.dtype))
            for k, leaf, mass in zip(keys, leaves, masses, strict=True)
        ]
        return jax.tree.unflatten(treedef, momenta)

    def kinetic_energy(momentum: PyTree, position: PyTree = None) -> jax.Array | float:
        leaves = jax.tree.leaves(momentum)
        return 0.5 * sum(mass.square(leaf) for leaf, mass in zip(leaves, masses, strict=True))

    def unused(*_: object, **__: object) -> NoReturn:
        raise TypeError("fixed-length HMC neither looks for U-turns nor rescales")

    return Metric(sample_momentum, kinetic_energy, unused, unused)


class _Mass(NamedTuple):
    """The mass M of one leaf."""

    momentum: Callable[[jax.Array], jax.Array]  # M^1/2 noise
    square: Callable[[jax.Array], jax.Array]  # p' M^-1 p


def _scalar_mass(ratio: float) -> _Mass:
    return _Mass(lambda noise: noise / ratio, lambda p: ratio**2 * jnp.vdot(p, p))


def _entry_masses(variances: jax.Array) -> _Mass:
    return _Mass(lambda noise: noise * jax.lax.rsqrt(variances), lambda p: jnp.vdot(p, variances * p))


def _matrix_mass(prior: Whitening, scale: float) -> _Mass:
    def square(p: jax.Array) -> jax.Array:
        speed = prior.unwhiten(p) / scale
        return jnp.vdot(speed, speed)

    return _Mass(lambda noise: scale * prior.whiten(noise), square)
