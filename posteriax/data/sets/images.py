"""The image sets: MNIST, Fashion-MNIST, CIFAR-10 and CIFAR-100. Reading their files never runs code."""

import gzip
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np

from posteriax.data.sets.data_set import DataSet, register
from posteriax.data.sets.fetching import (
    DataError,
    Remote,
    damaged,
    data_folder,
    fetch,
    fetch_all,
    find_arrays,
    read_archive,
)

Dtype = Literal["float32", "uint8"]


def check_dtype(dtype: str) -> None:
    """Raise for an unknown dtype; called before anything is read."""
    if dtype not in ("float32", "uint8"):
        raise ValueError(f'dtype must be "float32", for values from 0 to 1, or "uint8", got {dtype!r}')


def image_data_set(
    name: str, arrays: Mapping[str, np.ndarray], shape: tuple[int, ...], classes: tuple[str, ...], dtype: Dtype
) -> DataSet:
    """The data set of the arrays x_train, y_train, x_test and y_test, checked; x in [0, 1], or as bytes."""
    parts = {}
    for part in ("train", "test"):
        x, y = arrays[f"x_{part}"], arrays[f"y_{part}"]
        if x.dtype != np.uint8 or x.shape[1:] != shape:
            expected = ", ".join(["N", *map(str, shape)])
            raise DataError(f"x_{part} of {name} must be bytes (uint8) of shape ({expected}), got {x.dtype} {x.shape}")
        if y.shape != x.shape[:1] or y.dtype.kind not in "iu":
            raise DataError(f"y_{part} of {name} must be {len(x)} whole numbers, got {y.dtype} {y.shape}")
        if len(y) == 0 or y.min() < 0 or y.max() >= len(classes):
            raise DataError(f"y_{part} of {name} must have labels from 0 to {len(classes) - 1}")
        x = x if dtype == "uint8" else x.astype(np.float32) * np.float32(1 / 255)
        parts[part] = (x, y.astype(np.int32))
    return DataSet(name, parts["train"], parts["test"], classes)


# MNIST (LeCun et al. 1998) and Fashion-MNIST (Xiao et al. 2017) come as IDX files
IDX_FILES = {
    "x_train": "train-images-idx3-ubyte.gz",
    "y_train": "train-labels-idx1-ubyte.gz",
    "x_test": "t10k-images-idx3-ubyte.gz",
    "y_test": "t10k-labels-idx1-ubyte.gz",
}
IDX_SOURCES = {
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
IDX_CLASSES = {
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
    location = data_folder(folder)
    arrays = find_arrays(location, [name], IDX_FILES)
    if arrays is None:
        address, checksums = IDX_SOURCES[name]
        remotes = [
            Remote(f, f"{address}/{f}", f"md5:{sum_}") for f, sum_ in zip(IDX_FILES.values(), checksums, strict=True)
        ]
        arrays = dict(zip(IDX_FILES, map(read_idx, fetch_all(remotes, location / name)), strict=True))
    return image_data_set(name, arrays, (28, 28), IDX_CLASSES[name], dtype)


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


# CIFAR-10 and CIFAR-100 (Krizhevsky 2009), from their binary archives
CIFAR_ADDRESS = "https://www.cs.toronto.edu/~kriz"
CIFAR_CHECKSUMS = {"cifar10": "c32a1d4ab5d03f1284b67883e8d87530", "cifar100": "03b5dce01913d631647c71ecec9e9cb8"}
CIFAR_TRAIN = {"cifar10": tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "cifar100": ("train.bin",)}
CIFAR_TEST = {"cifar10": ("test_batch.bin",), "cifar100": ("test.bin",)}
ARRAYS = ("x_train", "y_train", "x_test", "y_test")
CIFAR_CLASSES = {
    "cifar10": ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    # the archive's fine_label_names.txt
    "cifar100": (
        *("apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle", "bowl"),
        *("boy", "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle", "chair"),
        *("chimpanzee", "clock", "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur", "dolphin"),
        *("elephant", "flatfish", "forest", "fox", "girl", "hamster", "house", "kangaroo", "keyboard", "lamp"),
        *("lawn_mower", "leopard", "lion", "lizard", "lobster", "man", "maple_tree", "motorcycle", "mountain"),
        *("mouse", "mushroom", "oak_tree", "orange", "orchid", "otter", "palm_tree", "pear", "pickup_truck"),
        *("pine_tree", "plain", "plate", "poppy", "porcupine", "possum", "rabbit", "raccoon", "ray", "road"),
        *("rocket", "rose", "sea", "seal", "shark", "shrew", "skunk", "skyscraper", "snail", "snake", "spider"),
        *("squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank", "telephone", "television", "tiger"),
        *("tractor", "train", "trout", "tulip", "turtle", "wardrobe", "whale", "willow_tree", "wolf", "woman"),
        "worm",
    ),
}


@register("cifar10", "cifar100")
def load_cifar(name: str, folder: str | Path | None = None, *, dtype: Dtype = "float32") -> DataSet:
    """50,000 and 10,000 images, (N, 32, 32, 3), in [0, 1] or, with ``dtype="uint8"``, as bytes.

    CIFAR-100 has its fine labels. An NPZ file may hold fewer images.
    """
    check_dtype(dtype)
    location = data_folder(folder)
    stems = [name, *sorted(path.stem for path in location.glob(f"{name}_*.npz"))]
    arrays = find_arrays(location, stems, ARRAYS)
    if arrays is None:
        file = f"cifar-{name.removeprefix('cifar')}-binary.tar.gz"
        path = fetch(Remote(file, f"{CIFAR_ADDRESS}/{file}", f"md5:{CIFAR_CHECKSUMS[name]}"), location)
        files = read_archive(path, lambda file: Path(file).name in (*CIFAR_TRAIN[name], *CIFAR_TEST[name]))
        contents = {Path(file).name: data for file, data in files}
        train, test = (_records(contents, names, name) for names in (CIFAR_TRAIN[name], CIFAR_TEST[name]))
        arrays = dict(zip(ARRAYS, (*train, *test), strict=True))
    return image_data_set(name, arrays, (32, 32, 3), CIFAR_CLASSES[name], dtype)


def _records(contents: dict[str, bytes], names: tuple[str, ...], name: str) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels: a record is one label, or a coarse and a fine one, and the channels one after the other."""
    labels = 1 if name == "cifar10" else 2
    missing = [file for file in names if file not in contents]
    if missing:
        raise DataError(f"the archive of {name} has no {', '.join(missing)}: delete it, and load again")
    data = np.frombuffer(b"".join(contents[file] for file in names), np.uint8)
    if len(data) % (labels + 3072):
        raise DataError(f"the archive of {name} holds records of the wrong size: delete it, and load again")
    records = data.reshape(-1, labels + 3072)
    return records[:, labels:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), records[:, labels - 1]
