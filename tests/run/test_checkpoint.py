"""Long runs survive: killed at any moment, resumed to the same bytes; and every bad folder is a clear error."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading

import equinox as eqx
import jax
import killed_run
import numpy as np
import optax
import pytest

import posteriax as px
from posteriax import families as q
from posteriax import priors as p
from posteriax._internal.tensor_file import write_tensors
from posteriax.methods import Method
from posteriax.run import checkpoint, loop
from posteriax.run.checkpoint import open_checkpoint


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name if name == "MAP" else pytest.param(name, marks=pytest.mark.slow) for name in killed_run.METHODS]
)
def test_killed_at_five_moments_a_run_ends_in_the_same_bytes(name, tmp_path):
    moments = (*killed_run.MOMENTS, "never", "plain")
    command = [sys.executable, killed_run.__file__, name, tmp_path, *moments]
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=600, check=True)
    assert json.loads(done.stdout) == [signal.SIGKILL] * len(killed_run.MOMENTS) + [0, 0]
    assert (tmp_path / "resumed").read_bytes() == (tmp_path / "plain").read_bytes()
    assert not list((tmp_path / "run").glob(".*"))  # nothing written aside is left


@pytest.mark.parametrize(
    "name", [*killed_run.DAILY, *(pytest.param(name, marks=pytest.mark.slow) for name in killed_run.LESS_OFTEN)]
)
def test_every_method_resumes_to_the_same_bytes(name, tmp_path, monkeypatch):
    """From the folder as a kill between a shard and the state that names it leaves it."""
    monkeypatch.setattr(loop, "SECONDS_PER_CHUNK", 0.002)
    states = 0

    def copying_write(path, about, arrays):
        nonlocal states
        states += path.name == "state.tensors"
        if path.name == "state.tensors" and states == 2:
            shutil.copytree(path.parent, tmp_path / "killed")  # and the run goes on to its end
        return write_tensors(path, about, arrays)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_tensors", copying_write)
        killed_run.fit(name, tmp_path / "run").save(tmp_path / "uninterrupted")
    assert len(list((tmp_path / "killed").glob("steps-*"))) == 2  # of which the state names one
    killed_run.fit(name, tmp_path / "killed").save(tmp_path / "resumed")
    assert (tmp_path / "resumed").read_bytes() == (tmp_path / "uninterrupted").read_bytes()


def test_every_method_is_killed():
    names = (getattr(px, name) for name in px.__all__)
    public = {value for value in names if isinstance(value, type) and issubclass(value, Method)} - {Method}
    killed = [method for method, _ in killed_run.METHODS.values()]
    assert public == {type(how.method if isinstance(how, px.Ensemble) else how) for how in killed}
    assert any(isinstance(how, px.Ensemble) for how in killed)


@pytest.fixture(scope="module")
def net():
    return eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0))


def small(net, moons, folder, *, method=None, steps=20, key=0, prior=None, **more):
    problem = px.Problem(net, px.Categorical(), prior or p.Normal(1.0))
    return px.fit(problem, moons[0], method or px.MAP(), steps=steps, key=key, checkpoint=folder, **more)


@pytest.fixture(scope="module")
def finished(net, moons, tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "run"
    return folder, small(net, moons, folder)


def test_a_finished_run_is_read_back(net, moons, finished):
    folder, first = finished
    before = {f: f.stat().st_mtime_ns for f in folder.iterdir() if f.name != "lock"}
    again = small(net, moons, folder)
    for a, b in zip(jax.tree.leaves(first.draws), jax.tree.leaves(again.draws), strict=True):
        np.testing.assert_array_equal(a, b)
    assert {f: f.stat().st_mtime_ns for f in folder.iterdir() if f.name != "lock"} == before


OTHERS = {
    "steps": ({"steps": 30}, "steps was 20, is now 30"),
    "key": ({"key": 1}, "key was"),
    "prior": ({"prior": p.Normal(0.5)}, "prior was.*is"),
    "optimiser": ({"method": px.MAP(optax.adam(1e-2))}, "a step computes something else"),
    "method": ({"method": px.VI(q.Normal())}, "method was MAP, is now VI"),
    "batch size": ({"batch_size": 7}, "batch size was 60, is now 7"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_checkpoint_of_other_settings_is_refused(net, moons, finished, name):
    change, message = OTHERS[name]
    with pytest.raises(px.run.CheckpointError, match=f"holds another run: .*{message}"):
        small(net, moons, finished[0], **change)


def test_other_data_and_another_network_are_refused(net, moons, finished):
    (x, y), test = moons
    with pytest.raises(px.run.CheckpointError, match="data was"):
        small(net, ((x + 1, y), test), finished[0])
    with pytest.raises(px.run.CheckpointError, match="network was"):
        small(eqx.nn.MLP(2, 2, 9, 1, key=jax.random.key(0)), moons, finished[0])


@pytest.mark.slow
def test_damage_anywhere_is_the_one_error_or_the_same_result(net, moons, tmp_path):
    small(net, moons, tmp_path)
    files = sorted(tmp_path.glob("*.tensors"))
    assert len(files) == 2
    truth = small(net, moons, tmp_path)
    rng = np.random.default_rng(0)
    for file in files:
        good = file.read_bytes()
        for trial in range(6):
            at = int(rng.integers(len(good)))
            bad = bytearray(good)
            if trial % 3 == 0:
                bad[at] ^= 1 << int(rng.integers(8))
            elif trial % 3 == 1:
                del bad[at:]
            else:
                bad[at:at] = b"posteriax"
            file.write_bytes(bad)
            try:
                result = small(net, moons, tmp_path)
            except px.run.CheckpointError:
                continue
            np.testing.assert_array_equal(jax.tree.leaves(result.draws)[0], jax.tree.leaves(truth.draws)[0])
        file.write_bytes(good)
    files[1].rename(tmp_path / "elsewhere")
    with pytest.raises(px.run.CheckpointError, match="is missing"):
        small(net, moons, tmp_path)


def test_two_runs_on_one_folder_are_refused(net, moons, tmp_path):
    with open_checkpoint(tmp_path, {}), pytest.raises(px.run.CheckpointError, match="another run is writing to"):
        small(net, moons, tmp_path)


def test_a_folder_that_cannot_be_made_is_refused_before_any_compute(net, moons, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(px.run.CheckpointError, match=r"cannot write the checkpoint to .*Not a directory"):
        small(net, moons, tmp_path / "file" / "run")


def can_mount() -> bool:
    return (
        os.geteuid() == 0 and subprocess.run(["mount", "--version"], capture_output=True, check=False).returncode == 0
    )


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of 64 kB."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(path)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("cannot mount a small file system here")
    yield path
    subprocess.run(["umount", str(path)], check=True)


@pytest.mark.slow
@pytest.mark.skipif(not can_mount(), reason="needs root to mount a small file system")
def test_a_full_disk_and_a_read_only_folder_are_clear_errors(net, moons, tiny_disk):
    posterior = small(net, moons, tiny_disk / "run")
    (tiny_disk / "filler").write_bytes(b"0" * 40_000)
    with pytest.raises(px.run.CheckpointError, match="No space left on device"):
        small(net, moons, tiny_disk / "other", steps=3000)
    with pytest.raises(OSError, match="No space left"):
        big = px.Problem(eqx.nn.MLP(2, 2, 200, 2, key=jax.random.key(0)), px.Categorical())
        px.fit(big, moons[0], px.MAP(), steps=1, key=0).save(tiny_disk / "big.posterior")
    assert not list(tiny_disk.glob(".big*"))
    again = small(net, moons, tiny_disk / "run")  # the run that was there before is whole
    np.testing.assert_array_equal(jax.tree.leaves(again.draws)[0], jax.tree.leaves(posterior.draws)[0])
    subprocess.run(["mount", "-o", "remount,ro", str(tiny_disk)], check=True)
    with pytest.raises(px.run.CheckpointError, match="Read-only file system"):
        small(net, moons, tiny_disk / "new")


@pytest.fixture
def interrupted(monkeypatch):
    """Ctrl-C, some milliseconds after the third chunk of every run has begun."""
    take_chunk, chunks = loop._take_chunk, []

    def press():
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # which would end the tests
            os.kill(os.getpid(), signal.SIGINT)

    def counted(program, supply, keys, run, last):
        chunks.append(run)
        if sum(one is run for one in chunks) == 3:
            threading.Timer(0.005, press).start()
        take_chunk(program, supply, keys, run, last)

    monkeypatch.setattr(loop, "_take_chunk", counted)


def test_ctrl_c_keeps_what_was_done_and_says_how_to_resume(net, moons, tmp_path, interrupted):
    steps, before = 3_000_000, signal.getsignal(signal.SIGINT)
    with pytest.raises(
        px.run.Interrupted, match=rf"MAP was stopped at step \d+ of {steps}: the same call resumes it"
    ) as stop:
        small(net, moons, tmp_path, steps=steps)
    done = int(re.search(r"step (\d+)", str(stop.value)).group(1))
    assert len(stop.value.posterior.trace["log_joint"]) == done > 0
    assert stop.value.posterior.predict(moons[1][0]).probs.shape == (40, 2)
    with pytest.raises(px.run.Interrupted) as stop:
        small(net, moons, tmp_path, steps=steps)
    assert len(stop.value.posterior.trace["log_joint"]) > done  # it went on from there
    assert signal.getsignal(signal.SIGINT) is before
