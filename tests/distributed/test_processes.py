"""Real processes, with collectives over loopback: they give the results of one process, and fail together."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import several_processes

import posteriax as px

TESTS = Path(__file__).parents[1]


def launch(*arguments, processes=2, options=("--no-pin",)):
    """`posteriax launch` of the runs in several_processes.py, in at most twenty minutes on a busy machine."""
    paths = os.pathsep.join([str(TESTS.parent), str(TESTS), os.environ.get("PYTHONPATH", "")])
    script = [sys.executable, str(TESTS / "several_processes.py"), *map(str, arguments)]
    return subprocess.run(
        [sys.executable, "-m", "posteriax", "launch", "--processes", str(processes), *options, "--", *script],
        env={**os.environ, "PYTHONPATH": paths, "JAX_NUM_CPU_DEVICES": "1", "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=1200,
    )


def draws_of(posterior):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(posterior.sample(0, 4))]


def stored(path):
    with np.load(path) as file:
        return [file[name] for name in file.files]


def assert_same_bits(one, two):
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)


def assert_close(one, two):
    """By the rounding of sums, 1e-6 of their size, and what a few short steps make of it (see several_processes.py)."""
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(a, b, rtol=3e-5, atol=3e-5)


@pytest.fixture(scope="module")
def of_two(tmp_path_factory):
    """Runs by two processes: the folder of their results, and what they printed."""
    folder = tmp_path_factory.mktemp("runs")
    ended = launch("runs", folder, "chains", "data")
    assert ended.returncode == 0, ended.stderr[-3000:]
    return folder, ended.stdout


def test_chains_of_two_processes_are_the_bits_of_one_process(of_two):
    draws = stored(of_two[0] / "chains-2.npz")
    for mesh in (px.distributed.mesh(), None):  # one device; all devices of this process
        assert_same_bits(draws_of(several_processes.run("chains", of_two[0], mesh=mesh)), draws)


def test_data_split_over_two_processes_change_a_chain_by_rounding(of_two):
    alone = several_processes.run("data", of_two[0])
    assert_close(draws_of(alone), stored(of_two[0] / "data-2.npz"))


def test_a_call_that_one_process_cannot_make_is_refused_in_all(of_two):
    words = {
        "key": "ProcessError: the processes disagree: key is",
        "data": "ProcessError: the processes disagree: data is",
        "labels": "y has labels",
        "members": "does not divide the 3 members",
        "one process": "the mesh has no device of process 1",
        "batch": "over 2 devices, but a batch has 1 examples",
    }
    lines = of_two[1].splitlines()
    for name, expected in words.items():
        for process in (0, 1):
            said = [line for line in lines if line.startswith(f"[{process}] refused {name}:")]
            assert len(said) == 1 and expected in said[0], (name, process, said)


@pytest.mark.slow
def test_two_processes_feed_their_own_parts_of_memory_maps_and_loaders(tmp_path):
    names = set(several_processes.RUNS) - {"chains", "data"}
    ended = launch("runs", tmp_path, *names)
    assert ended.returncode == 0, ended.stderr[-3000:]
    for name in names:
        assert_close(draws_of(several_processes.run(name, tmp_path)), stored(tmp_path / f"{name}-2.npz"))


@pytest.mark.slow
def test_a_run_predicts_is_taken_over_and_pre_empted_in_two_processes(tmp_path):
    (tmp_path / "from one").mkdir()
    with several_processes.preempted():
        several_processes.run_with_checkpoint(tmp_path / "from one")
    ended = launch("interrupted", tmp_path)
    assert ended.returncode == 0, ended.stderr[-3000:]
    predicted = several_processes.run("VI", tmp_path).predict(several_processes.X[:31], draws=5).per_draw()
    for split in ("members", "data"):
        assert_close([predicted], stored(tmp_path / f"predicted by {split}.npz"))
    of_two = stored(tmp_path / "VI-2.npz")
    assert_close(stored(tmp_path / "from one-2.npz"), of_two)
    for process in (0, 1):  # SIGTERM to one takes both to a checkpoint, from which they resume
        assert f"\n[{process}] interrupted: VI was stopped at step 3 of 20" in ended.stdout
    assert_same_bits(stored(tmp_path / "preempted-2.npz"), of_two)


def assert_stopped(ended, process):
    assert ended.returncode == 128 + 9, ended.stderr[-3000:]
    assert f"posteriax launch: process {process} was ended by SIGKILL; process {1 - process} will end" in ended.stderr
    assert "done" not in ended.stdout


@pytest.mark.slow
def test_when_a_process_is_killed_the_other_names_it_and_one_process_can_resume(of_two, tmp_path):
    """In a collective, where the other notices at once."""
    whole, _ = of_two
    ended = launch("killed", tmp_path, "data", 1, "in a collective")
    assert_stopped(ended, 1)
    assert "ProcessError: process 0 has lost process 1, which died or cannot be reached" in ended.stderr
    posterior = several_processes.run_with_checkpoint(tmp_path, "data")
    assert_close(draws_of(posterior), stored(whole / "data-2.npz"))
    assert any("resumed on another layout" in note for note in posterior.trace.notes)


@pytest.mark.slow
@pytest.mark.parametrize("moment", several_processes.MOMENTS)
@pytest.mark.parametrize("name", ["chains", "data"])
def test_killed_at_any_moment_two_processes_resume_to_the_same_bits(of_two, name, moment, tmp_path):
    whole, _ = of_two
    saving = moment in ("between shard and state", "writing the state")  # which only process 0 does
    assert_stopped(launch("killed", tmp_path, name, int(not saving), moment), int(not saving))
    ended = launch("resumed", tmp_path, name)
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert_same_bits(stored(tmp_path / "resumed-2.npz"), stored(whole / f"{name}-2.npz"))
    if name == "chains":  # one process can also take over a run of two
        (tmp_path / "again").mkdir()
        assert_stopped(launch("killed", tmp_path / "again", name, int(not saving), moment), int(not saving))
        posterior = several_processes.run_with_checkpoint(tmp_path / "again", name)
        assert_same_bits(draws_of(posterior), stored(whole / "chains-2.npz"))
