"""Masses for Hamiltonian dynamics: one for every weight, learned in warm-up, or taken from the priors' scales.

From the priors: a leaf whose prior has scale s_l gets the mass (scale / s_l)^2, with one common scale, so that under
the priors alone all leaves oscillate with the same period. A prior with correlated weights and covariance C gives its
leaf the mass matrix scale^2 C^-1, so that the same holds in every direction, however wide or narrow the prior is there.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posteriax.priors import Whitening
from posteriax.problem import Problem


def reference_scale(problem: Problem) -> float:
    """One scale for all weights: the geometric mean of their priors' scales."""
    sizes = [leaf.size for leaf in jax.tree.leaves(problem.latents)]
    logs = [math.log(scale) for scale in problem.leaf_scales]
    return math.exp(float(np.average(logs, weights=sizes)))


def prior_metric(problem: Problem) -> Any:
    """A mass, or a mass matrix, for every leaf, from its prior."""
    scale = reference_scale(problem)
    return _metric(
        [
            _matrix_mass(prior, scale) if isinstance(prior, Whitening) else _scalar_mass(leaf_scale / scale)
            for prior, leaf_scale in zip(problem.leaf_priors, problem.leaf_scales, strict=True)
        ]
    )


def diagonal_metric(variances: Any) -> Any:
    """A mass of 1 / variance for every weight."""
    return _metric([_entry_masses(leaf) for leaf in jax.tree.leaves(variances)])


def _metric(masses: list["_Mass"]) -> Any:
    """BlackJAX's metric, leaf by leaf; its own diagonal one flattens all leaves into a vector at every step."""
    from blackjax.mcmc.metrics import Metric

    def sample_momentum(key: jax.Array, position: Any) -> Any:
        leaves, treedef = jax.tree.flatten(position)
        keys = jax.random.split(key, len(leaves))
        momenta = [
            mass.momentum(jax.random.normal(k, leaf.shape, leaf.dtype))
            for k, leaf, mass in zip(keys, leaves, masses, strict=True)
        ]
        return jax.tree.unflatten(treedef, momenta)

    def kinetic_energy(momentum: Any, position: Any = None) -> Any:
        leaves = jax.tree.leaves(momentum)
        return 0.5 * sum(mass.square(leaf) for leaf, mass in zip(leaves, masses, strict=True))

    def unused(*_: Any, **__: Any) -> Any:
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
