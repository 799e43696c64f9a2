"""A time budget for several runs: what one leaves over, the others get."""

import time
from collections.abc import Callable, Mapping


class Budget:
    """Seconds, shared out to named runs in proportion to their weights.

    Each run is given its share of what is left when it starts, so that the time that a run does not need goes to those
    after it, and the last one gets the rest.

    Args:
        seconds: in all.
        weights: of the runs, by name.
        clock: for tests.

    >>> now = iter([0.0, 10.0, 70.0])
    >>> budget = Budget(100.0, {"map": 1, "hmc": 3}, clock=lambda: next(now))
    >>> budget.share("map"), budget.share("hmc")
    (22.5, 30.0)
    """

    def __init__(self, seconds: float, weights: Mapping[str, float], clock: Callable[[], float] = time.monotonic):
        self.seconds, self.weights, self.clock = seconds, dict(weights), clock
        self.began = clock()

    def left(self) -> float:
        """Seconds that are left; 0 if there are none."""
        return max(self.seconds - (self.clock() - self.began), 0.0)

    def share(self, name: str) -> float:
        """Seconds for a run that starts now. Each run asks once."""
        total = sum(self.weights.values())
        return self.left() * self.weights.pop(name) / total


def seconds_of(text: str) -> float:
    """A time such as "10m" in seconds.

    >>> seconds_of("90"), seconds_of("90s"), seconds_of("10m"), seconds_of("1.5h")
    (90.0, 90.0, 600.0, 5400.0)
    """
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1.0)
    try:
        seconds = float(number) * unit
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < float("inf"):
        raise ValueError(f"a time is a number of seconds, or such as 90s, 10m or 1h; got {text!r}")
    return seconds
