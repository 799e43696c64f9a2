"""Augmentation: random changes of the inputs of a batch that leave their labels right, computed on the device.

An augmentation is a function ``(key, x) -> x`` of a batch, which keeps the shape and dtype of x, or a sequence of such
functions. With it, methods target

    sum_i E_a[ log p(y_i | a(x_i), w) ] + log p(w)        over all N examples

where every step draws one a for each example of its batch. (docs/data.md, "Augmentation")
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp

from posteriax._internal.checks import check_choice, check_count
from posteriax.data.batches import Inputs
from posteriax.data.inputs import Normalise

# (key, x) -> x: a random change of a batch of inputs
Augment = Callable[[jax.Array, Inputs], Inputs]


@dataclass(frozen=True)
class RandomCrop:
    """Pads every image on all four sides and crops it back to its size at a random offset.

    Each of the (2 padding + 1)^2 offsets is equally likely, independently for each image.

    Args:
        padding: pixels added on each side.
        pad: what they hold: ``"zero"``, or ``"reflect"``, the image mirrored at its edge.

    >>> x = jnp.ones((2, 32, 32, 3), jnp.uint8)
    >>> RandomCrop(4)(jax.random.key(0), x).shape
    (2, 32, 32, 3)
    """

    padding: int
    pad: Literal["zero", "reflect"] = "zero"

    def __post_init__(self) -> None:
        check_count("padding", self.padding)
        check_choice("pad", self.pad, ("zero", "reflect"))

    def __call__(self, key: jax.Array, x: jax.Array) -> jax.Array:
        _check_images("RandomCrop", x)
        count, height, width = x.shape[:3]
        if self.pad == "reflect" and self.padding >= min(height, width):
            raise ValueError(f"RandomCrop reflects at most {min(height, width) - 1} pixels here, got {self.padding}")
        around = [(0, 0), (self.padding, self.padding), (self.padding, self.padding), *[(0, 0)] * (x.ndim - 3)]
        padded = jnp.pad(x, around, mode="constant" if self.pad == "zero" else "reflect")
        offsets = jax.random.randint(key, (count, 2), 0, 2 * self.padding + 1)

        # slices become one gather; on a CPU it takes less time than a gather of pixels
        def crop(image: jax.Array, offset: jax.Array) -> jax.Array:
            return jax.lax.dynamic_slice(image, (*offset, *[0] * (x.ndim - 3)), x.shape[1:])

        return jax.vmap(crop)(padded, offsets)


@dataclass(frozen=True)
class RandomFlip:
    """Mirrors every image left to right with the given probability, independently for each image.

    >>> x = jnp.arange(3.0).reshape(1, 1, 3, 1)
    >>> RandomFlip(probability=1.0)(jax.random.key(0), x).ravel().tolist()
    [2.0, 1.0, 0.0]
    """

    probability: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise ValueError(f"probability must be between 0 and 1, got {self.probability!r}")

    def __call__(self, key: jax.Array, x: jax.Array) -> jax.Array:
        _check_images("RandomFlip", x)
        flipped = jax.random.bernoulli(key, self.probability, (x.shape[0], *[1] * (x.ndim - 1)))
        return jnp.where(flipped, x[:, :, ::-1], x)


@dataclass(frozen=True)
class Augmentation:
    """Functions ``(key, x) -> x``, applied in turn, each with its own key."""

    pieces: tuple[Augment, ...]

    @classmethod
    def of(cls, augment: Augment | Sequence[Augment]) -> "Augmentation":
        """From the argument of ``px.fit``: a function, or a sequence of them."""
        pieces = tuple(augment) if isinstance(augment, Sequence) and not isinstance(augment, str) else (augment,)
        for piece in pieces:
            if isinstance(piece, Normalise):
                raise TypeError(
                    "Normalise is not an augmentation, since predictions need it as well: give it to the network, "
                    "px.network(net, inputs=px.data.Normalise(mean, std))"
                )
            if not callable(piece) or isinstance(piece, type):
                raise TypeError(
                    f"augment must be a function (key, x) -> x of a batch, such as px.data.RandomCrop(4), or a list of "
                    f"them; got {piece!r}"
                )
        if not pieces:
            raise ValueError("augment is empty: leave it out")
        return cls(pieces)

    def __call__(self, key: jax.Array, x: Inputs) -> Inputs:
        for i, piece in enumerate(self.pieces):
            x = piece(jax.random.fold_in(key, i), x)
        return x

    def __str__(self) -> str:
        return ", ".join(map(_name, self.pieces))

    def check(self, x: Inputs) -> None:
        """Raise if a function fails for a batch like `x`, or changes its shape or dtype."""
        given = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, jax.dtypes.canonicalize_dtype(a.dtype)), x)
        for piece in self.pieces:
            try:
                got = jax.eval_shape(piece, jax.random.key(0), given)
            except Exception as error:
                first_line = (str(error).strip() or type(error).__name__).split("\n")[0]
                raise ValueError(f"augment fails for x of shape {_describe(given)}: {first_line}") from error
            if _spec(got) != _spec(given):
                raise ValueError(
                    f"augment must keep the shape and dtype of x, {_describe(given)}, since predictions are not "
                    f"augmented; {_name(piece)} returns {_describe(got)}"
                )


def _check_images(what: str, x: Inputs) -> None:
    shape = getattr(x, "shape", None)
    if shape is None or len(shape) not in (3, 4):
        got = type(x).__name__ if shape is None else shape
        raise ValueError(f"{what} takes images (N, height, width, channels) or (N, height, width), got {got}")
    if len(shape) == 4 and shape[1] in (1, 3) and shape[3] > 4:
        raise ValueError(
            f"{what} takes images with their channels last, got {shape}, which has them first: use "
            f"x.transpose(0, 2, 3, 1), and px.network(net, inputs=px.data.channels_first) for such a network"
        )


def _name(piece: Augment) -> str:
    """What a checkpoint and the trace call a function: its settings, or its qualified name."""
    if isinstance(piece, functools.partial):
        return f"partial of {_name(piece.func)}"
    if hasattr(piece, "__qualname__"):
        return f"{piece.__module__}.{piece.__qualname__}"
    kind = type(piece)
    return repr(piece) if kind.__module__ == __name__ else f"{kind.__module__}.{kind.__qualname__}"


def _spec(x: Inputs) -> tuple[jax.tree_util.PyTreeDef, list[tuple[tuple[int, ...], jnp.dtype]]]:
    return jax.tree.structure(x), [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(x)]


def _describe(x: Inputs) -> str:
    return ", ".join(f"{leaf.shape} {leaf.dtype}" for leaf in jax.tree.leaves(x))
