"""Real processes, with collectives over loopback: they give the results of one process, and fail together."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import several_processes

TESTS = Path(__file__).parents[1]
QUICK = ("chains", "data", "VI")


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


def assert_close(one, two):
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.fixture(scope="module")
def toured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tour")
    (folder / "from one").mkdir()
    with several_processes.preempted():
        several_processes.run_with_checkpoint(folder / "from one")
    ended = launch("tour", folder, *QUICK)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return folder, ended


@pytest.fixture(scope="module")
def alone(toured):
    return several_processes.runs(toured[0], *QUICK)


@pytest.mark.parametrize("name", QUICK)
def test_two_processes_give_the_result_of_one(toured, alone, name):
    assert_close(draws_of(alone[name]), stored(toured[0] / f"{name}-2.npz"))


def test_two_processes_predict_what_one_predicts(toured, alone):
    predicted = alone["VI"].predict(several_processes.X[:31], draws=5).per_draw()
    for split in ("members", "data"):
        assert_close([predicted], stored(toured[0] / f"predicted by {split}.npz"))


@pytest.mark.slow
def test_two_processes_feed_their_own_parts_of_memory_maps_and_loaders(tmp_path):
    names = set(several_processes.RUNS) - set(QUICK)
    ended = launch("runs", tmp_path, *names)
    assert ended.returncode == 0, ended.stderr[-3000:]
    for name in names:
        assert_close(draws_of(several_processes.run(name, tmp_path)), stored(tmp_path / f"{name}-2.npz"))


def test_a_call_that_one_process_cannot_make_is_refused_in_all(toured):
    _, ended = toured
    words = {
        "key": "ProcessError: the processes disagree: key is",
        "data": "ProcessError: the processes disagree: data is",
        "labels": "y has labels",
        "members": "does not divide the 3 members",
        "one process": "the mesh has no device of process 1",
        "batch": "over 2 devices, but a batch has 1 examples",
    }
    lines = ended.stdout.splitlines()
    for name, expected in words.items():
        for process in (0, 1):
            said = [line for line in lines if line.startswith(f"[{process}] refused {name}:")]
            assert len(said) == 1 and expected in said[0], (name, process, said)


def test_a_process_that_gets_sigterm_takes_all_to_a_checkpoint_from_which_they_resume(toured):
    folder, ended = toured
    for process in (0, 1):
        assert f"\n[{process}] interrupted: VI was stopped at step 3 of 20" in ended.stdout
    for mine, theirs in zip(stored(folder / "preempted-2.npz"), stored(folder / "VI-2.npz"), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_checkpoint_of_one_process_is_resumed_by_two(toured):
    folder, _ = toured
    assert_close(stored(folder / "from one-2.npz"), stored(folder / "VI-2.npz"))


def assert_stopped(ended, process):
    assert ended.returncode == 128 + 9, ended.stderr[-3000:]
    assert f"posteriax launch: process {process} was ended by SIGKILL; process {1 - process} will end" in ended.stderr
    assert "done" not in ended.stdout


def test_when_a_process_is_killed_the_other_names_it_and_one_process_can_resume(toured, tmp_path):
    """In a collective, where the other notices at once."""
    whole, _ = toured
    ended = launch("killed", tmp_path, "data", 1, "in a collective")
    assert_stopped(ended, 1)
    assert "ProcessError: process 0 has lost process 1, which died or cannot be reached" in ended.stderr
    posterior = several_processes.run_with_checkpoint(tmp_path, "data")
    assert_close(draws_of(posterior), stored(whole / "data-2.npz"))
    assert any("resumed on another layout" in note for note in posterior.trace.notes)


@pytest.mark.slow
@pytest.mark.parametrize("moment", several_processes.MOMENTS)
@pytest.mark.parametrize("name", ["chains", "data"])
def test_killed_at_any_moment_two_processes_resume_to_the_same_bits(toured, name, moment, tmp_path):
    whole, _ = toured
    saving = moment in ("between shard and state", "writing the state")  # which only process 0 does
    assert_stopped(launch("killed", tmp_path, name, int(not saving), moment), int(not saving))
    ended = launch("resumed", tmp_path, name)
    assert ended.returncode == 0, ended.stderr[-3000:]
    for mine, theirs in zip(stored(tmp_path / "resumed-2.npz"), stored(whole / f"{name}-2.npz"), strict=True):
        np.testing.assert_array_equal(mine, theirs)
