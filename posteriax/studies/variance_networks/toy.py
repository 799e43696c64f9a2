"""Four Gaussians in the plane and a network whose only way from inputs to outputs is two zero-mean units.

    x -> four layers of 100 -> b_j = eps_j sqrt(sum_i a_i^2 sigma_ij^2), j = 1, 2 -> one layer of 100 -> four classes

Nothing but the standard deviations of the two units can tell the classes apart.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from posteriax import analysis
from posteriax import families as q
from posteriax import priors as p
from posteriax.methods import VI
from posteriax.posterior import VariationalPosterior
from posteriax.problem import Categorical, Problem
from posteriax.studies.study import Cell
from posteriax.studies.variance_networks.accuracy import above_chance
from posteriax.studies.variance_networks.settings import Settings
from posteriax.studies.workbench import Workbench
from posteriax.zoo import Dense

CENTRES = np.array([[3, 3], [3, 10], [10, 3], [10, 10]], np.float32)
DRAWS = 101
SHOWN = 25  # points per class whose standard deviations are kept for the figure


class TwoUnits(eqx.Module):
    """Dense layers with leaky ReLU, and two units in their middle."""

    before: list[Dense]
    variance: Dense
    after: Dense
    out: Dense

    def __init__(self, width: int, *, key: Any):
        keys = jax.random.split(key, 7)
        sizes = (2, width, width, width, width)
        self.before = [Dense(n, m, key=k) for n, m, k in zip(sizes[:-1], sizes[1:], keys[:4], strict=True)]
        self.variance = Dense(width, 2, bias=False, key=keys[4])
        self.after, self.out = Dense(2, width, key=keys[5]), Dense(width, 4, key=keys[6])

    def features(self, x: jax.Array) -> jax.Array:
        for layer in self.before:
            x = jax.nn.leaky_relu(layer(x))
        return x

    def __call__(self, x: jax.Array) -> jax.Array:
        hidden = jax.nn.leaky_relu(self.variance(self.features(x)))
        return self.out(jax.nn.leaky_relu(self.after(hidden)))


def four_gaussians(points: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """So many points per class with unit covariance around the four centres."""
    y = np.repeat(np.arange(4, dtype=np.int32), points)
    noise = np.random.default_rng(seed).standard_normal((len(y), 2))
    return (CENTRES[y] + noise).astype(np.float32), y


def run_toy(cell: Cell, settings: Settings, bench: Workbench) -> dict[str, Any]:
    """Accuracies on new points, and the standard deviations of the two units at some of them."""
    training, (x, y) = four_gaussians(settings.toy_points, cell.seed), four_gaussians(settings.toy_points, 1000)
    net = TwoUnits(settings.toy_width, key=jax.random.key(cell.seed))
    weights = "variance/weight"
    problem = Problem(net, Categorical(), {"**": p.Normal(scale=1.0), weights: p.LogUniform()})
    rate = optax.linear_schedule(settings.toy_rate, 0.0, settings.toy_steps)
    posterior = bench.fit(
        problem,
        training,
        VI({"**": q.Point(), weights: q.ZeroMeanNormal()}, optimizer=optax.adam(rate)),
        steps=settings.toy_steps,
        batch_size=len(training[1]),
        key=cell.seed,
    )
    assert isinstance(posterior, VariationalPosterior)
    predictive: Any = posterior.predict(x, DRAWS)
    fixed: Any = analysis.at_mean(posterior).predict(x)
    scales = jnp.exp(jnp.asarray(posterior.variational[weights]["log_scale"][0]))
    shown = np.concatenate([np.flatnonzero(y == label)[:SHOWN] for label in range(4)])
    features = jax.vmap(posterior.network.params.features)(jnp.asarray(x[shown]))
    return {
        "stochastic": (predictive.log_probs_per_draw.argmax(axis=-1) == y).mean(),
        "deterministic": (fixed.probs.argmax(axis=-1) == y).mean(),
        "above_chance": above_chance(np.asarray(fixed.probs.argmax(axis=-1)), y),
        "ensemble": (predictive.probs.argmax(axis=-1) == y).mean(),
        "deviations": jnp.sqrt(jnp.square(features) @ jnp.square(scales)),
        "labels": y[shown],
    }
