"""Runs all checks in a separate process, since a wrong compiler may crash it; one line of JSON for each.

Importing posteriax sets its guard before JAX's backend starts, unless the environment says otherwise.
"""

import json

import jax
import numpy as np

from posteriax.cli.doctor import checks
from posteriax.cli.doctor.checks import Check, excess

CHECKS = (*checks.REDUCTION_CHECKS, *checks.CONVOLUTION_CHECKS, checks.LAST)
REPEATS = 3  # with different inputs: errors may vary from run to run


def largest_excess(check: Check, repeats: int = REPEATS) -> float:
    """The largest error of a check's program over its bound."""
    program = jax.jit(check.program)
    rng = np.random.default_rng(0)
    inputs = [check.inputs(rng) for _ in range(repeats)]
    return max(excess(program(*arrays), check.truth(*arrays)) for arrays in inputs)


def main() -> None:
    jax.config.update("jax_enable_compilation_cache", False)  # examine what this installation compiles
    with jax.default_matmul_precision("float32"):  # accelerators use fewer bits by default
        for check in CHECKS:
            print(json.dumps({"starts": check.name}), flush=True)
            print(json.dumps({"name": check.name, "excess": largest_excess(check)}), flush=True)


if __name__ == "__main__":
    main()
