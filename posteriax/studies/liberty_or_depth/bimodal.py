"""Proposition 4 by example: a mean-field network with two hidden layers and a predictive distribution of two modes.

    y = 1 or -1, each with probability 1/2, whatever x, with noise of standard deviation 0.1

The exact posterior predictive of these data is bimodal, but no function explains them: a mean-field network whose
weights are random can have it, by a first layer that throws a coin and later ones that turn it into 1 or -1. Trained by
the likelihood of the mixture over draws, with one and with two hidden layers of about the same number of weights.

The proposition says that such a network exists, not that training finds it. So each is trained from random weights and
from a coin, and the one with the higher training likelihood is kept. The coin is a hidden unit whose bias is N(0, 1),
the other weights nearly certain; with two hidden layers, two steep units of the second make a step of it:

    z ~ N(0, 1)      h = relu(z)      f = 2 (relu(k h) - relu(k h - 1)) - 1      -1 if z < 0, 1 if z > 1 / k

With one hidden layer it is f = 2 h - 1, since the units there have coins of their own.
"""

import itertools
from dataclasses import dataclass
from typing import Any

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
STEEP, CERTAIN = 20.0, 0.003  # k, and the standard deviation of weights that are nearly certain
RANDOM, COIN = "random", "coin"


@dataclass(frozen=True)
class Bimodal:
    """Settings of this experiment."""

    widths: tuple[int, ...] = (60, 16)  # of networks with one and with two hidden layers
    steps: int = 3000
    draws: int = 32  # of the weights, in the likelihood of the mixture
    points: int = 64
    starts: tuple[str, ...] = (RANDOM, COIN)


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

    def thrown(self) -> "MeanField":
        """The same network at the start with a coin, for one or two hidden layers."""
        means = [jnp.zeros_like(mean) for mean in self.means]
        log_scales = [jnp.full_like(mean, np.log(CERTAIN)) for mean in means]
        log_scales[0] = log_scales[0].at[-1, 0].set(0.0)
        means[-1] = means[-1].at[0, 0].set(2.0).at[-1, 0].set(-1.0)
        if len(means) > 2:
            means[1] = means[1].at[0, :2].set(STEEP).at[-1, 1].set(-1.0)
            means[-1] = means[-1].at[1, 0].set(-2.0)
        return eqx.tree_at(lambda net: (net.means, net.log_scales), self, (means, log_scales))

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
    rng = np.random.default_rng(cell.seed)
    x = jnp.asarray(rng.uniform(-1, 1, (settings.points, 1)), jnp.float32)
    signs = jnp.asarray(rng.choice([-1.0, 1.0], settings.points), jnp.float32)
    y = signs + NOISE * jnp.asarray(rng.normal(size=settings.points), jnp.float32)
    random = MeanField(sizes, key=jax.random.key(cell.seed))
    first = {RANDOM: random, COIN: random.thrown()}
    trained = {start: train(first[start], x, y, settings, cell.seed + 1) for start in settings.starts}
    scored = {start: measure(net, x, y) for start, net in trained.items()}
    best = max(settings.starts, key=lambda start: scored[start]["log_likelihood"])
    return {"start": best, "weights": sum(m.size for m in random.means), "by_start": scored, **scored[best]}


def mixture_log_likelihood(net: MeanField, key: jax.Array, x: jax.Array, y: jax.Array, draws: int) -> jax.Array:
    """The mean log-likelihood of the mixture over draws, but for a constant."""
    drawn = jax.vmap(net.draw, (0, None))(jax.random.split(key, draws), x)
    log_probs = -0.5 * jnp.square((y - drawn) / NOISE)
    return (jax.nn.logsumexp(log_probs, axis=0) - jnp.log(draws)).mean()


def train(net: MeanField, x: jax.Array, y: jax.Array, settings: Bimodal, key: int) -> MeanField:
    """The network after Adam on that likelihood."""
    optimizer = optax.adam(optax.cosine_decay_schedule(1e-2, settings.steps))

    def loss(net: MeanField, key: jax.Array) -> jax.Array:
        return -mixture_log_likelihood(net, key, x, y, settings.draws)

    def step(carry: tuple, key: jax.Array) -> tuple:
        net, state = carry
        updates, state = optimizer.update(jax.grad(loss)(net, key), state)
        return (eqx.apply_updates(net, updates), state), None

    keys = jax.random.split(jax.random.key(key), settings.steps)
    (net, _), _ = jax.jit(lambda carry: jax.lax.scan(step, carry, keys))((net, optimizer.init(net)))
    return net


def measure(net: MeanField, x: jax.Array, y: jax.Array) -> dict[str, Any]:
    """The training likelihood and the predictions of 1,000 draws."""
    drawn = np.asarray(jax.vmap(net.draw, (0, None))(jax.random.split(jax.random.key(1), 1000), x))
    shares = [float((np.abs(drawn - mode) < NEAR).mean()) for mode in (-1.0, 1.0)]
    counts, _ = np.histogram(np.clip(drawn, EDGES[0], EDGES[-1]), EDGES)
    return {
        "log_likelihood": float(mixture_log_likelihood(net, jax.random.key(2), x, y, 1000)),
        "near_modes": 2 * min(shares),
        "shares": shares,
        "histogram": (counts / drawn.size).tolist(),
    }
