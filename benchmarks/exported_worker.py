"""Load an exported model and predict with it, without posteriax: ``exported_worker.py FORMAT PATH FOLDER ROUNDS``."""

import json
import sys
import time
from pathlib import Path

began = time.perf_counter()
format, path, folder, rounds = sys.argv[1:]

import numpy as np  # noqa: E402

x = np.load(f"{folder}/x.npy")
if format == "stablehlo":
    import jax
    import jax.export

    model = jax.export.deserialize(bytearray(Path(path).read_bytes()))
    predict = jax.jit(model.call)
    run = lambda: {name: np.asarray(value) for name, value in predict(x).items()}  # noqa: E731
elif format == "onnx":
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    names = [result.name for result in session.get_outputs()]
    run = lambda: dict(zip(names, session.run(None, {"x": x}), strict=True))  # noqa: E731
else:
    sys.path.insert(0, path)
    from predict import predict  # type: ignore[import-not-found]

    run = lambda: predict(x)  # noqa: E731
assert "posteriax" not in sys.modules
load = time.perf_counter() - began
began = time.perf_counter()
results = run()
first = time.perf_counter() - began
times = []
for _ in range(int(rounds)):
    began = time.perf_counter()
    run()
    times.append(time.perf_counter() - began)
expected = np.load(f"{folder}/expected.npy")
difference = float(np.abs(results["probs" if "probs" in results else "mean"] - expected).max())
print(json.dumps({"load": load, "first": first, "predict": float(np.median(times)), "difference": difference}))
