"""A posterior that draws its weights from another one and predicts with them in its own way."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from posteriax.posterior.posterior import Posterior
from posteriax.problem import Latents, Params


@dataclass(frozen=True, eq=False, repr=False)
class WrappedPosterior(Posterior):
    """Subclasses define `draw`: what their problem's network takes in place of params.

    Args:
        weights: the posterior of the weights.
    """

    weights: Posterior

    @property
    def drawn_from(self) -> Posterior:
        return self.weights

    @property
    def support(self) -> int | None:
        return self.weights.support

    @property
    def mean(self) -> Params:
        return self.weights.mean

    @property
    def num_parameters(self) -> int:
        return self.weights.num_parameters

    @property
    def template(self) -> Latents:
        draws = jax.eval_shape(lambda: self.draw(jax.random.key(0), np.arange(1), 1))
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), draws)

    def sample(self, key: Any, n: int) -> Params:
        return self.weights.sample(key, n)
