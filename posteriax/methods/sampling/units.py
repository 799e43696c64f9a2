"""The latent variables as samplers see them: one vector, in units of their priors' scales."""

from collections.abc import Callable

import jax
from jax.flatten_util import ravel_pytree

from posteriax.priors.prior import Whitening
from posteriax.problem import Latents, Problem


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
