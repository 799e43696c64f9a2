"""The launcher: environment, output, exit codes and signals, with processes that do not import JAX."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from posteriax import distributed

BOUND = "POSTERIAX_COORDINATOR POSTERIAX_PROCESSES POSTERIAX_PROCESS"


def launch(code, **options):
    return distributed.launch([sys.executable, "-c", code], 2, **options)


def test_every_process_is_told_who_it_is_and_its_lines_are_marked(capfd):
    code = f"import os; print(*(os.environ[name] for name in '{BOUND}'.split()))"
    assert launch(code) == 0
    lines = sorted(capfd.readouterr().out.splitlines())
    address = lines[0].split()[1]
    assert address.startswith("127.0.0.1:")
    assert lines == [f"[0] {address} 2 0", f"[1] {address} 2 1"]


def test_cores_are_shared_out(capfd):
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("needs two cores")
    assert launch("import os, time; time.sleep(0.2); print(*sorted(os.sched_getaffinity(0)))") == 0
    half = len(cores) // 2
    shares = [" ".join(map(str, part)) for part in (cores[:half], cores[half:])]
    assert sorted(capfd.readouterr().out.splitlines()) == [f"[{i}] {share}" for i, share in enumerate(shares)]


def test_a_failure_is_named_and_the_others_are_stopped(capfd, monkeypatch):
    from posteriax.distributed import launcher

    monkeypatch.setattr(launcher, "SECONDS_AFTER_FAILURE", 0.5)
    fails = "import os, sys, time; sys.exit(3) if os.environ['POSTERIAX_PROCESS'] == '1' else time.sleep(600)"
    assert launch(fails) == 3
    assert (
        "posteriax launch: process 1 failed with exit code 3; process 0 will end within 0.5 s" in capfd.readouterr().err
    )


def test_signals_are_passed_on_and_the_code_is_that_of_a_shell(tmp_path):
    waits = f"import os, pathlib, time; pathlib.Path({str(tmp_path)!r}, str(os.getpid())).touch(); time.sleep(600)"
    starts = (
        f"from posteriax import distributed as d; import sys; sys.exit(d.launch({[sys.executable, '-c', waits]}, 2))"
    )
    process = subprocess.Popen([sys.executable, "-c", starts], stderr=subprocess.PIPE, text=True)
    try:
        end = time.monotonic() + 120
        while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < end:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 128 + signal.SIGTERM
    finally:
        process.kill()
    for child in tmp_path.iterdir():
        with pytest.raises(ProcessLookupError):
            os.kill(int(child.name), 0)


def test_a_port_in_use_is_an_error_before_anything_starts():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(OSError, match=f"port {port} of 127.0.0.1 is in use: choose another"):
            launch("", port=port)
        with pytest.raises(OSError, match=f"port {port} of 127.0.0.1 is in use"):
            distributed.initialize(f"127.0.0.1:{port}", processes=2, process=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"coordinator": "127.0.0.1:1234"}, "give coordinator, processes and process, or none of them"),
        ({"coordinator": "127.0.0.1", "processes": 2, "process": 0}, 'coordinator must be "host:port"'),
        (
            {"coordinator": "127.0.0.1:1", "processes": 2, "process": 2},
            "process must be 0 to 1 with processes=2, got 2",
        ),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        distributed.initialize(**arguments)
