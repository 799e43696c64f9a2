"""Scaling on this machine: one and two devices in a process, and one and two processes.

Every configuration runs in processes of its own, started in turn. The baseline is one process on one core. What follows
for more devices is computed from these measurements (schedule.py), and the same computation is checked against the
two-device measurements.
"""

import json
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.schedule import Machine, best_layout, fit_messages, leapfrog_seconds
from benchmarks.timing import make_table
from posteriax.distributed.launcher import launch

# processes, devices in all, cores of each process
CONFIGURATIONS = {
    "1 process, 1 core": (1, 1, 1),
    "1 process, 2 devices": (1, 2, 2),
    "2 processes, 1 core each": (2, 2, 1),
}
BASELINE, TWO = "1 process, 1 core", "2 processes, 1 core each"
CASES = {
    "chains": "HMC chains, MLP of 1,017 weights",
    "cnn": "full-batch gradients of LeNet-5, 1,024 images",
    "vi": "mean-field VI steps, MLP 784-400-400-10, batch 1,024",
}
RESNET_BYTES = 4 * 274_042  # ResNet-20-FRN
LEAPFROGS_PER_SAMPLE = 70_248  # Izmailov et al. 2021, table of hyper-parameters: CIFAR-10
EXAMPLES = 50_000
DEVICES = (1, 8, 64, 512)
MEMBERS, BATCH = 100, 128

Measured = dict[str, Any]


def report(rounds: int, out: Path | None = None) -> list[Table]:
    measured = measure(rounds)
    if out is not None:
        out.write_text(json.dumps(measured, indent=1) + "\n")
    return tables(measured)


def measure(rounds: int) -> Measured:
    """Seconds of every case in every configuration, the median of each round; and of collectives."""
    seconds: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    collectives: dict[str, list[dict[str, float]]] = defaultdict(list)
    names = [f"{case}, {kind}" for case in CASES for kind in ("strong", "weak")]
    for _ in range(rounds):
        for where, (processes, devices, cores) in CONFIGURATIONS.items():
            for case in names:
                seconds[case][where].append(float(np.median(_run(case, processes, devices, cores))))
            if devices > 1:
                collectives[where].append(_run("collectives", processes, devices, cores))
    resnet = {where: _run("resnet20, strong", *CONFIGURATIONS[where]) for where in (BASELINE, TWO)}
    resnet["half"] = _run("resnet20, half", *CONFIGURATIONS[BASELINE])
    sums = {
        where: {size: float(np.median([sums[size] for sums in rounds_of_sums])) for size in rounds_of_sums[0]}
        for where, rounds_of_sums in collectives.items()
    }
    return {"seconds": {case: dict(by) for case, by in seconds.items()}, "collectives": sums, "resnet20": resnet}


def machine_of(measured: Measured) -> Machine:
    """What the schedule needs to know, from one device alone, and from sums over two processes."""
    full, half = (np.median(measured["resnet20"][name]) for name in (BASELINE, "half"))
    per_example = (full - half) / 32
    values = np.array(measured["resnet20"][BASELINE])
    spread = float(values.std() / values.mean())
    latency, bandwidth = fit_messages({int(size): s for size, s in measured["collectives"][TWO].items()})
    return Machine(max(float(full - 64 * per_example), 0.0), float(per_example), spread, latency, bandwidth)


def tables(measured: Measured) -> list[Table]:
    """What was measured, and what follows."""
    made = []
    for title, rows in _sections(measured).items():
        heading, *rest = rows
        table = make_table(title, heading[1:], heading[0])
        for row in rest:
            table.add_row(*row)
        made.append(table)
    return made


def _sections(measured: Measured) -> dict[str, list[list[str]]]:
    return {
        "Throughput over one process on one core; strong scaling, the same work": _throughput(measured, "strong"),
        "The same; weak scaling, as much work on each device": _throughput(measured, "weak"),
        "Sums over two devices: microseconds": _collectives(measured),
        "A leapfrog of ResNet-20-FRN, 64 images: simulated and measured": _checked(measured),
        "A sample of HMC: 70,248 leapfrogs of ResNet-20-FRN on 50,000 images": _projected(measured),
        f"An ensemble of {MEMBERS} members: ResNet-20-FRN, batch {BATCH}": _ensemble(measured),
    }


def _throughput(measured: Measured, kind: str) -> list[list[str]]:
    rows = [["", *CONFIGURATIONS]]
    for case, text in CASES.items():
        seconds = measured["seconds"][f"{case}, {kind}"]
        row = [text]
        for where, (_, devices, _) in CONFIGURATIONS.items():
            # seconds of chains are per chain already; twice the examples in the same time are twice the throughput
            work = devices if kind == "weak" and case != "chains" else 1
            ratios = work * np.array(seconds[BASELINE]) / np.array(seconds[where])
            row.append(f"{np.median(ratios):.2f} ({ratios.min():.2f} to {ratios.max():.2f})")
        rows.append(row)
    return rows


def _collectives(measured: Measured) -> list[list[str]]:
    sums = measured["collectives"]
    sizes = list(next(iter(sums.values())))
    return [["bytes", *sums], *([f"{int(size):,}", *(f"{1e6 * sums[w][size]:,.1f}" for w in sums)] for size in sizes)]


def _checked(measured: Measured) -> list[list[str]]:
    machine = machine_of(measured)
    rows = [["devices", "simulated, ms", "measured, ms"]]
    for devices, where in ((1, BASELINE), (2, TWO)):
        seconds = leapfrog_seconds(machine, devices, 64, RESNET_BYTES)
        rows.append([str(devices), f"{1e3 * seconds:.1f}", f"{1e3 * np.median(measured['resnet20'][where]):.1f}"])
    return rows


def _projected(measured: Measured) -> list[list[str]]:
    machine = machine_of(measured)
    rows = [["devices", "computing, s", "a leapfrog, s", "a sample", "efficiency"]]
    one_device = leapfrog_seconds(machine, 1, EXAMPLES, RESNET_BYTES)
    for devices in DEVICES:
        computing = machine.fixed + EXAMPLES / devices * machine.per_example
        seconds = leapfrog_seconds(machine, devices, EXAMPLES, RESNET_BYTES)
        days = seconds * LEAPFROGS_PER_SAMPLE / 86_400
        shown = f"{days:,.1f} days" if days >= 1 else f"{24 * days:.1f} h"
        efficiency = f"{one_device / seconds / devices:.0%}"
        rows.append([f"{devices}", f"{computing:.3g}", f"{seconds:.3g}", shown, efficiency])
    return rows


def _ensemble(measured: Measured) -> list[list[str]]:
    machine = machine_of(measured)
    rows = [["devices", "mesh", "a step of all members, s", "speed-up", "efficiency"]]
    one_device = best_layout(machine, 1, MEMBERS, BATCH, RESNET_BYTES).seconds
    for devices in DEVICES:
        best = best_layout(machine, devices, MEMBERS, BATCH, RESNET_BYTES)
        gain = one_device / best.seconds
        mesh = f"px.distributed.mesh(members={best.members}, data={best.data})"
        rows.append([f"{devices}", mesh, f"{best.seconds:.3g}", f"{gain:.1f}", f"{gain / devices:.0%}"])
    return rows


def _run(case: str, processes: int, devices: int, cores: int) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "measured.json"
        worker = [sys.executable, "-m", "benchmarks.scaling_worker"]
        code = launch([*worker, case, str(devices), str(cores), str(file)], processes, pin=False, quiet=True)
        if code:
            raise RuntimeError(f"the benchmark {case!r} failed on {processes} process(es) with exit code {code}")
        return json.loads(file.read_text())
