"""A VGG-like network for CIFAR (Simonyan and Zisserman 2015, with batch normalisation and dropout)."""

import equinox as eqx
import jax

from posteriax.zoo.layers import BatchNorm, Conv, Dense, Stateful, check_shape, glorot_uniform, max_pool

STAGES = ((1, 2), (2, 2), (4, 3), (8, 3), (8, 3))  # channels over the width, convolutions; a pooling after each
RATES = (0.3, 0.4, 0.4, 0.4, 0.0)  # of dropout between the convolutions of a stage
EPSILON = 1e-3


class VGG(eqx.Module):
    """Thirteen 3 x 3 convolutions, a dense layer, and the outputs."""

    convolutions: list[list[Conv]]
    norms: list[list[BatchNorm]]
    dense: Dense
    dense_norm: BatchNorm
    out: Dense
    dropout: bool = eqx.field(static=True)
    shape: tuple[int, int, int] = eqx.field(static=True)

    def __init__(self, width: int, channels: int, classes: int, size: int, dropout: bool, *, key: jax.Array):
        if size % 32:
            raise ValueError(f"size must be a multiple of 32, since the image is halved five times, got {size}")
        keys = iter(jax.random.split(key, 15))
        self.convolutions, self.norms, inputs = [], [], channels
        for times, count in STAGES:
            outputs = times * width
            shapes = [(inputs if i == 0 else outputs, outputs) for i in range(count)]
            self.convolutions.append([Conv(n, m, 3, init=glorot_uniform, key=next(keys)) for n, m in shapes])
            self.norms.append([BatchNorm(outputs, epsilon=EPSILON) for _ in shapes])
            inputs = outputs
        self.dense = Dense(inputs * (size // 32) ** 2, inputs, init=glorot_uniform, key=next(keys))
        self.dense_norm = BatchNorm(inputs, epsilon=EPSILON)
        self.out = Dense(inputs, classes, init=glorot_uniform, key=next(keys))
        self.dropout, self.shape = dropout, (size, size, channels)

    def __call__(
        self, x: jax.Array, state: eqx.nn.State, *, key: jax.Array | None = None
    ) -> tuple[jax.Array, eqx.nn.State]:
        check_shape(x, self.shape)
        keys = iter([None] * 16 if key is None else list(jax.random.split(key, 16)))
        for stage, (convolutions, norms) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            for i, (convolution, norm) in enumerate(zip(convolutions, norms, strict=True)):
                x, state = norm(convolution(x), state)
                x = jax.nn.relu(x)
                if i < len(convolutions) - 1:
                    x = self._drop(x, RATES[stage], next(keys))
            x = max_pool(x)
        x = self._drop(x.reshape(-1), 0.5, next(keys))
        x, state = self.dense_norm(self.dense(x), state)
        return self.out(self._drop(jax.nn.relu(x), 0.5, next(keys))), state

    def _drop(self, x: jax.Array, rate: float, key: jax.Array) -> jax.Array:
        if not self.dropout or key is None or rate == 0:
            return x
        return jax.numpy.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0.0)


def vgg_like(
    *, channels: int = 3, size: int = 32, width: int = 64, classes: int = 10, dropout: bool = False, key: jax.Array
) -> Stateful:
    """The network of Variance Networks (Neklyudov et al. 2019) for CIFAR; with its state.

    Glorot initialisation. Their variance layers are the last three convolutions, ``convolutions/4/*``, and ``dense``.

    Args:
        channels, size: of the images, which are square.
        width: channels of the first stage; the last two stages and `dense` have eight times as many.
        dropout: use dropout in training, like their baseline: none in the last stage, half of the units around `dense`.

    >>> net, state = vgg_like(key=jax.random.key(0))
    >>> sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(net, eqx.is_inexact_array)))
    14991946
    """
    return eqx.nn.make_with_state(VGG)(width, channels, classes, size, dropout, key=key)
