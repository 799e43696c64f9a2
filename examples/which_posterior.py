"""Ten methods on three small problems: what each costs, how calibrated it is, and how far it is from HMC.

    python examples/which_posterior.py moons clothes line     # fits, and adds to the results; some minutes
    python examples/which_posterior.py table                  # writes the tables of docs/which.md from the results

Times are those of the processor, which other programs on the machine disturb least. Every method runs with its default
settings until it says that it has converged, or for the length given below if it cannot tell.
Results are in docs/results/which_posterior.json.
"""

import json
import os
import sys
import time
from pathlib import Path

import equinox as eqx
import jax
import numpy as np

import posteriax as px
from posteriax import families as q
from posteriax import priors as p

DOCS = Path(__file__).parents[1] / "docs"
RESULTS = DOCS / "results" / "which_posterior.json"
REPEATS = 10_000  # rows to predict when timing
HEADINGS = {
    "total_variation": "TV to HMC",
    "agreement": "agreement with HMC",
    "wasserstein": "distance to HMC",
    "coverage_90": "coverage of 90 %",
}


def moons():
    """150 points of two moons; 2-16-16-2."""
    train, test = px.data.two_moons(train=150, test=1000, noise=0.25)
    net = eqx.nn.MLP(2, 2, 16, 2, key=jax.random.key(0))
    return px.Problem(net, px.Categorical(), prior=p.Normal(1.0)), train, test


def clothes():
    """1,000 images of clothes, 14 x 14 pixels; 196-24-10."""
    (x, y), (x_test, y_test) = px.data.fashion_small()
    x, x_test = (images.reshape(-1, 14, 2, 14, 2).mean((2, 4)).reshape(-1, 196) for images in (x[::3], x_test))
    net = eqx.nn.MLP(196, 10, 24, 1, key=jax.random.key(0))
    return px.Problem(net, px.Categorical(), prior=p.Normal(0.3)), (x, y[::3]), (x_test, y_test)


def line():
    """80 points of a noisy curve with a gap in the middle; 1-32-1, the noise inferred."""
    train, test = px.data.curve_with_gap(test=400)
    net = eqx.nn.MLP(1, 1, 32, 1, activation=jax.nn.tanh, key=jax.random.key(0))
    return px.Problem(net, px.Normal("learned"), prior=p.Normal(1.5)), train, test


PROBLEMS = {f.__name__: f for f in (moons, clothes, line)}


UNTIL = {"until": "converged", "seconds": 60}


def methods_after(name, mode):
    """By name: the method, which may start at the mode that MAP has found, and how long to run it."""
    swag, sghmc = px.SWAG(), px.SGHMC()
    if name == "line":  # where both diverge by default: the noise is small, and is inferred
        swag, sghmc = px.SWAG(learning_rate=0.002, start_learning_rate=0.01), px.SGHMC(1e-5)
    return {
        "deep ensemble": (px.Ensemble(px.MAP(), 5), UNTIL),
        "Laplace": (px.Laplace(mode=mode), {"epochs": 1}),
        "SWAG": (px.Ensemble(swag, 1, starts=mode), {"epochs": 200, "batch_size": 50}),
        "mean-field VI": (px.VI(q.Normal(), start=mode), UNTIL),
        "k-tied VI": (px.VI(q.KTied(2), start=mode), UNTIL),
        "rank-1 VI": (px.VI(q.Rank1(4), start=mode), UNTIL),
        "SGHMC": (sghmc, {"draws": 100, "chains": 2, "batch_size": 50}),
        "MCLMC": (px.MCLMC(start="map"), {"draws": 250, "chains": 4}),
        "HMC": (px.HMC(), {"draws": 250, "chains": 4}),
    }


def measure(name: str) -> None:
    problem, train, test = PROBLEMS[name]()
    posteriors, rows = {}, {}

    def fit(method_name, method, length) -> None:
        began = time.process_time()
        posterior = px.fit(problem, train, method, key=0, progress=False, **length)
        seconds = time.process_time() - began
        posteriors[method_name] = posterior
        many = np.resize(test[0], (REPEATS, *test[0].shape[1:]))
        posterior.predict(many, reduce=True)  # compiles
        began = time.process_time()
        posterior.predict(many, reduce=True)
        predicting = time.process_time() - began
        rows[method_name] = {
            "train_seconds": round(seconds, 2),
            "predict_ms_per_1000": round(1e6 * predicting / REPEATS, 2),
            "numbers_kept": posterior.num_parameters,
            "converged": posterior.trace.converged,
        }
        print(f"{name}, {method_name}: {rows[method_name]}", flush=True)

    fit("MAP", px.MAP(), UNTIL)
    for method_name, (method, length) in methods_after(name, posteriors["MAP"]).items():
        fit(method_name, method, length)
    comparison = px.compare(posteriors, test, reference="HMC", costs=False)
    for method_name, row in comparison.rows.items():
        rows[method_name]["scores"] = {c: [round(e.value, 5), round(e.error, 5)] for c, e in row.items()}
    for method_name in ("MCLMC", "HMC"):
        diagnosis = posteriors[method_name].diagnose(test[0][:200])
        rows[method_name]["diagnosis"] = str(diagnosis)
    print(comparison)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results[name] = {
        "what": PROBLEMS[name].__doc__,
        "machine": f"{os.cpu_count()} cores, {jax.default_backend()}, jax {jax.__version__}",
        "weights": problem.network.num_parameters,
        "methods": rows,
    }
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


FROM_THE_MODE = ("Laplace", "SWAG", "mean-field VI", "k-tied VI", "rank-1 VI")  # their cost includes MAP's


def table() -> str:
    """One table for each problem, from the results."""
    parts = []
    results = json.loads(RESULTS.read_text())
    for result in (results[name] for name in PROBLEMS if name in results):
        rows = result["methods"]
        columns = list(rows["MAP"]["scores"])
        heads = [HEADINGS.get(column, column) for column in columns]
        parts.append(f"**{result['what'].rstrip('.')}** ({result['weights']:,} weights)\n")
        parts.append(f"| method | train, s | predict 1,000, ms | numbers kept | {' | '.join(heads)} |")
        parts.append("| --- " + "| ---: " * (3 + len(columns)) + "|")
        for name, row in rows.items():
            scores = [f"{row['scores'][c][0]:.3f}" if c in row["scores"] else "" for c in columns]
            note = "" if row["converged"] is not False else " (a)"
            seconds = row["train_seconds"] + (rows["MAP"]["train_seconds"] if name in FROM_THE_MODE else 0.0)
            predicting = row["predict_ms_per_1000"]
            shown = f"{predicting:.0f}" if predicting >= 10 else f"{predicting:.1f}"
            costs = [f"{seconds:.1f}", shown, f"{row['numbers_kept']:,}"]
            parts.append(f"| {name}{note} | {' | '.join([*costs, *scores])} |")
        parts.append("")
    return "\n".join(parts)


def write_table() -> None:
    page = DOCS / "which.md"
    before, _, rest = page.read_text().partition("<!-- the table: examples/which_posterior.py table -->\n")
    after = rest.partition("<!-- end of the table -->")[2]
    text = f"{before}<!-- the table: examples/which_posterior.py table -->\n{table()}\n<!-- end of the table -->{after}"
    page.write_text(text)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        write_table() if argument == "table" else measure(argument)
