"""The shape of images, for networks that are built for one."""

import jax


def check_shape(x: jax.Array, shape: tuple[int, int, int]) -> None:
    """Raise unless an example has this shape, (height, width, channels); one channel may be left out.

    >>> check_shape(jax.numpy.zeros((28, 28)), (28, 28, 1))
    """
    if x.shape not in (shape, shape[:2] if shape[-1] == 1 else shape):
        raise ValueError(f"it was built for images of shape {shape}, channels last, but got {x.shape}")
