import os
from pathlib import Path

import jaxlib.version

# tests compile thousands of small programs and run each for a moment. Leaving out LLVM's optimisations and taking the
# older of XLA's two code generators, neither of which changes a program's meaning, each save a third of the time or
# more. The older one may be gone from the next JAX, and a flag that XLA does not know ends the process.
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "")
    + " --xla_backend_optimization_level=0"
    + (" --xla_cpu_use_fusion_emitters=false" if jaxlib.version.__version_info__ < (0, 11) else "")
)

import jax
import pytest

from posteriax._internal import cpu_tuning

# but for the steps of runs, of which tests take thousands
cpu_tuning.OPTIMISED["xla_backend_optimization_level"] = 1

# two devices on any machine, so that members are really placed on several
jax.config.update("jax_num_cpu_devices", 2)

# tests compile the same small programs again and again: share them between tests, workers and runs
jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parents[1] / ".pytest_cache" / "jax"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


@pytest.fixture(scope="session")
def moons():
    import posteriax as px

    return px.data.two_moons(train=60, test=40)
