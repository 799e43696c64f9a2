"""The scaling benchmark: its arithmetic on made-up measurements, and its page."""

import numpy as np
import pytest

import posteriax as px
from benchmarks import scaling
from benchmarks.page import write_tables
from benchmarks.schedule import Machine, leapfrog_seconds
from posteriax import families as q

PER_EXAMPLE, LATENCY, BANDWIDTH = 5e-3, 1e-5, 1e9


def measured():
    """A machine that does exactly what the formula says, with two devices twice as fast."""
    seconds = {}
    for case in scaling.CASES:
        for kind in ("strong", "weak"):
            shared = kind == "strong" or case == "chains"  # seconds of chains are per chain
            seconds[f"{case}, {kind}"] = {
                where: [1.0 / (devices if shared else 1)] * 2
                for where, (_, devices, _) in scaling.CONFIGURATIONS.items()
            }
    sums = {str(size): 2 * LATENCY + size / BANDWIDTH for size in (4, 4096, 10**6)}
    ring = 2 * (LATENCY + scaling.RESNET_BYTES / 2 / BANDWIDTH)
    resnet = {
        scaling.BASELINE: [64 * PER_EXAMPLE] * 3,
        scaling.TWO: [32 * PER_EXAMPLE + ring] * 3,
        "half": [32 * PER_EXAMPLE] * 3,
    }
    return {
        "seconds": seconds,
        "collectives": {scaling.TWO: sums, "1 process, 2 devices": sums},
        "resnet20": resnet,
    }


def test_the_machine_is_recovered_and_the_schedule_agrees_with_two_devices():
    machine = scaling.machine_of(measured())
    assert machine.per_example == pytest.approx(PER_EXAMPLE)
    assert machine.fixed == pytest.approx(0.0, abs=1e-9)
    assert machine.latency == pytest.approx(LATENCY)
    assert machine.bandwidth == pytest.approx(BANDWIDTH)
    for _, simulated, seen in scaling._checked(measured())[1:]:
        assert float(simulated) == pytest.approx(float(seen), rel=1e-3)


def test_a_schedule_on_equal_devices_is_the_formula_and_the_slowest_sets_the_pace():
    equal = Machine(fixed=1e-3, per_example=PER_EXAMPLE, spread=0.0, latency=LATENCY, bandwidth=BANDWIDTH)
    devices, examples, size = 64, 50_000, 10**6
    formula = 1e-3 + examples / devices * PER_EXAMPLE + 2 * (devices - 1) * (LATENCY + size / devices / BANDWIDTH)
    assert leapfrog_seconds(equal, devices, examples, size) == pytest.approx(formula)
    uneven = Machine(fixed=1e-3, per_example=PER_EXAMPLE, spread=0.1, latency=LATENCY, bandwidth=BANDWIDTH)
    # the largest of 64 normal numbers is 2.4 standard deviations above their mean, give or take 0.4
    slower = leapfrog_seconds(uneven, devices, examples, size) / formula
    assert 1.2 < slower < 1.28


def test_twice_the_work_in_the_same_time_is_twice_the_throughput():
    for kind in ("strong", "weak"):
        heading, *rows = scaling._throughput(measured(), kind)
        two = heading.index(scaling.TWO)
        assert [row[two].split()[0] for row in rows] == ["2.00"] * 3
        assert [row[1].split()[0] for row in rows] == ["1.00"] * 3


def test_tables_go_into_the_page_and_only_between_its_marks(tmp_path):
    page, tables = tmp_path / "page.md", scaling.tables(measured())
    page.write_text(
        "before\n<!-- measured by `python -m benchmarks scaling` -->\nold\n<!-- end of scaling -->\nafter\n"
    )
    write_tables(page, "scaling", tables)
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text
    assert "| 512 |" in text and "70,248 leapfrogs" in text
    assert len(tables) == text.count("| --- |") == 6
    write_tables(page, "scaling", tables)
    assert page.read_text() == text
    with pytest.raises(SystemExit, match="has no lines"):
        write_tables(page, "step", tables)


def test_an_ensemble_runs_on_meshes_that_fit_it():
    for _, mesh, _, gain, _ in scaling._ensemble(measured())[1:]:
        groups, data = (int(part.split("=")[1].rstrip(")")) for part in mesh.split(","))
        assert scaling.MEMBERS % groups == 0 and scaling.BATCH % data == 0
        assert 0.9 < float(gain) <= groups * data + 1e-9
    assert np.isclose(float(scaling._ensemble(measured())[1][3]), 1.0)


@pytest.mark.slow
def test_the_sharding_benchmark_reports_less_memory_for_split_parameters():
    import jax

    from benchmarks.sharding import SHAPE, ShardingCase, measure_cost

    def network(*, key):
        return lambda w, x: x.reshape(len(x), -1) @ w, jax.random.normal(key, (int(np.prod(SHAPE)), 10))

    case = ShardingCase(network, lambda: px.VI(q.Normal(), "weight"), 8)
    copied, split = (measure_cost(case, shard, 1) for shard in (False, True))
    assert 0.4 * copied.state < split.state < 0.6 * copied.state
