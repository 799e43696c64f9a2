"""A posterior in which every draw has its own batch-normalisation statistics, measured on training data.

    for every draw w:   statistics(w) = average over batches of x of the means and variances at every BatchNorm
                        p(y | x*, w) = p(y | network(x*; w, statistics(w)))

Predictions then no longer depend on which examples are predicted together. SWAG does the same for each of its draws
(Maddox et al. 2019).
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posteriax._internal.checks import check_count, check_inputs
from posteriax.families.arrays.random_array import RandomArray
from posteriax.networks.adapters.adapter import Statistics
from posteriax.networks.network import Network, Params
from posteriax.posterior.posterior import Posterior, WrappedPosterior, unfixed
from posteriax.problem import Inputs, Latents


def with_batch_statistics(posterior: Posterior, x: Inputs, *, batch_size: int = 128) -> Posterior:
    """The same posterior for a network with batch normalisation, each draw with statistics measured on `x`.

    Args:
        posterior: of a network with BatchNorm layers of Flax, Equinox, Haiku or Keras.
        x: training inputs, all or enough of them, with a leading axis of examples.
        batch_size: how many examples are normalised together; best the same as in training.

    The draws' weights do not change: save the original posterior. A draw costs one more pass over `x`.

    Its `.network` has the posterior mean for its weights, and the statistics measured at these. It normalises by them
    in training too and has no dropout, so its examples are independent and full-batch samplers and Laplace accept it:
    ``px.Problem(posterior.network, px.Categorical(), fixed="!out")`` is for its last layer.

    >>> import jax, posteriax as px
    >>> from flax import nnx
    >>> class Net(nnx.Module):
    ...     def __init__(self, rngs):
    ...         self.hidden, self.norm = nnx.Linear(2, 8, rngs=rngs), nnx.BatchNorm(8, rngs=rngs)
    ...         self.out = nnx.Linear(8, 2, rngs=rngs)
    ...     def __call__(self, x):
    ...         return self.out(nnx.relu(self.norm(self.hidden(x))))
    >>> (x, y), (x_test, _) = px.data.two_moons()
    >>> fitted = px.fit(px.Problem(Net(nnx.Rngs(0)), px.Categorical()), (x, y), px.SWAG(), epochs=4, key=0)
    >>> posterior = px.posterior.with_batch_statistics(fitted, x)
    >>> together, single = posterior.predict(x_test, draws=5), posterior.predict(x_test[:1], draws=5)
    >>> bool(abs(together.probs[0] - single.probs[0]).max() < 1e-5)
    True
    >>> head = px.Problem(posterior.network, px.Categorical(), fixed="!out")
    >>> head.couples_examples(x)
    False
    """
    net = posterior.problem.network
    if net.batch_statistics is None:
        raise TypeError(
            "the network has no batch statistics to measure: it must have BatchNorm layers of Flax, Equinox (with its "
            "state), Haiku or Keras, and be called the way its library calls it (without batched=)"
        )
    if isinstance(posterior, _WithBatchStatistics):
        posterior = posterior.weights
    if any(isinstance(a, RandomArray) for a in jax.tree.leaves(posterior.template, is_leaf=_is_random)):
        raise TypeError("batch statistics need draws of plain params: factors added to inputs and outputs have none")
    x = check_inputs(x)
    n, size = jax.tree.leaves(x)[0].shape[0], check_count("batch_size", batch_size)
    count = -(-n // size)
    # in random order: batches of sorted data would differ from training batches; a remainder below `count` is left out
    rows = np.random.default_rng(0).permutation(n)[: n // count * count].reshape(count, -1)
    batches = jax.tree.map(lambda a: jnp.asarray(a[rows]), x)
    at_mean = jax.jit(partial(_average_statistics, net.batch_statistics.measure))(posterior.mean, batches)
    problem = replace(posterior.problem, network=_calibrated(net, at_mean), fixed=())
    return _WithBatchStatistics(problem, posterior.trace, posterior, batches)


class Calibrated(NamedTuple):
    """The params of a draw and the statistics it normalises by."""

    params: Params
    statistics: Statistics


@dataclass(frozen=True, eq=False, repr=False)
class _WithBatchStatistics(WrappedPosterior):
    batches: Inputs  # for training, (batches, examples, ...)

    def draw(self, key: jax.Array, indices: np.ndarray, total: int) -> Latents:
        drawn = self.weights.draw(key, indices, total)
        return drawn._replace(network=Calibrated(drawn.network, self._measure(drawn.network, self.batches)))

    @property
    def network(self) -> Network:
        """The network with the posterior mean for its weights, and batch statistics measured at these."""
        known = self.problem.network.batch_statistics
        assert known is not None
        net = unfixed(self.weights.problem.network)
        return replace(net.normalising_by(known.stored), params=self.mean)

    def save(self, path: str | os.PathLike[str]) -> None:
        raise TypeError(
            "a posterior with measured batch statistics is not saved: save the one it was made from, and after px.load "
            "measure again with px.posterior.with_batch_statistics"
        )

    @cached_property
    def _measure(self) -> Callable[[Params, Inputs], Statistics]:
        measure = self.problem.network.batch_statistics.measure
        return jax.jit(
            lambda draws, batches: jax.lax.map(lambda params: _average_statistics(measure, params, batches), draws)
        )


def _average_statistics(measure: Callable[[Params, Inputs], Statistics], params: Params, batches: Inputs) -> Statistics:
    by_batch = jax.lax.map(lambda x: measure(params, x), batches)
    return jax.tree.map(lambda leaf: leaf.mean(axis=0), by_batch)


def _calibrated(net: Network, at_mean: Statistics) -> Network:
    """The network applied to params with their statistics; params without any use those at the posterior mean."""
    assert net.batch_statistics is not None
    known = net.batch_statistics

    def apply(params: Params | Calibrated, x: Inputs, *, key: jax.Array | None = None) -> jax.Array:
        given = params if isinstance(params, Calibrated) else Calibrated(params, at_mean)
        return known.apply(given.params, given.statistics, x)

    # draws come from the original posterior, which adds the fixed leaves
    return replace(net, apply=apply, batch_statistics=known._replace(stored=at_mean), fixed=None, source=None)


def _is_random(leaf: object) -> bool:
    return isinstance(leaf, RandomArray)
