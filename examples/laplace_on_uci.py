"""Test log-likelihood of MAP, Laplace and HMC on UCI regressions, with a given prior and with one chosen by p.tune.

    python examples/laplace_on_uci.py                        # boston concrete energy wine power, splits 0 and 1
    python examples/laplace_on_uci.py boston wine --splits 3

One hidden layer of 32 tanh units, Gaussian noise, the prior N(0, 2 / fan-in). Prints a table in Markdown: nats per test
example in the target's own units, the mean over the splits. HMC is two short chains, and says how well they mixed.
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

import posteriax as px
from posteriax import priors as p

SETS = ("boston", "concrete", "energy", "wine", "power")
STRUCTURES = {
    "Laplace, diagonal": {"structure": "diagonal"},
    "Laplace, Kronecker": {"structure": "kronecker"},
    "Laplace, low rank": {"structure": "low-rank", "rank": 50},
    "Laplace, full": {"structure": "full"},
    "Laplace, last layer": {"structure": "full", "over": "layers/1"},
}
FEW_ROWS = 2000  # up to which HMC is run
STEPS, DRAWS, WARMUP = 3000, 150, 150


def log_likelihood(posterior, data):
    """Per test example, in the target's units."""
    x, y = data.test
    scale = float(np.squeeze(data.target_scaling.scale))
    return -px.evaluate(posterior.predict(x, 200), y)["nll"] - np.log(scale)


def results(problem, at_mode, data):
    """The test log-likelihood of every posterior, and the worst R-hat of HMC's predictions."""
    scores = {"MAP": log_likelihood(at_mode, data)}
    for name, settings in STRUCTURES.items():
        method = px.Laplace(mode=at_mode, **settings)
        scores[name] = log_likelihood(px.fit(problem, data.train, method, epochs=1, batch_size=512, key=0), data)
    if len(data.train[1]) > FEW_ROWS:
        return scores, float("nan")
    hmc = px.fit(problem, data.train, px.HMC(warmup=WARMUP, start="map"), draws=DRAWS, chains=2, key=0)
    scores["HMC"] = log_likelihood(hmc, data)
    return scores, hmc.diagnose(data.test[0]).predictions.worst_rhat


def results_of_split(name, split):
    data = px.data.load(f"uci/{name}", split=split)
    mlp = px.zoo.MLP((data.train[0].shape[1], 32, 1), activation=jnp.tanh, key=jax.random.key(split))
    net = px.network(mlp, example=data.train[0][:2])  # which axis is the inputs', for the prior
    given = px.Problem(net, px.Normal("learned"), p.HeNormal())
    trained = px.fit(given, data.train, px.MAP(), steps=STEPS, batch_size=512, key=0)
    began = time.process_time()
    tuned = p.tune(given, data.train)
    seconds = time.process_time() - began
    return results(given, trained, data), results(tuned, tuned.mode, data), seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sets", nargs="*", default=SETS)
    parser.add_argument("--splits", type=int, default=2)
    asked = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", 2)  # a core for each chain
    columns = ["MAP", *STRUCTURES, "HMC"]
    print(f"| set | prior | {' | '.join(columns)} | R-hat of HMC | tuning |")
    print(f"| --- | --- | {'--- | ' * len(columns)}--- | --- |")
    for name in asked.sets:
        given, tuned, seconds = zip(*(results_of_split(name, split) for split in range(asked.splits)), strict=True)
        for prior, by_split in (("given", given), ("tuned", tuned)):
            cells = [np.mean([scores.get(column, np.nan) for scores, _ in by_split]) for column in columns]
            shown = " | ".join("" if np.isnan(cell) else f"{cell:.3f}" for cell in cells)
            worst = max(rhat for _, rhat in by_split)
            took = f"{np.mean(seconds):.0f} s" if prior == "tuned" else ""
            print(f"| {name} | {prior} | {shown} | {'' if np.isnan(worst) else f'{worst:.2f}'} | {took} |", flush=True)


if __name__ == "__main__":
    main()
