"""How tests compile: fast, into slower programs. To be imported before JAX, in every process that runs for a test."""

import os
from pathlib import Path

# There is a worker for every core: threads of linear algebra would only wait for each other, and spin while they do.
# Workers inherit this, and NumPy reads it when it is imported.
os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import jaxlib.version

# tests compile thousands of small programs and run each for a moment. Leaving out LLVM's optimisations and taking the
# older of XLA's two code generators, neither of which changes a program's meaning, each save a third of the time or
# more; not splitting each program to compile its parts in parallel saves a tenth. These flags may be gone from the next
# JAX, and a flag that XLA does not know ends the process.
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "")
    + " --xla_backend_optimization_level=0"
    + (
        " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
        if jaxlib.version.__version_info__ < (0, 11)
        else ""
    )
)

import jax

from posteriax._internal import cpu_tuning
from posteriax.run.program import Program

# two devices on any machine, so that members are really placed on several
jax.config.update("jax_num_cpu_devices", 2)

# tests compile the same small programs again and again: share them between tests, workers and runs
jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parents[1] / ".pytest_cache" / "jax"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)

# Optimising a step takes about as long as it saves in this many steps of a tiny network, or in steps that use this many
# weights in all. A step of a sampler of the whole data set is some 20 gradients.
MANY_STEPS, MANY_WEIGHTS = 30_000, 1_000_000
_make_program = Program.__init__


def _optimise_long_runs(self, members, *args, **settings):
    kernel = members.kernel
    steps = kernel.task.steps * (20 if kernel.method.full_batch else 1)
    weights = steps * sum(leaf.size for leaf in jax.tree.leaves(kernel.problem.latents))
    # a sampler's run may end early or be continued, to the same bits: its length must not decide
    worth_it = kernel.method.samples or steps >= MANY_STEPS or weights >= MANY_WEIGHTS
    cpu_tuning.OPTIMISED["xla_backend_optimization_level"] = int(worth_it)
    _make_program(self, members, *args, **settings)


Program.__init__ = _optimise_long_runs
