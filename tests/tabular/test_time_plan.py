"""The time of a comparison is kept: what does not fit is skipped, and the reference has its share set aside."""

import pytest

from posteriax.tabular.recipes import DEFAULT_METHODS
from posteriax.tabular.time_plan import TimePlan

pytestmark = pytest.mark.quick


class Machine:
    """A clock, and methods that overrun what they are given by what it takes to compile."""

    def __init__(self, compiling):
        self.now, self.compiling = 0.0, compiling

    def run(self, seconds, *, overrun=0.0):
        self.now += seconds + overrun


@pytest.mark.parametrize("compiling", [1.0, 4.0, 12.0])
@pytest.mark.parametrize("seconds", [60.0, 300.0, 900.0])
@pytest.mark.parametrize("folds", [1, 5])
def test_everything_ends_within_a_tenth_of_the_time(seconds, compiling, folds):
    machine = Machine(compiling)
    plan = TimePlan(seconds, DEFAULT_METHODS, folds=folds, clock=lambda: machine.now)
    machine.run(5.0)  # imports
    fitted = {}
    for _ in range(folds):
        machine.run(plan.for_baselines())
        machine.run(plan.for_tuning(), overrun=0.5 * compiling)
        for name in DEFAULT_METHODS:
            given = plan.share(name)
            if given is None:
                continue
            assert given > 0
            fitted.setdefault(name, []).append(given)
            machine.run(max(given, compiling))
            plan.compiled(compiling)
        plan.next_fold()
    machine.run(plan.to_compare)
    assert any(len(times) == folds for times in fitted.values())
    if plan.too_short is None:
        assert machine.now < 1.1 * seconds
        assert len(fitted["reference"]) == folds if "reference" in fitted else set(fitted) <= {"ensemble", "map"}
        if "reference" in fitted and seconds / folds >= 150 and compiling < 12:
            assert min(fitted["reference"]) > 1.5 * max(fitted[name][0] for name in set(fitted) - {"reference"})


def test_what_methods_leave_over_goes_to_those_after_them():
    machine = Machine(1.0)
    plan = TimePlan(300.0, ["map", "swag", "reference"], baselines=0, clock=lambda: machine.now)
    first = plan.share("map")
    machine.run(first / 2)
    spare = first / 2  # beyond what was planned
    assert plan.share("swag") > first + spare / 14


def test_a_budget_that_is_too_short_says_what_it_takes_and_fits_one_method():
    plan = TimePlan(2.0, ["map", "reference"], clock=lambda: 0.0)
    assert plan.too_short > 10
    assert plan.share("map") > 0
    assert plan.share("reference") is None
