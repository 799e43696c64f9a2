"""The benchmarks time equal work. What they measure is for people to read; nothing here asserts a speed."""

import io
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posteriax as px
from benchmarks import driver, history, leapfrog, sampling, start
from benchmarks.page import markdown
from benchmarks.timing import interleave, ratio_table
from posteriax.methods.sampling.masses import start_diagonal


def test_cases_take_turns_and_the_first_round_is_thrown_away():
    calls = []
    cases = {name: lambda name=name: calls.append(name) or float(len(calls)) for name in "ab"}
    times = interleave(cases, rounds=2)
    assert calls == list("ababab")
    np.testing.assert_array_equal(times["a"], [3.0, 5.0])


def test_ratios_are_taken_round_by_round():
    table = ratio_table({"a": np.array([1.0, 2.0]), "b": np.array([2.0, 4.0])}, "a", unit="s", title="t")
    assert list(table.columns[2].cells) == ["1.00", "2.00"]


@pytest.mark.slow
def test_the_leapfrog_benchmark_really_takes_its_leapfrogs(monkeypatch):
    monkeypatch.setattr(leapfrog, "LEAPFROGS", 3)
    monkeypatch.setattr(leapfrog, "TRANSITIONS", 2)
    recorded = {}
    chunk = driver.Program.__init__

    def spy(self, *args, **kwargs):
        chunk(self, *args, **kwargs)
        run = self.chunk

        def call(*a):
            out = run(*a)
            recorded["leapfrogs"] = np.asarray(out[3].leapfrogs[:2])
            return out

        call.lower = run.lower
        self.chunk = call

    monkeypatch.setattr(driver.Program, "__init__", spy)
    times = interleave(leapfrog.cases(), rounds=1)
    assert set(times) == {
        "hand-written loop",
        "HMC, one chain",
        "HMC, two chains on two devices (per chain)",
    }
    assert len(jax.devices()) == 2
    np.testing.assert_array_equal(recorded["leapfrogs"], 3)


def test_the_history_divides_each_round_by_the_hand_written_case_of_that_round():
    times = {case: np.array([2.0, 4.0, 6.0]) for case in history.BASELINES}
    times |= {case: np.array([1.0, 2.0, 3.0]) for case in history.BASELINES.values()}
    record = history.describe("HEAD", times)
    assert set(map(tuple, record["ratios"].values())) == {(2.0, 2.0, 2.0)}
    older = record | {"date": "2000-01-01"}
    assert history.merge([record], [older]) == [older]
    assert history.merge([record], [older | {"commit": "0000000"}])[0]["commit"] == "0000000"


def test_the_page_of_the_history_shows_what_was_measured():
    assert history.markdown(history.read_results()) in history.PAGE.read_text()


def test_the_first_step_is_the_readmes():
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    *lines, fit = start.FIRST_STEP.strip().splitlines()
    for line in lines:
        assert f"\n{line}" in readme
    assert fit.replace("steps=1", "epochs=50") in readme


def test_the_table_of_families_has_times_memory_and_parameters():
    from rich.console import Console

    from benchmarks.families import methods, table
    from benchmarks.step import DETERMINISTIC

    timed = {DETERMINISTIC: np.array([1.0, 2.0])} | {name: np.array([2.0, 4.0]) for name in methods()}
    console = Console(width=150, file=io.StringIO())
    console.print(table(timed, {"MAP": (2**20, 478_410)}))
    text = console.file.getvalue()
    assert "478,410" in text
    assert "2.00" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["MCLMC", pytest.param("HMC", marks=pytest.mark.slow), pytest.param("NUTS", marks=pytest.mark.slow)]
)
def test_the_gradients_that_a_sampler_says_it_took_are_those_it_took(kind, monkeypatch):
    """A leapfrog is one; a step of MCLMC is two, in BlackJAX's default integrator, which posteriax uses too."""
    import blackjax

    monkeypatch.setattr(sampling, "DRAWS", {kind: 3})
    counted = []

    def density(vector):
        jax.debug.callback(lambda: counted.append(1))
        return -0.5 * jnp.vdot(vector, vector)

    positions, log_step_size = jnp.ones((sampling.CHAINS, 4)), jnp.full(sampling.CHAINS, -1.0)
    init = getattr(blackjax, kind.lower()).init
    key = (jax.random.key(0),) if kind == "MCLMC" else ()
    masses = jax.vmap(start_diagonal)(positions)
    states = SimpleNamespace(
        chain=jax.vmap(lambda position: init(position, density, *key))(positions),
        adapted=SimpleNamespace(step_size=SimpleNamespace(log_step_size_avg=log_step_size), masses=masses),
        masses=masses,
        tuning=SimpleNamespace(step_size=jnp.exp(log_step_size)),
    )
    sampler = sampling.blackjax_sampler(density, kind, states)
    jax.effects_barrier()
    counted.clear()
    block = sampler.block()
    jax.effects_barrier()
    assert block.draws.shape == (sampling.CHAINS, 3, 4)
    assert block.gradients == len(counted) > 0


def test_samplers_are_compared_with_blackjax_of_their_kind_and_timed_without_their_warmup():
    def result(kind, warmup, seconds):
        blocks = [sampling.DrawBlock(np.zeros((2, 10, 1)), 100 * (i + 1), second) for i, second in enumerate(seconds)]
        return sampling.Result(sampling.Sampler(kind, warmup, None), blocks, np.array([10.0, 30.0, 80.0]))

    results = {
        "posteriax HMC": result("HMC", 7.0, (3.0, 6.0)),
        "BlackJAX HMC": result("HMC", np.nan, (2.0, 4.0)),
        "BlackJAX NUTS": result("NUTS", np.nan, (1.0, 2.0)),
    }
    table = sampling.table(results)
    row = [next(iter(column.cells)) for column in table.columns]
    assert row == ["posteriax HMC", "33", "1.50", "1.50 to 1.50", "7.0", "40", "9.0", "30, 10", "3.3, 1.1"]


@pytest.mark.slow
def test_the_sampling_benchmark_takes_blocks_of_all_samplers_in_turn(monkeypatch):
    hmc, nuts = px.HMC(warmup=4, max_leapfrogs=20), px.NUTS(warmup=4, max_doublings=3)
    short = {"HMC": hmc, "NUTS": nuts, "MCLMC": px.MCLMC(warmup=200)}
    monkeypatch.setattr(sampling, "METHODS", short)
    monkeypatch.setattr(sampling, "DRAWS", {"HMC": 4, "NUTS": 4, "MCLMC": 10})
    results = sampling.run_sampling(rounds=2)
    assert set(results) == {f"{who} {kind}" for who in ("posteriax", "BlackJAX") for kind in short} | {
        "NumPyro HMC",
        "NumPyro NUTS",
    }
    for name, (sampler, blocks, effective) in results.items():
        assert len(blocks) == 2
        assert effective.shape == (100, 2)
        assert (sampler.warmup > 0) != name.startswith("BlackJAX")
        draws = np.concatenate([block.draws for block in blocks], axis=1)
        assert draws.shape == (2, 2 * sampling.DRAWS[sampler.kind], 1017)
        assert (draws[0] != draws[1]).any(axis=1).all()  # chains differ
    assert results["posteriax MCLMC"].blocks[0].gradients == 2 * 2 * 20 * 10


def test_installations_take_turns_at_every_case(tmp_path, monkeypatch):
    from benchmarks import compilers

    monkeypatch.setattr(compilers, "CASES", ("step", "leapfrog"))
    log = tmp_path / "log"
    pythons = []
    for name, seconds in (("a", "0.5"), ("b", "0.25")):
        script = tmp_path / name
        script.write_text(f'#!/bin/sh\nwhile read case; do echo "{name} $case" >> {log}; echo {seconds}; done\n')
        script.chmod(0o755)
        pythons.append(str(script))
    times = compilers.run_compilers(pythons, rounds=2)
    assert times["leapfrog"][pythons[0]].tolist() == [0.5, 0.5]
    compiling = ["a step", "a leapfrog", "b step", "b leapfrog"]
    assert log.read_text().splitlines() == compiling + 3 * ["a step", "b step", "a leapfrog", "b leapfrog"]
    _, table = compilers.tables(times)
    assert list(table.columns[2].cells) == ["1.000", "0.500"]


def test_a_worker_that_ends_is_an_error():
    from benchmarks.worker import Worker

    with Worker(["true"]) as worker, pytest.raises(RuntimeError, match="ended while running step"):
        worker.seconds("step")


def test_other_libraries_take_turns_with_posteriax(tmp_path, monkeypatch):
    from benchmarks import other_libraries

    script = tmp_path / "python"
    script.write_text("#!/bin/sh\nwhile read case; do echo 0.25; done\n")
    script.chmod(0o755)
    monkeypatch.setattr(other_libraries, "make_environment", lambda folder, packages: str(script))
    bench = SimpleNamespace(cases=lambda: {"ours": lambda: 0.5})
    monkeypatch.setattr(other_libraries, "RACES", {"step": (bench, ("theirs",))})
    times = other_libraries.race_times("step", rounds=2)
    assert {name: list(values) for name, values in times.items()} == {"ours": [0.5, 0.5], "theirs": [0.25, 0.25]}


def test_without_a_name_the_benchmarks_are_listed_and_every_one_has_a_report(capsys):
    from benchmarks.__main__ import BENCHMARKS, main

    main([])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(BENCHMARKS)
    assert "leapfrog" in BENCHMARKS
    for name in BENCHMARKS:
        assert callable(import_module(f"benchmarks.{name}").report)


def test_a_benchmark_gets_its_options_and_its_tables_are_printed(monkeypatch, capsys):
    from benchmarks import compilers
    from benchmarks.__main__ import environment, main

    monkeypatch.setattr(environment, "use_all_cores", lambda: None)  # this process's backend has started
    monkeypatch.setattr(environment, "use_compilation_cache", lambda: None)
    monkeypatch.setattr(compilers, "report", lambda **options: [str(options)])
    main(["compilers", "--python", "a", "--python", "b", "--rounds", "2"])
    assert "{'rounds': 2, 'interpreters': ['a', 'b'], 'cpu_time': False}" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["step", "--rounds", "0"])
    assert "must be at least 1, got 0" in capsys.readouterr().err


def test_stored_comparisons_become_tables_beside_published_ones(tmp_path):
    from benchmarks import tables

    runs = list(tables.runs_of(["airfoil", "uci/yacht"], [0, 1], [3], None, ()))
    assert [(run.set, run.split, run.seed, run.budget) for run in runs] == [
        ("airfoil", 0, 0, "5m"),
        ("airfoil", 0, 1, "5m"),
        ("uci/yacht", 3, 0, "60s"),
    ]
    for run, nll in zip(runs, (-0.8, -1.0, 0.2), strict=True):
        row = {"nll": [nll, 0.1], "rmse": [0.15, 0.01], "coverage_90": [0.9, 0.02]}
        found = {"run": vars(run), "seconds": 290.0, "rhat": 1.2, "rows": {"reference": row}}
        tables._store(run.path(tmp_path), lambda found=found: found)
    tables._store(runs[0].path(tmp_path), lambda: pytest.fail("what is stored is not run again"))
    made = tables.report([], [], [], None, "", estimators=False, stored=True, out=tmp_path)
    text = "\n".join(map(markdown, made))
    assert "**airfoil, --budget 5m: 2 seeds, 290 s each; R-hat of the reference 1.20 (median)**" in text
    ours = "| reference | -0.900 ± 0.100 | 0.150 ± 0.000 | 0.900 ± 0.000 | 2 |"
    bde = "| bde, published | -0.913 | 0.1215 |"
    assert text.index("TabPFN v2") < text.index(bde) < text.index(ours) < text.index("| CatBoost, published |")
