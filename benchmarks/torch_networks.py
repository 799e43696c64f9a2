"""PyTorch modules: what they predict here and in PyTorch, and a training step beside PyTorch's own.

    .venv-torch/bin/python -m benchmarks torch_networks     # after make test-torch, which makes that environment

A step is that of Adam on a minibatch, with modules in training mode: dropout is on, and batch normalisation uses the
batch. Both libraries have two threads and are timed in turn in one process. The time to the first step is that of
everything from the module on: exporting, reading and compiling its program, and the step.
"""

import copy
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from rich.table import Table

import posteriax as px
from benchmarks.driver import Driver
from benchmarks.timing import interleave, make_table, ratios_of
from posteriax import families as q

THREADS, STEPS, BATCHES = 2, 3, 4


class TorchCase(NamedTuple):
    """A module, the shape of an example and how many a step takes; `words`, if they are indices of words."""

    build: Callable[[Any], Any]
    shape: tuple[int, ...]
    batch: int
    words: int = 0


NETWORKS = {
    "MLP 784-400-400-10": TorchCase(lambda m: m.MLP(), (784,), 128),
    "CNN, group norm": TorchCase(lambda m: m.GroupNormCNN(), (3, 32, 32), 64),
    "batch-normalised net": TorchCase(lambda m: m.BatchNormNet(width=200), (8,), 128),
    "ResNet-18": TorchCase(lambda m: m.ResNet18(10), (3, 64, 64), 16),
    "MobileNetV2": TorchCase(lambda m: m.MobileNetV2(10), (3, 64, 64), 16),
    "GPT": TorchCase(lambda m: m.GPT(65, 32, 128, 4, 4, p=0.1), (32,), 32, words=65),
    "BERT": TorchCase(lambda m: m.BERT(1000, 32, 128, 4, 4), (32,), 32, words=1000),
    "LSTM": TorchCase(lambda m: m.LSTMClassifier(), (50, 6), 64),
    "U-Net, flattened": TorchCase(lambda m: m.flattened(m.UNet()), (1, 32, 32), 16),
}


def report(names: Sequence[str], rounds: int) -> list[Table]:
    """One table, with a row for each network."""
    try:
        import torch

        from benchmarks import torch_modules
    except ImportError as error:
        raise SystemExit("this benchmark needs PyTorch: make test-torch installs it into .venv-torch") from error
    unknown = [name for name in names if name not in NETWORKS]
    if unknown:
        raise SystemExit(f"no network {unknown[0]!r}; there are {', '.join(NETWORKS)}")
    torch.set_num_threads(THREADS)
    jax.config.update("jax_enable_compilation_cache", False)  # compilation is part of the time to the first step
    columns = (
        "parameters",
        "largest difference",
        "first step, s",
        "step, ms",
        "PyTorch, ms",
        "MAP",
        "",
        "mean-field",
        "",
    )
    table = make_table("PyTorch modules: outputs, and a step over PyTorch's own deterministic step", columns)
    for name in names or NETWORKS:
        torch.manual_seed(0)
        table.add_row(name, *_row(torch, NETWORKS[name].build(torch_modules), NETWORKS[name], rounds))
    return [table]


def _row(torch: Any, module: Any, case: TorchCase, rounds: int) -> list[str]:
    rng, n = np.random.default_rng(0), BATCHES * case.batch
    shape = (n, *case.shape)
    x = rng.integers(1, case.words, shape) if case.words else rng.normal(size=shape).astype(np.float32)
    outputs, difference = _difference(torch, module, x[: case.batch])
    classes = outputs.shape[1] < 1000
    likelihood = px.Categorical() if classes else px.Normal(scale=1.0)
    y = rng.integers(0, outputs.shape[1], n) if classes else rng.normal(size=(n, outputs.shape[1])).astype(np.float32)
    adam = optax.adam(1e-3)

    def driver(method: Any) -> Driver:
        problem, _ = px.Problem(module, likelihood).reading(x[:2])
        return Driver(problem, method, (x.astype(np.int32) if case.words else x, y), batch_size=case.batch)

    began = time.perf_counter()
    first = driver(px.MAP(adam))
    first.advance(1)
    seconds = time.perf_counter() - began
    mean_field = driver(px.VI(q.Normal(), estimator="weight", optimizer=adam))
    times = interleave(
        {
            "MAP": first.seconds_per_step(STEPS),
            "mean-field": mean_field.seconds_per_step(STEPS),
            "PyTorch": _torch_step(torch, module, x, y, case.batch, classes),
        },
        rounds,
    )
    return [
        f"{sum(p.numel() for p in module.parameters()):,}",
        f"{difference:.1e}",
        f"{seconds:.1f}",
        f"{1e3 * np.median(times['MAP']):.3g}",
        f"{1e3 * np.median(times['PyTorch']):.3g}",
        *ratios_of(times["MAP"], times["PyTorch"]),
        *ratios_of(times["mean-field"], times["PyTorch"]),
    ]


def _difference(torch: Any, module: Any, x: np.ndarray) -> tuple[np.ndarray, float]:
    """Outputs, and their largest difference from PyTorch's relative to the largest output, in evaluation mode."""
    still = copy.deepcopy(module).eval()
    net = px.network(still)
    with torch.no_grad():
        wanted = still(torch.tensor(x)).numpy()
    outputs = np.asarray(jax.jit(lambda params, x: net.apply(params, x))(net.params, x))
    return outputs, float(np.abs(outputs - wanted).max() / np.abs(wanted).max())


def _torch_step(
    torch: Any, module: Any, x: np.ndarray, y: np.ndarray, batch: int, classes: bool
) -> Callable[[], float]:
    """Seconds per step of PyTorch's own training."""
    module = copy.deepcopy(module).train()
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-3)
    loss = torch.nn.functional.cross_entropy if classes else torch.nn.functional.mse_loss
    inputs, targets = torch.tensor(x), torch.tensor(y)

    def run() -> float:
        began = time.perf_counter()
        for step in range(STEPS):
            rows = slice((step % BATCHES) * batch, (step % BATCHES + 1) * batch)
            optimizer.zero_grad()
            loss(module(inputs[rows]), targets[rows]).backward()
            optimizer.step()
        return (time.perf_counter() - began) / STEPS

    return run
