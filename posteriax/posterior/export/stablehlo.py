"""StableHLO: a file of ``jax.export``, which JAX alone loads and runs, on CPUs, GPUs and TPUs, for any batch size.

What posteriax needs to read its own file, JSON, follows the program's bytes: JAX ignores it.

    program | JSON | length of the JSON, 8 bytes | "posteriax"
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import jax
import jax.export
import numpy as np

from posteriax._internal.atomic_file import whole_file
from posteriax.posterior.export.program import PredictiveProgram, Results

PLATFORMS = ("cpu", "cuda", "tpu")
MARK = b"posteriax"


def write(program: PredictiveProgram, about: dict[str, Any], path: Path) -> Results:
    """Write the file; returns what the program in it computes for the example inputs."""
    (size,) = jax.export.symbolic_shape("examples")
    exported = jax.export.export(jax.jit(program), platforms=PLATFORMS)(program.spec(size))
    content = bytes(exported.serialize())
    text = json.dumps(about | {"program": hashlib.sha256(content).hexdigest()}).encode()
    with whole_file(path) as file:
        for part in (content, text, len(text).to_bytes(8, "little"), MARK):
            file.write(part)
    again = jax.export.deserialize(bytearray(path.read_bytes()))
    return jax.tree.map(np.asarray, jax.jit(again.call)(program.example))


def is_one(content: bytes) -> bool:
    """Whether the content of a file is of this format."""
    return content.endswith(MARK)


def read(content: bytes) -> tuple[dict[str, Any], Any]:
    """The description in a file, and a function of inputs; ValueError if the file is damaged."""
    body = content[: -len(MARK)]
    length = int.from_bytes(body[-8:], "little")
    program, text = body[: -8 - length], body[-8 - length : -8]
    about: dict[str, Any] = json.loads(text)
    if hashlib.sha256(program).hexdigest() != about["program"]:
        raise ValueError("its program is not the one that was written")
    return about, jax.jit(jax.export.deserialize(bytearray(program)).call)
