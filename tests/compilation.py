"""How tests compile. To be imported before JAX, in every process that runs for a test.

By default fast, into slower programs: tests compile thousands of small programs and run each for a moment. With
``POSTERIAX_TESTS=as-shipped`` in the environment they compile what users run; `make test` does that for the tests with
the marker `as_shipped`, which have a case of every method, family and estimator.
"""

import os

# There is a worker for every core: threads of linear algebra would only wait for each other, and spin while they do.
# Workers inherit this, and NumPy reads it when it is imported.
os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

AS_SHIPPED = os.environ.get("POSTERIAX_TESTS") == "as-shipped"
if not AS_SHIPPED:
    import jaxlib.version

    # neither LLVM's optimisations nor the newer of XLA's code generators changes a program's meaning, and leaving out
    # each saves a third of the time or more; not compiling parts of a program in parallel saves a tenth
    flags = ["--xla_backend_optimization_level=0"]
    if jaxlib.version.__version_info__ < (0, 11):  # a flag that XLA does not know ends the process
        flags += ["--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1"]
    os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *flags])
    os.environ["POSTERIAX_WITHOUT"] = "llvm-levels"  # the package's own levels, which would come before these

import jax  # noqa: E402  after what it reads

if not AS_SHIPPED:
    # each operation keeps the line of the network that it comes from, but not a hundred frames of tests: a tenth
    jax.config.update("jax_traceback_in_locations_limit", 0)

# two devices on any machine, so that members are really placed on several
jax.config.update("jax_num_cpu_devices", int(os.environ.get("POSTERIAX_TESTS_DEVICES", "2")))
