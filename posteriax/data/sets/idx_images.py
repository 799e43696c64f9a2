"""MNIST (LeCun et al. 1998) and Fashion-MNIST (Xiao et al. 2017), which come as IDX files."""

import gzip
import zlib
from pathlib import Path

import numpy as np

from posteriax.data.sets.archive import damaged
from posteriax.data.sets.data_set import DataSet
from posteriax.data.sets.fetching import Remote, data_folder, fetch_all, find_arrays
from posteriax.data.sets.image_set import Dtype, as_images, check_dtype
from posteriax.data.sets.registry import register

PARTS = {
    "x_train": "train-images-idx3-ubyte.gz",
    "y_train": "train-labels-idx1-ubyte.gz",
    "x_test": "t10k-images-idx3-ubyte.gz",
    "y_test": "t10k-labels-idx1-ubyte.gz",
}
SOURCES = {
    "mnist": (
        "https://storage.googleapis.com/cvdf-datasets/mnist",
        (
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "d53e105ee54ea40749a09fcbcd1e9432",
            "9fb629c4189551a2d022fa330f9573f3",
            "ec29112dd5afa0611ce80d1b7f02629c",
        ),
    ),
    "fashion_mnist": (
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
        (
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "25c81989df183df01b3e8a0aad5dffbe",
            "bef4ecab320f06d8554ea6380940ec79",
            "bb300cfdad3c16e7a12a480ee83cd310",
        ),
    ),
}
CLASSES = {
    "mnist": tuple("0123456789"),
    "fashion_mnist": (
        *("T-shirt", "trousers", "pullover", "dress", "coat"),
        *("sandal", "shirt", "trainer", "bag", "ankle boot"),
    ),
}


@register("mnist", "fashion_mnist")
def load_idx_images(name: str, folder: str | Path | None = None, *, dtype: Dtype = "float32") -> DataSet:
    """60,000 and 10,000 images, (N, 28, 28), in [0, 1] or, with ``dtype="uint8"``, as bytes."""
    check_dtype(dtype)
    place = data_folder(folder)
    arrays = find_arrays(place, [name], PARTS)
    if arrays is None:
        address, checksums = SOURCES[name]
        remotes = [
            Remote(f, f"{address}/{f}", f"md5:{sum_}") for f, sum_ in zip(PARTS.values(), checksums, strict=True)
        ]
        arrays = dict(zip(PARTS, map(read_idx, fetch_all(remotes, place / name)), strict=True))
    return as_images(name, arrays, (28, 28), CLASSES[name], dtype)


def read_idx(path: Path) -> np.ndarray:
    """The array of unsigned bytes in a compressed IDX file."""
    try:
        data = gzip.decompress(path.read_bytes())
        axes = data[3]
        shape = np.frombuffer(data, ">u4", axes, offset=4)
        if data[:3] != b"\x00\x00\x08":
            raise ValueError("not an IDX file of bytes")
        return np.frombuffer(data, np.uint8, int(shape.prod()), offset=4 + 4 * axes).reshape(shape)
    except (OSError, EOFError, ValueError, IndexError, zlib.error) as error:
        raise damaged(path, error) from error
