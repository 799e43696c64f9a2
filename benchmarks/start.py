"""How long a new process takes to import posteriax and to take the README's first training step.

Every case is a process of its own, timed from start to end, with compilation. The compilation cache is the one that the
command line uses by default.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial

from rich.table import Table

from benchmarks.timing import interleave, ratio_table, timed

PEERS = "import jax, equinox, optax, numpyro"
FIRST_STEP = """
import equinox as eqx, jax
import posteriax as px
from posteriax import families as q, priors as p

(x, y), (x_test, y_test) = px.data.two_moons()
net = eqx.nn.MLP(2, 2, width_size=16, depth=2, key=jax.random.key(0))
problem = px.Problem(net, px.Categorical(), prior=p.Normal(scale=0.3))
px.fit(problem, (x, y), px.VI(q.KTied(k=2)), steps=1, key=0)
"""


def report(rounds: int) -> list[Table]:
    with tempfile.TemporaryDirectory() as cache:
        cases: dict[str, Callable[[], float]] = {
            PEERS: partial(seconds_of_process, PEERS),
            "import posteriax": partial(seconds_of_process, "import posteriax"),
            "the README's first training step": partial(seconds_of_process, FIRST_STEP),
            "the same, compiled before": partial(seconds_of_process, FIRST_STEP, cache),
        }
        times = interleave(cases, rounds)
    return [ratio_table(times, PEERS, unit="s", title="From the start of a process to its end")]


def seconds_of_process(code: str, cache: str | None = None, environment: Mapping[str, str] = os.environ) -> float:
    """Seconds from the start of a new Python process that runs `code` to its end."""
    variables = {key: value for key, value in environment.items() if not key.startswith("JAX_COMPILATION_CACHE")}
    if cache is not None:
        variables |= {"JAX_COMPILATION_CACHE_DIR": cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    command = [sys.executable, "-c", code]
    return timed(lambda: subprocess.run(command, env=variables, check=True, capture_output=True))[1]
