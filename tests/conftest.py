import os
from pathlib import Path

# tests compile thousands of small programs and run each for a moment: without LLVM's optimisations, which change no
# program's meaning, the suite takes half as long
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0"

import jax
import pytest

from posteriax import program

# but for the steps of runs, of which tests take thousands
program.CHUNK_OPTIONS["xla_backend_optimization_level"] = 1

# two devices on any machine, so that members are really placed on several
jax.config.update("jax_num_cpu_devices", 2)

# tests compile the same small programs again and again: share them between tests, workers and runs
jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parents[1] / ".pytest_cache" / "jax"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


@pytest.fixture(scope="session")
def moons():
    import posteriax as px

    return px.data.two_moons(train=60, test=40)
