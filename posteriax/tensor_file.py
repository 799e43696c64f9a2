"""Arrays and a JSON description in one safetensors file, whole or not at all.

A digest of everything is stored with the arrays, so that a damaged or altered file is an error and never slightly
different numbers. Files are written aside, flushed and renamed: a crash leaves the previous file whole.
"""

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

Arrays = dict[str, np.ndarray]


def write_tensors(path: Path, about: dict[str, Any], arrays: Arrays) -> str:
    """Write a file and return its digest. OSError if it cannot be written: the previous file is then untouched."""
    text = json.dumps(about)
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    digest = _digest(text, arrays)
    # one entry: safetensors writes several in a random order, and the same content shall be the same bytes
    content = to_bytes(arrays, {"posteriax": f"{digest} {text}"})
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        os.unlink(aside)
        raise
    return digest


def read_tensors(path: Path, kind: str, error: type[Exception]) -> tuple[dict[str, Any], Arrays, str]:
    """Read and check a file: what it says of itself, its arrays, its digest.

    Args:
        path: where it is; FileNotFoundError if it is not there.
        kind: what it should be, by its "format" entry.
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
        raise error(f"{path} is a safetensors file, but not one that posteriax wrote")
    if _digest(text, arrays) != digest:
        raise error(f"{path} was damaged or altered after it was written: its digest does not match")
    about = json.loads(text)
    if about.get("format") != kind:
        raise error(f"{path} is a {about.get('format')}, not a {kind}")
    return about, arrays, digest


def _digest(text: str, arrays: Arrays) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
