"""Reading NPZ: arrays ``x`` and ``y``, or ``x_train``, ``y_train``, ``x_test``, ``y_test``. No pickled objects."""

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from posteriax.tabular.messages import TableError, read_bytes, shown
from posteriax.tabular.table import Table, clean


@dataclass(frozen=True, eq=False)
class Arrays:
    """The arrays of a file: inputs, targets, and a test set if it has one.

    Args:
        name: of the file, for messages.
        x: (N, d) a table, (N, h, w) grey images or (N, h, w, c) images.
        y: (N,) numbers or text; None if there are no targets.
        x_test, y_test: the same for a test set; None if there is none.
    """

    name: str
    x: np.ndarray
    y: np.ndarray | None
    x_test: np.ndarray | None = None
    y_test: np.ndarray | None = None

    @property
    def is_image(self) -> bool:
        return self.x.ndim > 2


def read_npz(path: Path) -> Arrays:
    """Read and check the arrays of an NPZ file, as ``numpy.savez(path, x=x, y=y)`` writes it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(Path(folder) / "images.npz", x=np.zeros((5, 8, 8), np.uint8), y=np.arange(5) % 2)
    ...     arrays = read_npz(Path(folder) / "images.npz")
    >>> arrays.is_image, arrays.x.shape
    (True, (5, 8, 8))
    """
    found = _load(path)
    name = "x" if "x" in found else "x_train"
    if name not in found:
        raise TableError(
            f"{path} has the arrays {shown(sorted(found)) or 'none'}, but needs x and y, or x_train, y_train, x_test "
            f"and y_test"
        )
    if ("x_test" in found) != ("y_test" in found):
        raise TableError(f"{path} has one of x_test and y_test, but needs both or none")
    x, y = _inputs(path, name, found[name]), _targets(path, name, found)
    if "x_test" not in found:
        return Arrays(str(path), x, y)
    x_test = _inputs(path, "x_test", found["x_test"])
    if x_test.shape[1:] != x.shape[1:]:
        raise TableError(f"{path}: x_test has examples of shape {x_test.shape[1:]}, but {name} of {x.shape[1:]}")
    return Arrays(str(path), x, y, x_test, _targets(path, "x_test", found))


def is_npz(path: Path) -> bool:
    """Whether a file holds arrays, by its name."""
    return Path(path).suffix.lower() in (".npz", ".npy")


def joined(arrays: Arrays) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray] | None]:
    """Inputs and targets of all examples, and the training and test rows if the file has a test set."""
    if arrays.y is None:
        raise TableError(f"{arrays.name} has no targets: it needs an array y beside x")
    if arrays.x_test is None or arrays.y_test is None:
        return arrays.x, arrays.y, None
    x, y = np.concatenate([arrays.x, arrays.x_test]), np.concatenate([arrays.y, arrays.y_test])
    return x, y, (np.arange(len(arrays.x)), np.arange(len(arrays.x), len(x)))


def table_of(name: str, x: np.ndarray, y: np.ndarray | None = None) -> Table:
    """A table with the columns x0, x1, ... of an (N, d) array, and y; NaN is a missing value.

    >>> table_of("arrays.npz", np.zeros((5, 2)), np.arange(5)).columns
    ['x0', 'x1', 'y']
    """
    columns: dict[str, Any] = {f"x{i}": np.asarray(x[:, i], np.float64) for i in range(x.shape[1])}
    if y is not None:
        columns["y"] = clean(pd.Series(y)).to_numpy()
    return Table(name, pd.DataFrame(columns, index=pd.RangeIndex(1, len(x) + 1, name="row")))


def _load(path: Path) -> dict[str, np.ndarray]:
    content = read_bytes(path)
    if not content:
        raise TableError(f"{path} is empty")
    try:
        loaded = np.load(io.BytesIO(content), allow_pickle=False)
        arrays = loaded if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded.files}
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile, NotImplementedError, MemoryError) as error:
        if "allow_pickle" in str(error) or "Object arrays" in str(error):
            raise TableError(
                f"{path} holds arrays of Python objects, which are not read: save numbers or text"
            ) from error
        raise TableError(f"{path} is not an NPZ file, or is damaged: {error}") from error
    if isinstance(arrays, np.ndarray):
        raise TableError(f"{path} is one array: put both into one file with numpy.savez(path, x=x, y=y)")
    return arrays


def _inputs(path: Path, name: str, x: np.ndarray) -> np.ndarray:
    if x.dtype.kind not in "biuf":
        raise TableError(f"{path}: {name} must be an array of numbers, got dtype {x.dtype}")
    if x.ndim not in (2, 3, 4):
        raise TableError(
            f"{path}: {name} has {x.ndim} axes, shape {x.shape}; it needs 2 (N, columns), 3 (N, height, width) or 4 "
            f"(N, height, width, channels)"
        )
    if 0 in x.shape:
        raise TableError(f"{path}: {name} is empty, shape {x.shape}")
    if x.dtype.kind == "f" and x.ndim > 2:  # values may be missing in a table, but not in an image
        bad = ~np.isfinite(x)
        if bad.any():
            place = tuple(int(i) for i in np.argwhere(bad)[0])
            raise TableError(
                f"{path}: {name} has {int(bad.sum())} values that are not finite, the first at index {place}"
            )
    if x.ndim == 4 and x.shape[3] > 16:
        raise TableError(
            f"{path}: {name} has shape {x.shape}, that is {x.shape[3]} channels: images are (N, height, width, "
            f"channels)"
        )
    return x


def _targets(path: Path, x_name: str, found: dict[str, np.ndarray]) -> np.ndarray | None:
    name, x = x_name.replace("x", "y", 1), found[x_name]
    if name not in found:
        return None
    y = found[name]
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise TableError(f"{path}: {name} must have one target per example, shape (N,), got shape {y.shape}")
    if y.dtype.kind not in "biufUS":
        raise TableError(f"{path}: {name} must be numbers or text, got dtype {y.dtype}")
    if len(y) != len(x):
        raise TableError(f"{path}: {x_name} has {len(x)} examples, but {name} has {len(y)}")
    if x.ndim > 2 and y.dtype.kind == "f" and not np.isfinite(y).all():
        raise TableError(f"{path}: {name} has {int((~np.isfinite(y)).sum())} values that are not finite")
    return np.char.decode(y, "utf-8", "replace") if y.dtype.kind == "S" else y
