"""The layers that the architectures share, and the initialisations of the libraries that papers used.

Arrays of one example are channels-last: (height, width, channels). Pooling is over windows that do not overlap, by a
reshape: faster than a window reduction, and so is its gradient.
"""

from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp

Stateful = tuple[eqx.Module, eqx.nn.State]  # a network with batch normalisation, and its state
Initializer = Callable[..., jax.Array]
he_normal = jax.nn.initializers.he_normal()  # variance 2 / fan_in
glorot_uniform = jax.nn.initializers.glorot_uniform()  # variance 2 / (fan_in + fan_out)
torch_uniform = jax.nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")  # PyTorch's: U(+-1 / sqrt(fan_in))
# Haiku's: N(0, 1 / fan_in) cut off at two standard deviations, which leaves 0.774 of the variance
haiku_normal = jax.nn.initializers.variance_scaling(0.77374, "fan_in", "truncated_normal")
orthogonal = jax.nn.initializers.orthogonal()
EPSILON = 1e-6  # of FilterResponseNorm and LayerNorm
Block = Callable[[jax.Array], jax.Array]  # a module: a pytree that is called with its input


def keras_uniform(key: jax.Array, shape: tuple[int, ...], dtype: jnp.dtype) -> jax.Array:
    """Keras's initialisation of embeddings: U(-0.05, 0.05)."""
    return jax.random.uniform(key, shape, dtype, -0.05, 0.05)


class Dense(eqx.Module):
    """x W + b, with W of shape (inputs, outputs).

    >>> Dense(3, 2, key=jax.random.key(0))(jnp.ones(3)).shape
    (2,)
    """

    weight: jax.Array
    bias: jax.Array | None

    def __init__(self, inputs: int, outputs: int, *, key: jax.Array, init: Initializer = he_normal, bias: bool = True):
        self.weight = init(key, (inputs, outputs), jnp.float32)
        self.bias = jnp.zeros(outputs) if bias else None

    def __call__(self, x: jax.Array) -> jax.Array:
        if x.shape[-1] != self.weight.shape[0]:
            raise ValueError(f"a dense layer takes {self.weight.shape[0]} inputs, but got {x.shape[-1]}")
        y = x @ self.weight
        return y if self.bias is None else y + self.bias


class Embedding(eqx.Module):
    """One row of the weights for each token.

    >>> Embedding(10, 4, key=jax.random.key(0))(jnp.array([3, 1])).shape
    (2, 4)
    """

    weight: jax.Array

    def __init__(self, words: int, features: int, *, key: jax.Array, init: Initializer = keras_uniform):
        self.weight = init(key, (words, features), jnp.float32)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        if not jnp.issubdtype(tokens.dtype, jnp.integer):
            raise ValueError(f"an embedding takes whole numbers, the indices of words, but got {tokens.dtype}")
        return self.weight[tokens]


class Conv(eqx.Module):
    """A convolution of one example, (..., channels), with a kernel (..., inputs, outputs); an image of one channel may
    also come as (height, width).

    >>> Conv(3, 8, 3, stride=2, key=jax.random.key(0))(jnp.ones((6, 6, 3))).shape
    (3, 3, 8)
    >>> Conv(4, 8, 5, axes=1, padding="VALID", key=jax.random.key(0))(jnp.ones((10, 4))).shape
    (6, 8)
    """

    weight: jax.Array
    bias: jax.Array | None
    stride: int = eqx.field(static=True)
    padding: str | list[tuple[int, int]] = eqx.field(static=True)

    def __init__(
        self,
        inputs: int,
        outputs: int,
        size: int,
        *,
        key: jax.Array,
        stride: int = 1,
        padding: Literal["SAME", "VALID"] | int = "SAME",
        axes: int = 2,
        bias: bool = True,
        init: Initializer = he_normal,
    ):
        self.weight = init(key, (*[size] * axes, inputs, outputs), jnp.float32)
        self.bias = jnp.zeros(outputs) if bias else None
        self.stride = stride
        self.padding = [(padding, padding)] * axes if isinstance(padding, int) else padding

    def __call__(self, x: jax.Array) -> jax.Array:
        axes, channels = self.weight.ndim - 2, self.weight.shape[-2]
        if x.ndim == axes and channels == 1:
            x = x[..., None]
        if x.ndim != axes + 1 or x.shape[-1] != channels:
            expected = f"(height, width, {channels})" if axes == 2 else f"(length, {channels})"
            raise ValueError(f"a convolution takes one example of shape {expected}, channels last, but got {x.shape}")
        names = ("NWC", "WIO", "NWC") if axes == 1 else ("NHWC", "HWIO", "NHWC")
        y = jax.lax.conv_general_dilated(
            x[None], self.weight, (self.stride,) * axes, self.padding, dimension_numbers=names
        )[0]
        return y if self.bias is None else y + self.bias


def max_pool(x: jax.Array, size: int = 2) -> jax.Array:
    """The largest value of each window; incomplete windows are left out.

    >>> import jax.numpy as jnp
    >>> max_pool(jnp.arange(16.0).reshape(4, 4, 1))[..., 0].tolist()
    [[5.0, 7.0], [13.0, 15.0]]
    """
    return _windows(x, size).max(axis=_window_axes(x))


def average_pool(x: jax.Array, size: int = 2) -> jax.Array:
    """The mean of each window."""
    return _windows(x, size).mean(axis=_window_axes(x))


def _windows(x: jax.Array, size: int) -> jax.Array:
    *positions, channels = x.shape
    x = x[tuple(slice(n // size * size) for n in positions)]
    return x.reshape(*(part for n in positions for part in (n // size, size)), channels)


def _window_axes(x: jax.Array) -> tuple[int, ...]:
    return tuple(range(1, 2 * (x.ndim - 1), 2))


def check_shape(x: jax.Array, shape: tuple[int, int, int]) -> None:
    """Raise unless an example has this shape, (height, width, channels); one channel may be left out.

    >>> check_shape(jax.numpy.zeros((28, 28)), (28, 28, 1))
    """
    if x.shape not in (shape, shape[:2] if shape[-1] == 1 else shape):
        raise ValueError(f"it was built for images of shape {shape}, channels last, but got {x.shape}")


class BatchNorm(eqx.Module):
    """Equinox's batch normalisation for arrays with their channels last.

    It keeps running statistics in a state, so networks with it are pairs ``(network, state)``, as
    ``eqx.nn.make_with_state`` makes them.

    Args:
        momentum: the share of the old running statistics that one batch keeps.
        epsilon: added to the variance; PyTorch's default here, Keras's is 1e-3.
    """

    norm: eqx.nn.BatchNorm

    def __init__(self, channels: int, *, momentum: float = 0.9, epsilon: float = 1e-5):
        self.norm = eqx.nn.BatchNorm(channels, "batch", eps=epsilon, momentum=momentum, mode="batch")

    def __call__(self, x: jax.Array, state: eqx.nn.State) -> tuple[jax.Array, eqx.nn.State]:
        y, state = self.norm(jnp.moveaxis(x, -1, 0), state)
        return jnp.moveaxis(y, 0, -1), state


class FilterResponseNorm(eqx.Module):
    """max(gamma x / sqrt(mean over positions of x^2 + eps) + beta, tau) (Singh and Krishnan 2020).

    Unlike batch normalisation it does not couple the examples of a batch, so the likelihood stays a product over
    examples, as samplers of the posterior need.

    >>> norm = FilterResponseNorm(2)
    >>> norm(jnp.array([[[3.0, -1.0]], [[3.0, -1.0]]])).round(3).tolist()
    [[[1.0, 0.0]], [[1.0, 0.0]]]
    """

    gamma: jax.Array
    beta: jax.Array
    tau: jax.Array

    def __init__(self, channels: int):
        self.gamma, self.beta, self.tau = jnp.ones(channels), jnp.zeros(channels), jnp.zeros(channels)

    def __call__(self, x: jax.Array) -> jax.Array:
        scale = jax.lax.rsqrt(jnp.square(x).mean(axis=(0, 1), keepdims=True) + EPSILON)
        # in the form whose gradient takes the fewest passes over memory: gamma and the scale share one sum over
        # positions, and the maximum stores no mask (a NaN in x stays one)
        y = x * (scale * self.gamma) + self.beta
        return jnp.where(y < self.tau, self.tau, y)


@jax.custom_jvp
def swish(x: jax.Array) -> jax.Array:
    """x sigmoid(x) (Ramachandran et al. 2017).

    Its derivative is computed from x again: the sigmoid, which JAX's own function stores for the backward pass, takes
    longer to write and read than to compute.

    >>> round(float(swish(jnp.array(2.0))), 3)
    1.762
    """
    return x * jax.nn.sigmoid(x)


@swish.defjvp
def _(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    (x,), (tangent,) = primals, tangents
    sigmoid = 0.5 * jnp.tanh(0.5 * x) + 0.5  # as a tanh, so that the compiler does not take it for the one above
    return swish(x), tangent * (sigmoid * (1 + x * (1 - sigmoid)))


class LayerNorm(eqx.Module):
    """gamma (x - mean) / sqrt(variance + eps) + beta, with mean and variance over the features of each position (Ba et
    al. 2016).

    >>> LayerNorm(2)(jnp.array([[1.0, 3.0]])).round(3).tolist()
    [[-1.0, 1.0]]
    """

    gamma: jax.Array
    beta: jax.Array

    def __init__(self, features: int):
        self.gamma, self.beta = jnp.ones(features), jnp.zeros(features)

    def __call__(self, x: jax.Array) -> jax.Array:
        centred = x - x.mean(axis=-1, keepdims=True)
        scale = jax.lax.rsqrt(jnp.square(centred).mean(axis=-1, keepdims=True) + EPSILON)
        return centred * scale * self.gamma + self.beta


class LSTM(eqx.Module):
    """The state after every element of a sequence, (time, inputs) to (time, units) (Hochreiter and Schmidhuber 1997).

        i, f, g, o = x W + h U + b
        c <- sigmoid(f) c + sigmoid(i) tanh(g),    h <- sigmoid(o) tanh(c)

    The products with the inputs are taken for all times at once, before the loop. By default initialised as in Keras:
    Glorot, orthogonal for the recurrent weights, and a bias of 1 for the forget gate f, so that it starts open.

    Args:
        inputs, units: features of an element of the sequence and of the state.
        init, recurrent_init: of W and of U.
        forget_offset: a constant added to f. With 1, as in Haiku, the gate starts open with a bias of 0, where a prior
            around 0 has its mode.

    >>> LSTM(3, 5, key=jax.random.key(0))(jnp.ones((7, 3))).shape
    (7, 5)
    """

    weight: jax.Array
    recurrent: jax.Array
    bias: jax.Array
    forget_offset: float = eqx.field(static=True)

    def __init__(
        self,
        inputs: int,
        units: int,
        *,
        key: jax.Array,
        init: Initializer = glorot_uniform,
        recurrent_init: Initializer = orthogonal,
        forget_offset: float = 0.0,
    ):
        input_key, state_key = jax.random.split(key)
        self.weight = init(input_key, (inputs, 4 * units), jnp.float32)
        self.recurrent = recurrent_init(state_key, (units, 4 * units), jnp.float32)
        self.bias = jnp.zeros(4 * units).at[units : 2 * units].set(1.0 - forget_offset)
        self.forget_offset = forget_offset

    def __call__(self, sequence: jax.Array) -> jax.Array:
        units, inputs = self.recurrent.shape[0], self.weight.shape[0]
        if sequence.ndim != 2 or sequence.shape[1] != inputs or len(sequence) == 0:
            raise ValueError(f"an LSTM takes one sequence of shape (time, {inputs}), but got {sequence.shape}")
        zeros = jnp.zeros(units, sequence.dtype)

        def advance(
            carry: tuple[jax.Array, jax.Array], gates: jax.Array
        ) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
            hidden, cell = carry
            i, f, g, o = jnp.split(gates + hidden @ self.recurrent, 4)
            cell = jax.nn.sigmoid(f + self.forget_offset) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
            hidden = jax.nn.sigmoid(o) * jnp.tanh(cell)
            return (hidden, cell), hidden

        return jax.lax.scan(advance, (zeros, zeros), sequence @ self.weight + self.bias)[1]


class SelfAttention(eqx.Module):
    """Every position of (positions, features) takes a mean of all values, weighted by its query (Vaswani et al. 2017).

        q, k, v = x W + b,    softmax(q k' / sqrt(features / heads)) v,    and a dense layer over all heads

    >>> SelfAttention(6, heads=2, key=jax.random.key(0))(jnp.ones((5, 6))).shape
    (5, 6)
    """

    qkv: Dense
    out: Dense
    heads: int = eqx.field(static=True)

    def __init__(self, features: int, heads: int, *, key: jax.Array, init: Initializer = he_normal):
        if features % heads:
            raise ValueError(f"features must be a multiple of heads, got {features} features and {heads} heads")
        qkv_key, out_key = jax.random.split(key)
        self.qkv = Dense(features, 3 * features, init=init, key=qkv_key)
        self.out = Dense(features, features, init=init, key=out_key)
        self.heads = heads

    def __call__(self, x: jax.Array) -> jax.Array:
        positions, features = x.shape
        q, k, v = jnp.moveaxis(self.qkv(x).reshape(positions, 3, self.heads, -1), 1, 0)
        scores = jnp.einsum("qhf,khf->hqk", q, k) / (features // self.heads) ** 0.5
        mixed = jnp.einsum("hqk,khf->qhf", jax.nn.softmax(scores), v)
        return self.out(mixed.reshape(positions, features))


class Repeated(eqx.Module):
    """`count` equal blocks, one after the other; each array of `block` has a leading axis of blocks.

    They are applied by a loop (`jax.lax.scan`), so that one block is compiled instead of `count`, which is most of the
    time to the first step of a deep network. What the stacked axis means to a posterior is in docs/zoo.md.

    Args:
        make: builds one block, from a key.
        count: how many.
        remat: in training, keep only the input of each block for the backward pass and run the block again there
            (`jax.checkpoint`): memory for one block instead of `count`, for one more forward pass.

    >>> blocks = Repeated(lambda key: eqx.nn.Linear(3, 3, key=key), 4, key=jax.random.key(0))
    >>> blocks.block.weight.shape, blocks(jax.numpy.ones(3)).shape
    ((4, 3, 3), (3,))
    """

    block: Block
    remat: bool = eqx.field(static=True)

    def __init__(self, make: Callable[[jax.Array], Block], count: int, *, key: jax.Array, remat: bool = False):
        self.block = eqx.filter_vmap(make)(jax.random.split(key, count))
        self.remat = remat

    def __call__(self, x: jax.Array) -> jax.Array:
        stacked, static = eqx.partition(self.block, eqx.is_array)

        def advance(x: jax.Array, arrays: Block) -> tuple[jax.Array, None]:
            return eqx.combine(arrays, static)(x), None

        return jax.lax.scan(jax.checkpoint(advance) if self.remat else advance, x, stacked)[0]
