"""The benchmarks time equal work. What they measure is for people to read; nothing here asserts a speed."""

import io

import jax
import numpy as np
import pytest

from posteriax.benchmarks import leapfrog
from posteriax.benchmarks.timing import interleave, ratio_table


def test_cases_take_turns_and_the_first_round_is_thrown_away():
    calls = []
    cases = {name: lambda name=name: calls.append(name) or float(len(calls)) for name in "ab"}
    times = interleave(cases, rounds=2)
    assert calls == list("ababab")
    np.testing.assert_array_equal(times["a"], [3.0, 5.0])


def test_ratios_are_taken_round_by_round():
    table = ratio_table({"a": np.array([1.0, 2.0]), "b": np.array([2.0, 4.0])}, "a", unit=1.0, unit_name="s", title="t")
    assert list(table.columns[2].cells) == ["1.00", "2.00"]


@pytest.mark.slow
def test_the_leapfrog_benchmark_really_takes_its_leapfrogs(monkeypatch):
    monkeypatch.setattr(leapfrog, "LEAPFROGS", 3)
    monkeypatch.setattr(leapfrog, "TRANSITIONS", 2)
    recorded = {}
    chunk = leapfrog.Program.__init__

    def spy(self, *args, **kwargs):
        chunk(self, *args, **kwargs)
        run = self.chunk

        def call(*a):
            out = run(*a)
            recorded["leapfrogs"] = np.asarray(out[3].leapfrogs[:2])
            return out

        self.chunk = call

    monkeypatch.setattr(leapfrog.Program, "__init__", spy)
    times = leapfrog.run_leapfrog(rounds=1)
    assert set(times) == {
        "hand-written loop",
        "HMC, one chain",
        "HMC, two chains on two devices (per chain)",
    }
    assert len(jax.devices()) == 2
    np.testing.assert_array_equal(recorded["leapfrogs"], 3)


def test_every_family_is_in_the_table_of_families():
    from rich.console import Console

    from posteriax import families as q
    from posteriax.benchmarks.families import DETERMINISTIC, methods, table

    timed = {DETERMINISTIC: np.array([1.0, 2.0])} | {name: np.array([2.0, 4.0]) for name in methods()}
    console = Console(width=150, file=io.StringIO())
    console.print(table(timed, {"MAP": (2**20, 478_410)}))
    text = console.file.getvalue()
    assert "478,410" in text
    assert "2.00" in text
    left_out = {"Family", "FullCovariance", "Point", "PointPerComponent"}
    for name in {n for n, value in vars(q).items() if isinstance(value, type)} - left_out:
        assert name in text
