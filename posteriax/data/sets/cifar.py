"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009), from their binary archives: reading them never runs code."""

from pathlib import Path

import numpy as np

from posteriax.data.sets.archive import read_archive
from posteriax.data.sets.data_set import DataSet
from posteriax.data.sets.fetching import DataError, Remote, data_folder, fetch, find_arrays
from posteriax.data.sets.image_set import Dtype, as_images, check_dtype
from posteriax.data.sets.registry import register

ADDRESS = "https://www.cs.toronto.edu/~kriz"
CHECKSUMS = {"cifar10": "c32a1d4ab5d03f1284b67883e8d87530", "cifar100": "03b5dce01913d631647c71ecec9e9cb8"}
TRAIN = {"cifar10": tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "cifar100": ("train.bin",)}
TEST = {"cifar10": ("test_batch.bin",), "cifar100": ("test.bin",)}
PARTS = ("x_train", "y_train", "x_test", "y_test")
CLASSES = {
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
    place = data_folder(folder)
    stems = [name, *sorted(path.stem for path in place.glob(f"{name}_*.npz"))]
    arrays = find_arrays(place, stems, PARTS)
    if arrays is None:
        file = f"cifar-{name.removeprefix('cifar')}-binary.tar.gz"
        path = fetch(Remote(file, f"{ADDRESS}/{file}", f"md5:{CHECKSUMS[name]}"), place)
        files = read_archive(path, lambda file: Path(file).name in (*TRAIN[name], *TEST[name]))
        contents = {Path(file).name: data for file, data in files}
        train, test = (_records(contents, names, name) for names in (TRAIN[name], TEST[name]))
        arrays = dict(zip(PARTS, (*train, *test), strict=True))
    return as_images(name, arrays, (32, 32, 3), CLASSES[name], dtype)


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
