"""The time of a comparison: shared out so that all of it, compiling, comparing and the report included, ends in time.

    fold          what is left, less what comparing will take, divided by the folds that are left
    baselines     at most an eighth of it, tuning the prior at most a fifth
    methods       what each needs at the least, and of the rest a part in proportion to its recipe's share; that of the
                  reference is set aside from the start, and comes with whatever the others leave over

If what they need at the least, to compile and to train for about as long, is more than there is, methods are skipped,
the least valuable first. How long compiling takes on this machine is measured while the first method runs.
"""

import time
from collections.abc import Callable, Sequence

import jax

from posteriax.tabular.recipes import RECIPES

FOR_BASELINES, FOR_TUNING = 1 / 8, 1 / 5  # of the time of a fold, at most
FOR_REPORT = 0.04  # of the whole
COMPILING = 2.0  # seconds of the first method, before they have been measured
FASTEST, SLOWEST = 1.0, 60.0  # seconds of it that are believed
TO_COMPARE = 0.35  # of that, for each row of the comparison
TO_REPORT = 1.5
TO_PREPARE = 6.0  # seconds to import, read and split
LEAST_IN_ALL = 6.0  # times the seconds of compiling that a comparison of one method takes
MOST_VALUABLE = ("ensemble", "map", "reference", "hmc", "nuts", "mclmc", "laplace", "mean-field", "swag", "k-tied")
COMPILER_EVENTS = ("/jax/core/compile/jaxpr_to_mlir_module_duration", "/jax/core/compile/backend_compile_duration")


class CompilerClock:
    """How many seconds this process has spent compiling."""

    def __init__(self) -> None:
        self.seconds = 0.0
        jax.monitoring.register_event_duration_secs_listener(self._add)

    def _add(self, event: str, duration_secs: float, **_: str | int) -> None:
        if event in COMPILER_EVENTS:
            self.seconds += duration_secs


_compiler: list[CompilerClock] = []


def compiler_seconds() -> float:
    """How many seconds this process has spent compiling since the first call."""
    if not _compiler:
        _compiler.append(CompilerClock())
    return _compiler[0].seconds


class TimePlan:
    """What every part of a comparison may take.

    Args:
        seconds: in all.
        names: of the methods, in the order in which they run in each fold.
        folds: how many there are.
        baselines: how many there are.
        began: when the comparison did, on the clock; by default now.
        clock: for tests.

    >>> now = 0.0
    >>> plan = TimePlan(300.0, ["map", "swag", "reference"], baselines=0, clock=lambda: now)
    >>> plan.share("map") < plan.share("reference") / 5
    True
    >>> TimePlan(15.0, ["map", "swag", "reference"], baselines=0, clock=lambda: now).share("swag") is None
    True
    """

    def __init__(
        self,
        seconds: float,
        names: Sequence[str],
        *,
        folds: int = 1,
        baselines: int = 3,
        began: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.seconds, self.names, self.folds, self.baselines, self.clock = seconds, list(names), folds, baselines, clock
        self.began = clock() if began is None else began
        self.waiting, self.granted = list(names), False  # in this fold, and whether any has been given time
        self.skipped: set[str] = set()
        self.compiling, self.measured = COMPILING, False
        self.for_other_folds = self.left() * (1 - 1 / self.folds)

    def left(self) -> float:
        """Seconds for fitting: until the end, without those for comparing and the report."""
        return max(self.seconds - (self.clock() - self.began) - self.to_compare, 0.0)

    def left_in_fold(self) -> float:
        """Seconds for what is left of this fold."""
        return max(self.left() - self.for_other_folds, 0.0)

    @property
    def to_compare(self) -> float:
        """Seconds for predictions on the test rows, which are compiled for each row, scores and the report."""
        rows = len(set(self.names) - self.skipped) + self.baselines
        return self.compiling * (TO_REPORT + TO_COMPARE * rows) + FOR_REPORT * self.seconds

    @property
    def too_short(self) -> float | None:
        """Seconds that a comparison will take at least, if the budget is shorter; otherwise None."""
        least = TO_PREPARE + self.compiling * LEAST_IN_ALL * self.folds
        return least if least > self.seconds else None

    def next_fold(self) -> None:
        """A fold has been fitted."""
        self.folds, self.waiting, self.granted = max(self.folds - 1, 1), list(self.names), False
        self.for_other_folds = self.left() * (1 - 1 / self.folds)

    def for_baselines(self) -> float:
        """Seconds for the baselines of a fold."""
        return FOR_BASELINES * self.left_in_fold()

    def for_tuning(self) -> float:
        """Seconds to tune the prior of a fold."""
        return FOR_TUNING * self.left_in_fold()

    def share(self, name: str) -> float | None:
        """Seconds for a method that starts now; None if it must be skipped. Each is asked once in a fold."""
        waiting, self.waiting = self.waiting, [other for other in self.waiting if other != name]
        left = self.left_in_fold()
        while name not in self.skipped:
            staying = [other for other in waiting if other not in self.skipped]
            spare = left - sum(map(self.least, staying))
            if spare >= 0 or (staying == [name] and not self.granted):  # something must be compared
                self.granted = True
                weights = sum(RECIPES[other].share for other in staying)
                return max(self.least(name) + spare * RECIPES[name].share / weights, 1.0)
            self.skipped.add(max(staying, key=_value))
        return None

    def least(self, name: str) -> float:
        """Seconds that a method needs to be worth starting."""
        return self.compiling * RECIPES[name].least

    def compiled(self, seconds: float) -> None:
        """How long the first method took to compile."""
        if not self.measured:
            self.compiling, self.measured = min(max(seconds, FASTEST), SLOWEST), True


def _value(name: str) -> int:
    """The larger, the less is lost if a method is skipped."""
    return MOST_VALUABLE.index(name) if name in MOST_VALUABLE else len(MOST_VALUABLE)
