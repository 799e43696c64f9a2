"""A posterior given by draws."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteriax.posterior.posterior import Posterior
from posteriax.posterior.stored_draws import blocks_of_draws
from posteriax.problem import Latents, Params


@dataclass(frozen=True, eq=False, repr=False)
class DrawsPosterior(Posterior):
    """A posterior given by draws: the states of chains, the members of an ensemble, or a single point.

    Args:
        draws: all latents with two leading axes, (chains or members, draws of each): arrays, or for large runs with a
            checkpoint :class:`~posteriax.posterior.stored_draws.StoredDraws`, which are read from its folder.
    """

    draws: Latents

    @property
    def support(self) -> int:
        chains, each = jax.tree.leaves(self.draws)[0].shape[:2]
        return chains * each

    @property
    def mean(self) -> Params:
        return self.problem.network.all_params(jax.tree.map(_mean_of_draws, self.draws.network))

    @property
    def num_parameters(self) -> int:
        return sum(leaf.size for leaf in jax.tree.leaves(self.draws))

    def draw(self, key: jax.Array, indices: np.ndarray, total: int) -> Latents:
        # evenly spaced over chains and along them; repeated evenly if more draws are requested than there are
        chosen = (np.asarray(indices) * self.support) // total if total < self.support else indices % self.support
        each = jax.tree.leaves(self.draws)[0].shape[1]
        return jax.tree.map(lambda leaf: jnp.asarray(leaf[chosen // each, chosen % each]), self.draws)


def _mean_of_draws(leaf: Any) -> jax.Array:
    total = sum(block.sum(axis=(0, 1), dtype=np.float64) for block in blocks_of_draws(leaf))
    return jnp.asarray(total / (leaf.shape[0] * leaf.shape[1]), leaf.dtype)
