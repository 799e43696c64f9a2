"""Vision transformers: an image as a sequence of patches (Dosovitskiy et al. 2021)."""

import equinox as eqx
import jax
import jax.numpy as jnp

from posteriax.zoo.layers import Dense, Initializer, LayerNorm, Repeated, SelfAttention, check_shape

narrow_normal: Initializer = jax.nn.initializers.truncated_normal(0.02)  # Touvron et al. 2021


class TransformerBlock(eqx.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)), with a hidden layer of four times the features and GELU."""

    norms: list[LayerNorm]
    attention: SelfAttention
    hidden: Dense
    out: Dense

    def __init__(self, features: int, heads: int, *, key: jax.Array):
        keys = jax.random.split(key, 3)
        self.norms = [LayerNorm(features), LayerNorm(features)]
        self.attention = SelfAttention(features, heads, init=narrow_normal, key=keys[0])
        self.hidden = Dense(features, 4 * features, init=narrow_normal, key=keys[1])
        self.out = Dense(4 * features, features, init=narrow_normal, key=keys[2])

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x + self.attention(self.norms[0](x))
        return x + self.out(jax.nn.gelu(self.hidden(self.norms[1](x)), approximate=False))


class ViT(eqx.Module):
    """Patches to features, a class token in front, learned positions, equal blocks, and a dense layer on the token."""

    patches: Dense
    token: jax.Array
    positions: jax.Array
    blocks: Repeated
    norm: LayerNorm
    out: Dense
    shape: tuple[int, int, int] = eqx.field(static=True)
    patch: int = eqx.field(static=True)

    def __init__(
        self,
        shape: tuple[int, int, int],
        patch: int,
        features: int,
        depth: int,
        heads: int,
        classes: int,
        *,
        remat: bool = False,
        key: jax.Array,
    ):
        height, width, channels = shape
        if height % patch or width % patch:
            raise ValueError(f"patch must divide the height and width of the image, got {patch} for {height} x {width}")
        keys = jax.random.split(key, 5)
        count = (height // patch) * (width // patch)
        self.patches = Dense(patch * patch * channels, features, init=narrow_normal, key=keys[0])
        self.token = narrow_normal(keys[1], (1, features))
        self.positions = narrow_normal(keys[2], (count + 1, features))
        self.blocks = Repeated(lambda key: TransformerBlock(features, heads, key=key), depth, remat=remat, key=keys[3])
        self.norm = LayerNorm(features)
        self.out = Dense(features, classes, init=narrow_normal, key=keys[4])
        self.shape, self.patch = shape, patch

    def __call__(self, x: jax.Array) -> jax.Array:
        check_shape(x, self.shape)
        x = self.patches(self._cut(x))
        x = jnp.concatenate([self.token, x]) + self.positions
        return self.out(self.norm(self.blocks(x))[0])

    def _cut(self, x: jax.Array) -> jax.Array:
        """(height, width, channels) to (patches, patch * patch * channels), row by row."""
        height, width, channels = x.shape
        x = x.reshape(height // self.patch, self.patch, width // self.patch, self.patch, channels)
        return x.transpose(0, 2, 1, 3, 4).reshape(-1, self.patch * self.patch * channels)


def vit(
    *,
    shape: tuple[int, int, int] = (32, 32, 3),
    patch: int = 4,
    features: int = 192,
    depth: int = 12,
    heads: int = 3,
    classes: int = 10,
    remat: bool = False,
    key: jax.Array,
) -> ViT:
    """A vision transformer; by default the tiny one of Touvron et al. (2021), for images of 32 x 32 in 64 patches.

    ViT-Ti/16 for ImageNet is ``vit(shape=(224, 224, 3), patch=16, classes=1000, key=key)``.

    Args:
        shape: height, width and channels of an image.
        patch: the side of a patch, which divides height and width.
        features: of every position; the hidden layers have four times as many.
        depth, heads: blocks, and heads of each attention.
        classes: outputs.
        remat: keep only the input of each block for the backward pass, and run the block again there.

    >>> sum(leaf.size for leaf in jax.tree.leaves(vit(key=jax.random.key(0))))
    5362762
    """
    return ViT(shape, patch, features, depth, heads, classes, remat=remat, key=key)


def vit_tiny(
    *, shape: tuple[int, int, int] = (32, 32, 3), classes: int = 10, remat: bool = False, key: jax.Array
) -> ViT:
    """A vision transformer small enough for a CPU: 64 patches, 64 features, 6 blocks of 4 heads.

    >>> sum(leaf.size for leaf in jax.tree.leaves(vit_tiny(key=jax.random.key(0))))
    308042
    """
    return vit(shape=shape, features=64, depth=6, heads=4, classes=classes, remat=remat, key=key)
