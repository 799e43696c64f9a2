"""The demo: MAP, a deep ensemble, mean-field VI and HMC on the same network, compared."""

from typing import Any

import equinox as eqx
import jax

import posteriax as px
from posteriax import families as q
from posteriax import priors as p
from posteriax.cli import console


def run_demo(seed: int = 0) -> None:
    """Fit four posteriors of one network to two moons and print how far each is from HMC."""
    out = console()
    train, test = px.data.two_moons(train=200, test=1000, noise=0.25, seed=seed)
    net = eqx.nn.MLP(2, 2, width_size=16, depth=2, key=jax.random.key(seed))
    problem = px.Problem(net, px.Categorical(), prior=p.Normal(scale=1.0))
    out.print(f"Two moons: {len(train[1])} points to learn from, {len(test[1])} to test on.")
    out.print(f"A network with {problem.network.num_parameters} weights, each N(0, 1) before the data.\n")
    runs: dict[str, tuple[Any, dict[str, Any]]] = {
        "MAP": (px.MAP(), {"epochs": 300}),
        "deep ensemble": (px.Ensemble(px.MAP(), members=4), {"epochs": 300}),
        "mean-field VI": (px.VI(q.Normal()), {"epochs": 1000}),
        "HMC": (px.HMC(), {"draws": 200, "chains": 2}),
    }
    posteriors = {}
    for name, (method, length) in runs.items():
        posteriors[name] = px.fit(problem, train, method, key=seed, **length)
        out.print(f"  {name}: {posteriors[name].trace.seconds:.0f} s", highlight=False)
    out.print()
    out.print(px.compare(posteriors, test, reference="HMC"))
    out.print(
        "\nagreement: how often the predicted class is HMC's. total variation: how far the predicted probabilities "
        "are from HMC's."
    )
