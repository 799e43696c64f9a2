"""A schedule of data-parallel leapfrogs, simulated: what measurements on one and two devices imply for many.

    leapfrog = max over devices of (fixed + examples / D * per_example)  +  ring of 2 (D - 1) messages of bytes / D

Every device computes its part, then the gradient is summed around a ring: D - 1 messages to add the parts up, D - 1 to
hand the sums on. A device waits for its neighbour, so that the slowest sets the pace.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

STEPS = 20  # that are simulated; their mean is reported


@dataclass(frozen=True)
class Machine:
    """What was measured.

    Args:
        fixed: seconds of a leapfrog without examples.
        per_example: seconds for each example, on one device.
        spread: the standard deviation of a device's time from step to step, relative to its mean.
        latency: seconds of a message without content.
        bandwidth: bytes per second.
    """

    fixed: float
    per_example: float
    spread: float
    latency: float
    bandwidth: float


def fit_messages(seconds: dict[int, float]) -> tuple[float, float]:
    """Latency and bandwidth from the times of sums over two devices, by bytes: two messages of half the bytes each.

    seconds = 2 latency + bytes / bandwidth, by least squares of relative errors.

    >>> latency, bandwidth = fit_messages({size: 2e-5 + size / 1e9 for size in (4, 4096, 10**6)})
    >>> round(latency * 1e6, 3), round(bandwidth / 1e9, 3)
    (10.0, 1.0)
    """
    sizes, times = np.array(list(seconds), float), np.array(list(seconds.values()))
    design = np.stack([np.full_like(sizes, 2.0), sizes], axis=1) / times[:, None]
    latency, per_byte = np.linalg.lstsq(design, np.ones_like(times), rcond=None)[0]
    return max(float(latency), 0.0), 1.0 / max(float(per_byte), 1e-15)


def leapfrog_seconds(machine: Machine, devices: int, examples: int, size: int, *, seed: int = 0) -> float:
    """Seconds of a leapfrog of `examples` examples on so many devices, with a gradient of `size` bytes.

    >>> machine = Machine(fixed=0.0, per_example=1e-3, spread=0.0, latency=0.0, bandwidth=1e9)
    >>> [round(leapfrog_seconds(machine, devices, 100, 10**6), 6) for devices in (1, 2)]
    [0.1, 0.051]
    """
    random = np.random.default_rng(seed)
    compute = machine.fixed + examples / devices * machine.per_example
    clock = np.zeros(devices)
    message = machine.latency + size / devices / machine.bandwidth
    for _ in range(STEPS):
        clock += compute * np.maximum(1.0 + machine.spread * random.normal(size=devices), 0.5)
        for _ in range(2 * (devices - 1)):
            clock = np.maximum(clock, np.roll(clock, 1)) + message
    return float(clock.max() / STEPS)


class Layout(NamedTuple):
    """Groups of devices over which members are spread, devices in a group, and the seconds of a step of all members."""

    members: int
    data: int
    seconds: float


def best_layout(machine: Machine, devices: int, members: int, batch: int, size: int) -> Layout:
    """The fastest mesh for an ensemble.

    Groups must divide the members, and their devices the batch; each group takes its members in turn.

    >>> machine = Machine(fixed=0.0, per_example=1.0, spread=0.0, latency=0.0, bandwidth=1e9)
    >>> best_layout(machine, 8, 100, batch=128, size=0)[:2]
    (4, 2)
    """
    layouts = []
    for groups in (n for n in range(1, min(members, devices) + 1) if members % n == 0):
        data = max(n for n in range(1, devices // groups + 1) if batch % n == 0)
        layouts.append(Layout(groups, data, members / groups * leapfrog_seconds(machine, data, batch, size)))
    return min(layouts, key=lambda layout: (layout.seconds, -layout.members))
