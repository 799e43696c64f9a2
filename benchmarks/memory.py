"""Peak memory of predictions and of long runs of HMC, each in a process of its own.

What a call adds is the process's peak resident memory after the call minus that before it, which includes what the call
returns.
"""

import json
import resource
import subprocess
import sys
from typing import Any

import equinox as eqx
import jax
import numpy as np
from rich.table import Table

import posteriax as px
from benchmarks.timing import make_table
from posteriax.posterior.draws import DrawsPosterior
from posteriax.posterior.posterior import Posterior
from posteriax.posterior.trace import Trace
from posteriax.problem import Latents

EXAMPLES, DRAWS = 10_000, 1000
CASES = {
    "predict": "predict(x, draws=1000)",
    "predict fewer": "predict(x, draws=100)",
    "reduce": "predict(x, draws=1000, reduce=True)",
    "reduce fewer": "predict(x, draws=100, reduce=True)",
    "hmc": "px.fit(..., px.HMC(), draws=500)",
    "hmc fewer": "px.fit(..., px.HMC(), draws=50)",
}


def report(rounds: int) -> list[Table]:
    """For every case: megabytes returned by the call, added by it beyond that, and in use before it. Measured once."""
    title = f"{EXAMPLES:,} inputs of 784 numbers, a network of 26,506 weights (HMC: 500 inputs)"
    table = make_table(title, ("returned, MB", "added beyond that, MB", "before the call, MB"))
    for name, call in CASES.items():
        measured = _in_a_process(name)
        table.add_row(call, *(f"{measured[key]:.0f}" for key in ("returned", "beyond", "before")))
    return [table]


def _in_a_process(name: str) -> dict[str, float]:
    done = subprocess.run([sys.executable, "-m", __name__, name], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def _measure(name: str) -> dict[str, float]:
    net = eqx.nn.MLP(784, 10, 32, 2, key=jax.random.key(0))
    problem = px.Problem(net, px.Categorical())
    rng = np.random.default_rng(0)
    kind, fewer = name.split()[0], name.endswith("fewer")
    if kind == "hmc":
        x, y = rng.normal(size=(500, 784)).astype(np.float32), rng.integers(0, 10, 500)
        method = px.HMC(step_size=1e-3, trajectory=5e-3, warmup=2)  # short: memory does not depend on its length
        before = _peak()
        fitted = px.fit(problem, (x, y), method, draws=50 if fewer else 500, key=0)
        assert isinstance(fitted, DrawsPosterior)
        returned = sum(leaf.nbytes for leaf in jax.tree.leaves(fitted.draws))
    else:
        x = rng.normal(size=(EXAMPLES, 784)).astype(np.float32)
        draws = 100 if fewer else DRAWS
        posterior: Posterior = _drawn(problem, draws, rng)
        before = _peak()
        predictive: Any = posterior.predict(x, reduce=kind == "reduce")
        returned = predictive.outputs.nbytes if kind == "predict" else predictive.probs.nbytes
    added = _peak() - before
    return {"before": before, "returned": returned / 1e6, "beyond": added - returned / 1e6}


def _drawn(problem: px.Problem, draws: int, rng: np.random.Generator) -> DrawsPosterior:
    params = jax.tree.map(
        lambda leaf: rng.normal(size=(1, draws, *leaf.shape)).astype(np.float32), problem.network.params
    )
    return DrawsPosterior(problem, Trace({}), Latents(params, {}))


def _peak() -> float:
    """Megabytes."""
    kilo = 1024 if sys.platform != "darwin" else 1
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * kilo / 1e6


if __name__ == "__main__":
    print(json.dumps(_measure(sys.argv[1])))
