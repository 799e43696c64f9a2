"""Shapes and dtypes of one example, as JSON holds them."""

from typing import Any

import jax
import numpy as np

ExampleSpec = Any  # an array, or dicts, tuples and lists of arrays


def example_to_plain(example: ExampleSpec) -> dict[str, Any]:
    """Shapes and dtypes of one example as JSON: an array, or dicts, tuples and lists of arrays."""
    if isinstance(example, jax.ShapeDtypeStruct):
        return {"shape": list(example.shape), "dtype": str(example.dtype)}
    if isinstance(example, dict) and all(isinstance(name, str) for name in example):
        return {"dict": {name: example_to_plain(part) for name, part in example.items()}}
    kind = "tuple" if isinstance(example, tuple) else "list"
    return {kind: [example_to_plain(part) for part in example] if isinstance(example, tuple | list) else []}


def example_from_plain(plain: dict[str, Any]) -> ExampleSpec:
    if "shape" in plain:
        return jax.ShapeDtypeStruct(tuple(plain["shape"]), np.dtype(plain["dtype"]))
    if "dict" in plain:
        return {name: example_from_plain(part) for name, part in plain["dict"].items()}
    if "tuple" in plain:
        return tuple(example_from_plain(part) for part in plain["tuple"])
    return [example_from_plain(part) for part in plain["list"]]
