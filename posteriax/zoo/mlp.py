"""Multilayer perceptrons."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax

from posteriax.zoo.layers import Dense, Initializer, haiku_normal, he_normal


class MLP(eqx.Module):
    """Dense layers with an activation between them; an input of several axes is flattened.

    >>> MLP((784, 400, 400, 10), key=jax.random.key(0))(jax.numpy.ones((28, 28))).shape
    (10,)
    """

    layers: list[Dense]
    activation: Callable[[jax.Array], jax.Array] = eqx.field(static=True)

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        key: jax.Array,
        activation: Callable[[jax.Array], jax.Array] = jax.nn.relu,
        init: Initializer = he_normal,
    ):
        keys = jax.random.split(key, len(sizes) - 1)
        pairs = zip(sizes[:-1], sizes[1:], keys, strict=True)
        self.layers = [Dense(n, m, key=key, init=init) for n, m, key in pairs]
        self.activation = activation

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x.reshape(-1)
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        return self.layers[-1](x)


def mlp(*, inputs: int = 784, hidden: Sequence[int] = (400, 400), classes: int = 10, key: jax.Array) -> MLP:
    """The MLP of the k-tied Normal's experiments on MNIST (Swiatkowski et al. 2020): 784-400-400-10, ReLU, He.

    >>> sum(leaf.size for leaf in jax.tree.leaves(mlp(key=jax.random.key(0))))
    478410
    """
    return MLP((inputs, *hidden, classes), key=key)


def uci_mlp(*, inputs: int, hidden: Sequence[int] = (50,), outputs: int = 2, key: jax.Array) -> MLP:
    """The regression network of Izmailov et al. (2021): one hidden layer of 50 ReLU units; two outputs, the mean and,
    before a softplus, the standard deviation: for ``px.Normal(scale="predicted")``.

    Their larger network has ``hidden=(100, 100)``. Initialised as in Haiku, their library.

    >>> uci_mlp(inputs=8, key=jax.random.key(0))(jax.numpy.ones(8)).shape
    (2,)
    """
    return MLP((inputs, *hidden, outputs), key=key, init=haiku_normal)
