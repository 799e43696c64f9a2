"""A small part of Fashion-MNIST that ships with the package (Xiao et al. 2017; MIT licence, fashion_small.LICENSE)."""

from importlib.resources import as_file, files

import numpy as np

from posteriax.data.moons import Split


def fashion_small() -> tuple[Split, Split]:
    """3,000 training and 1,000 test images, the first of each class, (N, 28, 28) in [0, 1], and labels 0 to 9.

    T-shirt, trousers, pullover, dress, coat, sandal, shirt, trainer, bag, ankle boot.

    Returns:
        ``(x, y), (x_test, y_test)``.

    >>> (x, y), (x_test, y_test) = fashion_small()
    >>> x.shape, y.shape, x_test.shape
    ((3000, 28, 28), (3000,), (1000, 28, 28))
    """
    with (
        as_file(files("posteriax.data") / "fashion_small.npz") as path,
        np.load(path, allow_pickle=False) as stored,
    ):
        x, y, x_test, y_test = (stored[name] for name in ("x_train", "y_train", "x_test", "y_test"))
    scale = np.float32(1 / 255)
    return (x * scale, y.astype(np.int32)), (x_test * scale, y_test.astype(np.int32))
