"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009), from their binary archives: reading them never runs code."""

import tarfile
from pathlib import Path

import numpy as np

from posteriax.data.sets.data_set import DataSet
from posteriax.data.sets.fetching import DataError, Remote, data_folder, fetch, find_arrays
from posteriax.data.sets.idx_images import as_floats, as_labels
from posteriax.data.sets.registry import register

ADDRESS = "https://www.cs.toronto.edu/~kriz"
CHECKSUMS = {"cifar10": "c32a1d4ab5d03f1284b67883e8d87530", "cifar100": "03b5dce01913d631647c71ecec9e9cb8"}
TRAIN = {"cifar10": tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "cifar100": ("train.bin",)}
TEST = {"cifar10": ("test_batch.bin",), "cifar100": ("test.bin",)}
PARTS = ("x_train", "y_train", "x_test", "y_test")
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@register("cifar10", "cifar100")
def load_cifar(name: str, folder: str | Path | None = None) -> DataSet:
    """50,000 and 10,000 images, (N, 32, 32, 3) in [0, 1], with CIFAR-100's fine labels; an NPZ file may hold fewer."""
    place = data_folder(folder)
    stems = [name, *sorted(path.stem for path in place.glob(f"{name}_*.npz"))]
    arrays = find_arrays(place, stems, PARTS)
    classes = CIFAR10 if name == "cifar10" else tuple(f"class {i}" for i in range(100))
    if arrays is None:
        file = f"cifar-{name.removeprefix('cifar')}-binary.tar.gz"
        path = fetch(Remote(file, f"{ADDRESS}/{file}", f"md5:{CHECKSUMS[name]}"), place)
        contents = _read(path, name)
        train, test = (_records(contents, names, name) for names in (TRAIN[name], TEST[name]))
        arrays = dict(zip(PARTS, (*train, *test), strict=True))
        if name == "cifar100":
            classes = tuple(contents["fine_label_names.txt"].decode().split())
    x_train, y_train, x_test, y_test = (arrays[part] for part in PARTS)
    return DataSet(name, (as_floats(x_train), as_labels(y_train)), (as_floats(x_test), as_labels(y_test)), classes)


def _read(path: Path, name: str) -> dict[str, bytes]:
    """The required files of the archive, in memory: nothing is unpacked to disk."""
    wanted = {*TRAIN[name], *TEST[name], "fine_label_names.txt"}
    try:
        with tarfile.open(path) as archive:
            members = [m for m in archive.getmembers() if m.isfile() and Path(m.name).name in wanted]
            return {Path(m.name).name: archive.extractfile(m).read() for m in members}  # type: ignore[union-attr]
    except (tarfile.TarError, EOFError, OSError) as error:
        raise DataError(f"{path} is damaged ({error}): delete it, and load again") from error


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
