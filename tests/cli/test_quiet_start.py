"""`python -m posteriax` is as quiet as `posteriax`: XLA's log level is set before JAX is imported."""

import os
import subprocess
import sys

SHOW_LEVEL = (
    "import os, sys; sys.argv[0] = sys.argv[1]; import posteriax; print(os.environ.get('TF_CPP_MIN_LOG_LEVEL'))"
)


def level(program):
    own = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    command = [sys.executable, "-c", SHOW_LEVEL, program]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True, env=own).stdout.strip()


def test_the_command_line_silences_the_compiler_and_a_users_program_does_not():
    assert level("-m") == "3"  # what Python itself sets while it looks for the package
    assert level("train.py") != "3"
