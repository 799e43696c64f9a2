"""Ten networks as other people write them, small: Flax, Equinox, Haiku and Keras, each with its library's habits."""

import os
from typing import Any, NamedTuple

os.environ.setdefault("KERAS_BACKEND", "jax")

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import keras
import numpy as np
from flax import linen as nn
from flax import nnx

import posteriax as px

N = 24
RNG = np.random.default_rng(0)
Y = np.arange(N) % 3
IMAGES = (RNG.normal(size=(N, 8, 8, 1)) + (Y - 1.0)[:, None, None, None]).astype(np.float32)
TABLE = (RNG.normal(size=(N, 5)) + (Y - 1.0)[:, None]).astype(np.float32)
TOKENS = (RNG.integers(0, 3, size=(N, 6)) + 3 * Y[:, None]).astype(np.int32)  # classes have words of their own
LENGTHS = RNG.integers(2, 7, size=N).astype(np.int32)
KEY = jax.random.key(0)


class Case(NamedTuple):
    """A network as its library has it, its inputs, and whether its outputs couple the examples of a batch."""

    net: Any
    x: Any
    coupled: bool = False
    call: dict[str, Any] | None = None

    @property
    def problem(self) -> px.Problem:
        return px.Problem(px.network(self.net, call=self.call), px.Categorical(), px.priors.HeNormal())


class DigitsCNN(nnx.Module):
    """The NNX tutorial's network for digits: convolutions, batch norm, dropout."""

    def __init__(self, rngs):
        self.conv1 = nnx.Conv(1, 4, (3, 3), rngs=rngs)
        self.norm1 = nnx.BatchNorm(4, rngs=rngs)
        self.drop1 = nnx.Dropout(0.2, rngs=rngs)
        self.conv2 = nnx.Conv(4, 6, (3, 3), rngs=rngs)
        self.norm2 = nnx.BatchNorm(6, rngs=rngs)
        self.linear = nnx.Linear(24, 8, rngs=rngs)
        self.drop2 = nnx.Dropout(0.2, rngs=rngs)
        self.head = nnx.Linear(8, 3, rngs=rngs)

    def __call__(self, x):
        x = nnx.avg_pool(nnx.relu(self.norm1(self.drop1(self.conv1(x)))), (2, 2), (2, 2))
        x = nnx.avg_pool(nnx.relu(self.norm2(self.conv2(x))), (2, 2), (2, 2))
        return self.head(nnx.relu(self.drop2(self.linear(x.reshape(x.shape[0], -1)))))


def digits_cnn() -> Case:
    return Case(DigitsCNN(nnx.Rngs(0)), IMAGES, coupled=True)  # its batch norm is in training mode, as made


class EncoderBlock(nn.Module):
    @nn.compact
    def __call__(self, x, *, deterministic):
        y = nn.LayerNorm()(x)
        y = nn.MultiHeadDotProductAttention(2, dropout_rate=0.1, deterministic=deterministic)(y, y)
        x = x + nn.Dropout(0.1, deterministic=deterministic)(y)
        y = nn.Dense(8)(nn.gelu(nn.Dense(12)(nn.LayerNorm()(x))))
        return x + nn.Dropout(0.1, deterministic=deterministic)(y)


class VisionTransformer(nn.Module):
    """As in Google's vision_transformer: patches, a class token, positions, encoder blocks, a head."""

    @nn.compact
    def __call__(self, inputs, *, train):
        x = nn.Conv(8, (4, 4), strides=(4, 4), name="embedding")(inputs)
        x = x.reshape(x.shape[0], -1, 8)
        token = self.param("cls", nn.initializers.zeros, (1, 1, 8))
        x = jnp.concatenate([jnp.tile(token, (x.shape[0], 1, 1)), x], axis=1)
        x = x + self.param("pos_embedding", nn.initializers.normal(0.02), (1, x.shape[1], 8))
        x = EncoderBlock()(nn.Dropout(0.1, deterministic=not train)(x), deterministic=not train)
        return nn.Dense(3, name="head")(nn.LayerNorm()(x)[:, 0])


def vision_transformer() -> Case:
    module = VisionTransformer()
    return Case((module, module.init(KEY, IMAGES, train=False)), IMAGES)


class TextClassifier(nn.Module):
    """As in Flax's sst2 example: embeddings, word dropout, an LSTM, the state at each text's end."""

    @nn.compact
    def __call__(self, token_ids, lengths, deterministic: bool | None = None):
        x = nn.Embed(9, 4)(token_ids)
        x = nn.Dropout(0.2, broadcast_dims=(2,), deterministic=deterministic)(x)
        (_, last), _ = nn.RNN(nn.OptimizedLSTMCell(5), return_carry=True)(x, seq_lengths=lengths)
        x = nn.Dropout(0.2, deterministic=deterministic)(nn.tanh(nn.Dense(5)(last)))
        return nn.Dense(3)(x)


def text_classifier() -> Case:
    module, x = TextClassifier(), {"token_ids": TOKENS, "lengths": LENGTHS}
    return Case((module, module.init(KEY, **x, deterministic=True)), x)


class ResidualBlock(eqx.Module):
    conv1: eqx.nn.Conv2d
    norm1: eqx.nn.BatchNorm
    conv2: eqx.nn.Conv2d
    norm2: eqx.nn.BatchNorm

    def __init__(self, key):
        one, two = jax.random.split(key)
        self.conv1 = eqx.nn.Conv2d(4, 4, 3, padding=1, use_bias=False, key=one)
        self.norm1 = eqx.nn.BatchNorm(4, axis_name="batch", mode="batch")
        self.conv2 = eqx.nn.Conv2d(4, 4, 3, padding=1, use_bias=False, key=two)
        self.norm2 = eqx.nn.BatchNorm(4, axis_name="batch", mode="batch")

    def __call__(self, x, state):
        y, state = self.norm1(self.conv1(x), state)
        y, state = self.norm2(self.conv2(jax.nn.relu(y)), state)
        return jax.nn.relu(x + y), state


class ResNet(eqx.Module):
    """As in eqxvision: a stem, residual blocks with batch norm, pooling, a head; channels first."""

    stem: eqx.nn.Conv2d
    block: ResidualBlock
    head: eqx.nn.Linear

    def __init__(self, key):
        one, two, three = jax.random.split(key, 3)
        self.stem = eqx.nn.Conv2d(1, 4, 3, stride=2, padding=1, key=one)
        self.block, self.head = ResidualBlock(two), eqx.nn.Linear(4, 3, key=three)

    def __call__(self, x, state):
        x, state = self.block(jax.nn.relu(self.stem(x)), state)
        return self.head(x.mean(axis=(1, 2))), state


def resnet() -> Case:
    module, state = eqx.nn.make_with_state(ResNet)(KEY)
    return Case((eqx.nn.inference_mode(module), state), IMAGES.transpose(0, 3, 1, 2))  # by stored statistics


class BertLayer(eqx.Module):
    attention: eqx.nn.MultiheadAttention
    norm1: eqx.nn.LayerNorm
    norm2: eqx.nn.LayerNorm
    mlp: eqx.nn.MLP
    drop: eqx.nn.Dropout

    def __init__(self, key):
        one, two = jax.random.split(key)
        self.attention = eqx.nn.MultiheadAttention(2, 6, dropout_p=0.1, key=one)
        self.norm1, self.norm2 = eqx.nn.LayerNorm(6), eqx.nn.LayerNorm(6)
        self.mlp, self.drop = eqx.nn.MLP(6, 6, 8, 1, activation=jax.nn.gelu, key=two), eqx.nn.Dropout(0.1)

    def __call__(self, x, mask, enable_dropout, key):
        one, two = (None, None) if key is None else jax.random.split(key)
        y = self.attention(x, x, x, mask=mask, inference=not enable_dropout, key=one)
        x = jax.vmap(self.norm1)(x + y)
        y = self.drop(jax.vmap(self.mlp)(x), inference=not enable_dropout, key=two)
        return jax.vmap(self.norm2)(x + y)


class Bert(eqx.Module):
    """As in Equinox's BERT example: embeddings of tokens and positions, an encoder, a pooled head; keyed dropout."""

    tokens: eqx.nn.Embedding
    positions: eqx.nn.Embedding
    layers: list[BertLayer]
    head: eqx.nn.Linear

    def __init__(self, key):
        one, two, three, four = jax.random.split(key, 4)
        self.tokens, self.positions = eqx.nn.Embedding(9, 6, key=one), eqx.nn.Embedding(6, 6, key=two)
        self.layers, self.head = [BertLayer(three)], eqx.nn.Linear(6, 3, key=four)

    def __call__(self, token_ids, lengths, *, key=None):
        x = jax.vmap(self.tokens)(token_ids) + jax.vmap(self.positions)(jnp.arange(6))
        mask = jnp.broadcast_to(jnp.arange(6) < lengths, (6, 6))
        for layer in self.layers:
            key, own = (None, None) if key is None else jax.random.split(key)
            x = layer(x, mask, enable_dropout=key is not None, key=own)
        return self.head(jnp.tanh(x[0]))


def bert() -> Case:
    return Case(Bert(KEY), (TOKENS, LENGTHS))


class SharedCNN(eqx.Module):
    """A convolution that is applied again and again, and a spectrally normalised head."""

    stem: eqx.nn.Conv2d
    again: eqx.nn.Conv2d
    head: eqx.nn.SpectralNorm

    def __init__(self, key):
        one, two, three, four = jax.random.split(key, 4)
        self.stem = eqx.nn.Conv2d(1, 3, 3, stride=2, padding=1, key=one)
        self.again = eqx.nn.Conv2d(3, 3, 3, padding=1, key=two)
        self.head = eqx.nn.SpectralNorm(eqx.nn.Linear(3, 3, key=three), "weight", key=four)

    def __call__(self, x, state, *, key=None):
        x = jax.nn.relu(self.stem(x))
        for _ in range(3):
            x = x + jnp.tanh(self.again(x))
        return self.head(x.mean(axis=(1, 2)), state)


def shared_cnn() -> Case:
    return Case(eqx.nn.make_with_state(SharedCNN)(KEY), IMAGES.transpose(0, 3, 1, 2))


def haiku_mlp() -> Case:
    """hk.nets.MLP with dropout, as in Haiku's examples."""

    def forward(x, is_training):
        mlp = hk.nets.MLP([8, 8, 3], activation=jnp.tanh)
        return mlp(x, dropout_rate=0.1, rng=hk.next_rng_key()) if is_training else mlp(x)

    transformed = hk.transform(forward)
    return Case((transformed, transformed.init(KEY, TABLE, True)), TABLE)


def haiku_resnet() -> Case:
    """A residual network of Haiku with its moving averages in a state."""

    def forward(batch, is_training):
        x = jax.nn.relu(hk.Conv2D(4, 3, stride=2)(batch["image"]))
        norm = hk.BatchNorm(create_scale=True, create_offset=True, decay_rate=0.9)
        x = x + hk.Conv2D(4, 3, with_bias=False)(jax.nn.relu(norm(x, is_training)))
        return hk.Linear(3)(x.mean(axis=(1, 2)))

    transformed = hk.transform_with_state(forward)
    x = {"image": IMAGES}
    params, state = transformed.init(KEY, x, is_training=True)
    return Case((transformed, params, state), x)


def keras_two_inputs() -> Case:
    """Keras' functional API with two inputs, as in its guide to tickets: words and numbers."""
    layers = keras.layers
    words, numbers = keras.Input((6,), dtype="int32", name="words"), keras.Input((5,), name="numbers")
    a = layers.GlobalAveragePooling1D(name="pool")(layers.Embedding(9, 4, name="embedding")(words))
    b = layers.Dense(4, activation="tanh", name="features")(numbers)
    joined = layers.Dropout(0.1, name="drop")(layers.Concatenate(name="join")([a, b]))
    model = keras.Model({"words": words, "numbers": numbers}, layers.Dense(3, name="head")(joined), name="tickets")
    return Case(model, {"words": TOKENS, "numbers": TABLE})


def keras_cnn() -> Case:
    """Keras' convolutional network with batch normalisation and dropout, trained by the batch's statistics."""
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(4, 3, padding="same", name="conv"),
            layers.BatchNormalization(name="norm"),
            layers.ReLU(name="relu"),
            layers.AveragePooling2D(4, name="pool"),
            layers.Flatten(name="flat"),
            layers.Dropout(0.2, name="drop"),
            layers.Dense(3, name="head"),
        ],
        name="cnn",
    )
    return Case(model, IMAGES, coupled=True, call={"training": True})


CASES = {
    "Flax NNX CNN": digits_cnn,
    "Flax Linen ViT": vision_transformer,
    "Flax Linen LSTM": text_classifier,
    "Equinox ResNet": resnet,
    "Equinox BERT": bert,
    "Equinox shared CNN": shared_cnn,
    "Haiku MLP": haiku_mlp,
    "Haiku ResNet": haiku_resnet,
    "Keras two inputs": keras_two_inputs,
    "Keras CNN": keras_cnn,
}
