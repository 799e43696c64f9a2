"""ONNX: a file that onnxruntime, and whatever else reads ONNX, loads and runs, for any batch size.

What posteriax needs to read its own file is JSON in the file's metadata.
"""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

from posteriax._internal.atomic_file import whole_file
from posteriax.posterior.export.program import PredictiveProgram, Results

METADATA = "posteriax"


def write(program: PredictiveProgram, about: dict[str, Any], path: Path) -> Results:
    """Write the file; returns what the graph in it computes for the example inputs."""
    try:
        import onnx
    except ModuleNotFoundError:
        raise ModuleNotFoundError("the ONNX format needs onnx: pip install 'posteriax[onnx]'") from None
    from posteriax.posterior.export.onnx_graph import translate

    model = onnx.load_from_string(translate(program, program.spec, program.results))
    model.producer_name = "posteriax"
    entry = model.metadata_props.add()
    entry.key, entry.value = METADATA, json.dumps(about)
    with whole_file(path) as file:
        file.write(model.SerializeToString())
    return session(path.read_bytes())(program.example)


def session(content: bytes) -> Any:
    """A function of inputs that runs a file's content: by onnxruntime, or slowly by ONNX's own reference."""
    try:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        model: Any = onnxruntime.InferenceSession(content, options)
        inputs, results = ([value.name for value in values] for values in (model.get_inputs(), model.get_outputs()))
    except ModuleNotFoundError:
        from onnx import load_from_string
        from onnx.reference import ReferenceEvaluator

        model = ReferenceEvaluator(load_from_string(content))
        inputs, results = list(model.input_names), list(model.output_names)

    def run(x: Any) -> Results:
        given = dict(zip(inputs, map(np.asarray, jax.tree.leaves(x)), strict=True))
        return dict(zip(results, model.run(None, given), strict=True))

    return run


def read(content: bytes) -> tuple[dict[str, Any], Any]:
    """The description in a file, and a function of inputs; ValueError if the file is damaged."""
    try:
        from onnx import load_from_string
    except ModuleNotFoundError:
        raise ModuleNotFoundError("reading an ONNX file needs onnx: pip install 'posteriax[onnx]'") from None
    try:
        model = load_from_string(content)
    except Exception as error:  # protobuf's own
        raise ValueError("it is not an ONNX file") from error
    about = {entry.key: entry.value for entry in model.metadata_props}
    if METADATA not in about:
        raise ValueError("it is an ONNX file that posteriax did not write")
    return json.loads(about[METADATA]), session(content)
