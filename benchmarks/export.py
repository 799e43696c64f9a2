"""Exported models where there is no posteriax: size, time to load and to predict, largest difference.

    python -m benchmarks export --jax PYTHON --onnx PYTHON --numpy PYTHON

Interpreters of environments with JAX (and flatbuffers), onnxruntime, or NumPy alone; without one, that format is only
written. Models: an ensemble of 10 MLPs 8-50-2 for numbers; 100 draws of a mean-field MLP 20-64-64-3 for classes; an
ensemble of 5 LeNets for images. All are hardly trained, which costs the same.
"""

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.table import Table

import posteriax as px
from benchmarks.timing import make_table
from posteriax import families as q

WORKER = Path(__file__).with_name("exported_worker.py")
EXAMPLES = 1000


def models() -> dict[str, tuple[Any, np.ndarray]]:
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(EXAMPLES, 8)).astype(np.float32)
    rows = rng.normal(size=(EXAMPLES, 20)).astype(np.float32)
    images = rng.uniform(size=(EXAMPLES, 28, 28, 1)).astype(np.float32)
    labels = rng.integers(3, size=EXAMPLES)
    key, length = jax.random.key(0), {"steps": 200, "batch_size": 100, "key": 0, "progress": False}
    regression = px.Problem(px.zoo.uci_mlp(inputs=8, key=key), px.Normal("predicted"))
    table = px.Problem(px.zoo.mlp(inputs=20, hidden=(64, 64), classes=3, key=key), px.Categorical())
    lenet = px.Problem(px.zoo.lenet5(classes=10, key=key), px.Categorical())
    return {
        "numbers, 10 MLPs": (
            px.fit(regression, (numbers, numbers[:, 0]), px.Ensemble(px.MAP(), 10), **length),
            numbers,
        ),
        "classes, 100 draws": (px.fit(table, (rows, labels), px.VI(q.Normal()), **length), rows),
        "images, 5 LeNets": (px.fit(lenet, (images, labels), px.Ensemble(px.MAP(), 5), **length), images),
    }


def report(rounds: int, interpreters: dict[str, str]) -> list[Table]:
    columns = ("format", "draws", "size, kB", "load, s", "first, s", "predict, ms", "posteriax, ms", "difference")
    table = make_table(f"Exported models, {EXAMPLES:,} examples: median of {rounds} predictions", columns)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for label, (posterior, x) in models().items():
            np.save(folder / "x.npy", x)
            expected = posterior.predict(x)
            own = min(
                _seconds(lambda posterior=posterior, x=x: _all_results(posterior.predict(x))) for _ in range(rounds)
            )
            np.save(folder / "expected.npy", expected.mean)
            for format in ("stablehlo", "onnx", "numpy"):
                try:
                    exported = posterior.export(folder / f"model.{format}", x, format)
                except NotImplementedError as error:
                    table.add_row(label, format, *[""] * 6, str(error).partition(":")[0])
                    continue
                row = [f"{exported.draws}", f"{exported.bytes / 1e3:.0f}"]
                if format in interpreters:
                    command = [interpreters[format], str(WORKER), format, str(exported.path), str(folder), str(rounds)]
                    done = subprocess.run(command, check=True, capture_output=True, text=True)
                    found = json.loads(done.stdout.splitlines()[-1])
                    row += [f"{found['load']:.2f}", f"{found['first']:.2f}", f"{1e3 * found['predict']:.1f}"]
                    difference = max(found["difference"], exported.largest_difference)
                else:
                    row, difference = [*row, "", "", ""], exported.largest_difference
                table.add_row(label, format, *row, f"{1e3 * own:.1f}", f"{difference:.0e}")
    return [table]


def _all_results(predictive: Any) -> None:
    """What an exported model computes."""
    _ = predictive.mean, predictive.std, predictive.quantile(np.array([0.05, 0.25, 0.5, 0.75, 0.95]))
    _ = predictive.entropy(), predictive.mutual_information()


def _seconds(run: Any) -> float:
    from time import perf_counter

    began = perf_counter()
    run()
    return perf_counter() - began
