"""A posterior whose network is linearised around its mean: the model for which a Gaussian at a mode is exact.

    f(x, w) = f(x, w*) + J(x) (w - w*),   w ~ q,   w*: the mean of q

Draws of the weights take a network out of the region in which the Gaussian holds, the farther the more weights it has;
its linearisation has no such limit. (Immer et al. 2021)
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posteriax.networks.network import Network, Params
from posteriax.posterior.posterior import WrappedPosterior
from posteriax.posterior.variational import VariationalPosterior
from posteriax.problem import Inputs, Latents


def linearised(posterior: VariationalPosterior) -> "LinearisedPosterior":
    """The same posterior of the weights, for the network linearised around their mean.

    Args:
        posterior: given by variational parameters; every member is linearised around its own mean.
    """
    problem = replace(posterior.problem, network=_linear(posterior.problem.network), fixed=())
    return LinearisedPosterior(problem, posterior.trace, posterior)


class AroundMean(NamedTuple):
    """The params of a draw, and those that the network is linearised at."""

    params: Params
    mean: Params


@dataclass(frozen=True, eq=False, repr=False)
class LinearisedPosterior(WrappedPosterior):
    """A posterior with linearised predictions; see :func:`linearised`."""

    weights: VariationalPosterior

    def draw(self, key: jax.Array, indices: np.ndarray, total: int) -> Latents:
        drawn = self.weights.draw(key, indices, total)
        means = self.weights.member_means().network
        members = indices % self.weights.members
        return drawn._replace(network=AroundMean(drawn.network, jax.tree.map(lambda leaf: leaf[members], means)))


def _linear(net: Network) -> Network:
    def apply(params: Params | AroundMean, x: Inputs, *, key: jax.Array | None = None) -> jax.Array:
        if not isinstance(params, AroundMean):
            return net.apply(params, x, key=key)
        difference = jax.tree.map(jnp.subtract, params.params, params.mean)
        value, change = jax.jvp(lambda weights: net.apply(weights, x), (params.mean,), (difference,))
        return value + change

    return replace(net, apply=apply, fixed=None)
