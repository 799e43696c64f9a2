"""A study of two methods on two moons, small enough for tests; as a program it runs, and may kill itself.

    python toy_study.py FOLDER MOMENT ...

MOMENT is "before", "during" or "after", at which a run is killed, or "never". The runs follow each other. Prints how
each ended, as JSON: the number of the signal that killed it, or 0.
"""

import json
import os
import signal
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import equinox as eqx
import jax
import optax

import posteriax as px
from posteriax import studies


@dataclass(frozen=True)
class Settings:
    steps: int
    seeds: int
    data: tuple[str, ...] = ("two_moons",)


def cells(settings, seeds):
    return [
        studies.Cell({"method": name}, seed, cost)
        for seed in range(seeds)
        for name, cost in (("map", 1.0), ("mean-field", 2.0))
    ]


def run(cell, settings, bench):
    moons = bench.load("two_moons")
    problem = px.Problem(eqx.nn.MLP(2, 2, 4, 1, key=jax.random.key(cell.seed)), px.Categorical())
    methods = {"map": px.MAP(), "mean-field": px.VI(estimator="weight", optimizer=optax.adam(1e-2))}
    method = methods[cell.settings["method"]]
    kill("before")

    def watched(posterior):
        kill("during")
        return {"evaluated": 1.0}

    watch = px.run.Watch(watched, every=settings.steps // 2)
    posterior = bench.fit(
        problem, moons.train, method, steps=settings.steps, key=cell.seed, watch=watch, checkpoint_every=1e-6
    )
    scores = px.evaluate(posterior.predict(moons.test[0], draws=8, key=1), moons.test[1])
    kill("after")
    bench.times["evaluation"] = 0.1
    return {"nll": scores["nll"], "curve": posterior.trace["nll_per_example"][::10], "nothing": float("inf")}


def kill(moment):
    """End this process at once, where it is told to, once."""
    if moment == TARGET and not (FOLDER / "killed").exists():
        (FOLDER / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)


def figure(results):
    from posteriax._internal.plot_style import subplots

    drawn, axes = subplots(1, 1, 4, 3)
    axes[0, 0].plot(results.select(method="map")[0].result["curve"])
    return drawn


def tables(results):
    rows = [(name, f"{results.values('nll', method=name).mean():.3f}") for name in ("map", "mean-field")]
    return [studies.PageTable("Scores on the test set.", ("method", "nll"), rows)]


NLL = studies.entry("nll", method="map")
STUDY = studies.Study(
    name="toy",
    paper=studies.Paper(
        title="Two methods on two moons",
        citation="Nobody (2026).",
        summary="A small one.",
        claims=(
            studies.Claim("beats chance", "MAP beats chance", "0.1", "nll", NLL, below=0.69),
            studies.Claim("perfect", "MAP is perfect", "0", "nll", NLL, below=1e-6),
        ),
    ),
    scales={"smoke": Settings(60, 1), "laptop": Settings(200, 2), "paper": Settings(10**6, 20)},
    one_step=lambda settings: replace(settings, steps=2),
    cells=cells,
    run=run,
    tables=tables,
    figures={"curve": figure},
)

TARGET, FOLDER = None, Path()


def main(moment):
    global TARGET
    TARGET = moment
    (FOLDER / "killed").unlink(missing_ok=True)
    studies.run_study(STUDY, FOLDER, scale="laptop", command="posteriax study run toy")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from killed_run import in_a_fork

    FOLDER = Path(sys.argv[1])
    print(json.dumps([in_a_fork(partial(main, moment)) for moment in sys.argv[2:]]))
