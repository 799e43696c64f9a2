"""Proposition 4 by example: a mean-field network with two hidden layers and a predictive distribution of two modes.

    y = 1 or -1, each with probability 1/2, whatever x, with noise of standard deviation 0.1

The exact posterior predictive of these data is bimodal, but no function explains them: a mean-field network whose
weights are random can have it, by a first layer that throws a coin and later ones that turn it into 1 or -1. Trained by
the likelihood of the mixture over draws, with one and with two hidden layers of the same number of weights.
"""

import itertools
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from posteriax.studies.results import Json
from posteriax.studies.study import Cell
from posteriax.studies.workbench import Workbench

NAME = "bimodal"
NOISE, NEAR = 0.1, 0.3  # of the data, and the distance from a mode that counts as near
EDGES = np.linspace(-2, 2, 41)  # of the bins of predictions


@dataclass(frozen=True)
class Bimodal:
    """Settings of this experiment."""

    widths: tuple[int, ...] = (60, 16)  # of networks with one and with two hidden layers
    steps: int = 3000
    draws: int = 32  # of the weights, in the likelihood of the mixture
    points: int = 64


def cells(settings: Bimodal, seeds: int) -> list[Cell]:
    return [
        Cell({"experiment": NAME, "layers": layers}, seed, cost=3)
        for seed in range(seeds)
        for layers in range(1, len(settings.widths) + 1)
    ]


class MeanField(eqx.Module):
    """Means and log scales of the weights of an MLP from 1 to 1."""

    means: list[jax.Array]
    log_scales: list[jax.Array]

    def __init__(self, sizes: tuple[int, ...], *, key: jax.Array):
        shapes = [(n + 1, m) for n, m in itertools.pairwise(sizes)]  # the last row is the bias
        keys = jax.random.split(key, len(shapes))
        self.means = [jax.random.normal(k, s) / np.sqrt(s[0]) for k, s in zip(keys, shapes, strict=True)]
        self.log_scales = [jnp.full(s, np.log(0.1)) for s in shapes]

    def draw(self, key: jax.Array, x: jax.Array) -> jax.Array:
        """The outputs of one draw of the weights."""
        keys = jax.random.split(key, len(self.means))
        for i, (mean, log_scale, k) in enumerate(zip(self.means, self.log_scales, keys, strict=True)):
            w = mean + jnp.exp(log_scale) * jax.random.normal(k, mean.shape)
            x = x @ w[:-1] + w[-1]
            x = jax.nn.relu(x) if i + 1 < len(self.means) else x
        return x[:, 0]


def run(cell: Cell, settings: Bimodal, bench: Workbench) -> dict[str, Json]:
    """The share of draws whose prediction is near either mode: at most what both modes share evenly."""
    layers = cell["layers"]
    sizes = (1, *[settings.widths[layers - 1]] * layers, 1)
    net = MeanField(sizes, key=jax.random.key(cell.seed))
    rng = np.random.default_rng(cell.seed)
    x = jnp.asarray(rng.uniform(-1, 1, (settings.points, 1)), jnp.float32)
    signs = jnp.asarray(rng.choice([-1.0, 1.0], settings.points), jnp.float32)
    y = signs + NOISE * jnp.asarray(rng.normal(size=settings.points), jnp.float32)
    optimizer = optax.adam(optax.cosine_decay_schedule(1e-2, settings.steps))

    def loss(net: MeanField, key: jax.Array) -> jax.Array:
        drawn = jax.vmap(net.draw, (0, None))(jax.random.split(key, settings.draws), x)
        log_probs = -0.5 * jnp.square((y - drawn) / NOISE)
        return -(jax.nn.logsumexp(log_probs, axis=0) - jnp.log(settings.draws)).mean()

    def step(carry: tuple, key: jax.Array) -> tuple:
        net, state = carry
        updates, state = optimizer.update(jax.grad(loss)(net, key), state)
        return (eqx.apply_updates(net, updates), state), None

    keys = jax.random.split(jax.random.key(cell.seed + 1), settings.steps)
    (net, _), _ = jax.jit(lambda carry: jax.lax.scan(step, carry, keys))((net, optimizer.init(net)))
    drawn = np.asarray(jax.vmap(net.draw, (0, None))(jax.random.split(jax.random.key(1), 1000), x))
    shares = [(np.abs(drawn - mode) < NEAR).mean() for mode in (-1.0, 1.0)]
    counts, _ = np.histogram(np.clip(drawn, EDGES[0], EDGES[-1]), EDGES)
    return {
        "near_modes": 2 * min(shares),
        "shares": shares,
        "weights": sum(m.size for m in net.means),
        "histogram": (counts / drawn.size).tolist(),
    }
