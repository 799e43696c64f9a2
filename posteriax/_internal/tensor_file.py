"""Arrays and a JSON description in one safetensors file, written atomically.

A digest of the contents is stored with the arrays, so a damaged or altered file is an error, never slightly different
numbers. A crash while writing leaves the previous file intact.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from posteriax._internal.atomic_file import whole_file

Arrays = dict[str, np.ndarray]

_LETTERS = {  # safetensors' names of dtypes
    np.dtype(kind): letter
    for kind, letter in (
        *(("float64", "F64"), ("float32", "F32"), ("float16", "F16"), (ml_dtypes.bfloat16, "BF16"), ("bool", "BOOL")),
        *((f"{sign}int{bits}", f"{sign.upper() or 'I'}{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)),
    )
}


class WritableArray(Protocol):
    """An array to write: in memory, or one that yields its parts in order with `pieces()`."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype: ...


@dataclass(frozen=True)
class FileArray:
    """An array in a file, of which only the requested part is read."""

    path: Path
    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype

    def read(self, first: int, last: int) -> np.ndarray:
        """Entries `first` to `last` of the leading axis."""
        entry_size = math.prod(self.shape[1:])
        offset = self.offset + first * entry_size * self.dtype.itemsize
        flat = np.fromfile(self.path, self.dtype, (last - first) * entry_size, offset=offset)
        return flat.reshape(last - first, *self.shape[1:])


def write_tensors(path: Path, about: dict[str, Any], arrays: Mapping[str, WritableArray]) -> str:
    """Write a file and return its digest. If that raises OSError, the previous file is untouched.

    Arrays that are not in memory (:class:`posteriax.posterior.draws.StoredDraws`) are written piece by piece.
    """
    text = json.dumps(about)
    order = sorted(arrays, key=lambda name: (-np.dtype(arrays[name].dtype).itemsize, name))  # keeps arrays aligned
    with whole_file(path) as file:
        file.write(_header("0" * 64, text, arrays, order))
        digests = {name: _array_digest(name, arrays[name], file) for name in order}
        digest = _joint_digest(text, digests)
        file.seek(0)
        file.write(_header(digest, text, arrays, order))
    return digest


def file_arrays(path: Path) -> dict[str, FileArray]:
    """The arrays of a file written by `write_tensors`, without reading or checking them."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    kinds = {letter: dtype for dtype, letter in _LETTERS.items()}
    return {
        name: FileArray(path, 8 + length + entry["data_offsets"][0], tuple(entry["shape"]), kinds[entry["dtype"]])
        for name, entry in header.items()
        if name != "__metadata__"
    }


def read_tensors(path: Path, kind: str, error: type[Exception]) -> tuple[dict[str, Any], Arrays, str]:
    """Read and check a file; returns its description, its arrays and its digest.

    Args:
        path: where it is; FileNotFoundError if it does not exist.
        kind: what its "format" entry must say.
        error: what to raise if it is damaged or of another kind.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, OverflowError, MemoryError) as problem:
        raise error(f"{path} is not a {kind}, or is damaged: {problem}") from problem
    digest, _, text = metadata.get("posteriax", "").partition(" ")
    if not text:
        raise error(f"{path} is a safetensors file, but was not written by posteriax")
    digests = {name: _array_digest(name, array) for name, array in arrays.items()}
    if _joint_digest(text, digests) != digest:
        raise error(f"{path} was damaged or altered after it was written: its digest does not match")
    about = json.loads(text)
    if about.get("format") != kind:
        raise error(f"{path} is a {about.get('format')}, not a {kind}")
    return about, arrays, digest


def _header(digest: str, text: str, arrays: Mapping[str, WritableArray], order: list[str]) -> bytes:
    """Safetensors: the length of a JSON header, the header, then the arrays in order.

    posteriax stores its metadata in a single entry, since several are read back in random order.
    """
    entries: dict[str, Any] = {"__metadata__": {"posteriax": f"{digest} {text}"}}
    end = 0
    for name in order:
        dtype, shape = np.dtype(arrays[name].dtype), tuple(arrays[name].shape)
        start, end = end, end + math.prod(shape) * dtype.itemsize
        entries[name] = {"dtype": _LETTERS[dtype], "shape": list(shape), "data_offsets": [start, end]}
    content = json.dumps(entries, separators=(",", ":")).encode()
    content += b" " * (-len(content) % 8)
    return len(content).to_bytes(8, "little") + content


def _array_digest(name: str, array: WritableArray, file: IO[bytes] | None = None) -> bytes:
    """The digest of an array; its bytes are also written to `file`, if given."""
    digest = hashlib.sha256(f"{name} {array.dtype} {tuple(array.shape)}".encode())
    for piece in _pieces(array):
        digest.update(piece)
        if file is not None:
            file.write(piece)
    return digest.digest()


def _pieces(array: WritableArray) -> Iterator[memoryview | bytes]:
    """The bytes of an array, in order."""
    parts = array.pieces() if hasattr(array, "pieces") else [array]
    for part in parts:
        contiguous = np.ascontiguousarray(part)
        yield contiguous.view(np.uint8).data if contiguous.size else b""


def _joint_digest(text: str, digests: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(digests):
        digest.update(digests[name])
    return digest.hexdigest()
