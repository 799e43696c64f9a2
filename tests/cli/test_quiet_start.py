"""The command line sets XLA's log level before JAX is imported; a user's own program is left alone."""

import os
import subprocess
import sys

import pytest

COMMAND = "import sys; sys.argv = ['posteriax', '--version']; from posteriax.cli import main; main()"
MODULE = "import runpy, sys; sys.argv = ['posteriax', '--version']; runpy.run_module('posteriax', run_name='__main__')"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "silenced"), [(COMMAND, True), (MODULE, True), ("import posteriax; posteriax.fit", False)]
)
def test_only_the_command_line_silences_the_compiler(program, silenced):
    show = "import atexit, os; atexit.register(lambda: print(os.environ.get('TF_CPP_MIN_LOG_LEVEL')))\n"
    unset = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    command = [sys.executable, "-c", show + program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=unset)
    assert (done.stdout.splitlines()[-1] == "3") is silenced, done.stderr  # JAX itself may set another level
