"""Every method that `posteriax compare` knows, by name, with settings that suit data of any size."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import posteriax as px
from posteriax import families as q
from posteriax._internal.compiler import jit
from posteriax.cli.user_data.messages import DataError
from posteriax.data import Batch

REFERENCE = "hmc"
LARGE = 2e7  # weights times rows of a table, above which a sampler's expected time is printed


@dataclass(frozen=True)
class Run:
    """A method and how long to run it: what `px.fit` is given."""

    method: Any
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Circumstances:
    """What settings depend on.

    Args:
        rows: the number of training examples.
        images: whether they are images.
        quick: a fifth of the steps and draws, for a first look.
    """

    rows: int
    images: bool = False
    quick: bool = False

    @property
    def batch_size(self) -> int:
        return min(self.rows, 128 if self.images else 512)

    def count(self, number: int) -> int:
        return max(number // 5, 10) if self.quick else number

    def steps(self, number: int) -> int:
        """This many optimiser steps, but at least twenty epochs of large data."""
        return self.count(max(number, 20 * self.rows // self.batch_size))

    def epochs(self, number: int) -> int:
        """This many epochs of small batches, but fewer of large data."""
        return self.count(min(number, max(40, number * 1000 // self.rows)))


@dataclass(frozen=True)
class Recipe:
    """How a method is run.

    Args:
        run: the method and its length, from the circumstances.
        default: whether it runs unless `--methods` says otherwise.
        gradients: of the whole data set per draw, typically, for a sampler that needs such; None for others.
        steps_per_draw: of its warm-up steps, how many take as long as a draw.
    """

    run: Callable[[Circumstances], Run]
    default: bool = True
    gradients: int | None = None
    steps_per_draw: int = 1


def _optimised(make: Callable[[Circumstances], Any], number: int) -> Recipe:
    return Recipe(lambda at: Run(make(at), {"steps": at.steps(number), "batch_size": at.batch_size}))


def _sampled(make: Callable[[Circumstances], Any], **facts: Any) -> Recipe:
    return Recipe(lambda at: Run(make(at), {"draws": at.count(300), "chains": 2}), **facts)


def _map(at: Circumstances) -> px.MAP:
    """MAP with larger steps than the default: these networks are small."""
    return px.MAP(optax.adam(optax.cosine_decay_schedule(5e-3 if at.images else 1e-2, at.steps(2000))))


def _sghmc(at: Circumstances) -> Run:
    method = px.SGHMC(warmup_epochs=at.epochs(100), epochs_per_draw=max(1, at.epochs(100) // 10))
    return Run(method, {"draws": at.count(200), "chains": 2, "batch_size": min(at.rows, 64)})


METHODS: dict[str, Recipe] = {
    "map": _optimised(_map, 2000),
    "ensemble": _optimised(lambda at: px.Ensemble(_map(at), 5), 2000),
    "mean-field": _optimised(lambda at: px.VI(q.Normal()), 4000),
    "k-tied": _optimised(lambda at: px.VI(q.KTied(2)), 4000),
    "rank-1": _optimised(lambda at: px.VI(q.Rank1(4)), 2000),
    "swag": Recipe(lambda at: Run(px.SWAG(), {"epochs": at.epochs(200), "batch_size": min(at.rows, 64)})),
    "hmc": _sampled(lambda at: px.HMC(warmup=at.count(200)), gradients=25),
    "nuts": _sampled(lambda at: px.NUTS(warmup=at.count(300), max_doublings=8), default=False, gradients=60),
    "mclmc": _sampled(
        lambda at: px.MCLMC(start="map", warmup=at.count(3000)), default=False, gradients=40, steps_per_draw=20
    ),
    "sghmc": Recipe(_sghmc, default=False),
}
DEFAULT_METHODS = tuple(name for name, recipe in METHODS.items() if recipe.default)
OTHER_METHODS = tuple(name for name, recipe in METHODS.items() if not recipe.default)


def check_methods(names: Sequence[str]) -> list[str]:
    """The names, each once; an error that lists all methods if one is unknown.

    >>> check_methods(["MAP", "hmc", "map"])
    ['map', 'hmc']
    """
    wanted = list(dict.fromkeys(name.strip().lower() for name in names if name.strip()))
    unknown = [name for name in wanted if name not in METHODS]
    if unknown or not wanted:
        named = f"unknown method {', '.join(map(repr, unknown))}" if unknown else "no methods named"
        raise DataError(f"{named}; there are {', '.join(METHODS)}")
    return wanted


def expected_seconds(name: str, run: Run, problem: px.Problem, data: Any) -> float | None:
    """A rough guess at how long a sampler takes, from the time of one gradient; None if the run is short."""
    recipe, rows, is_table = METHODS[name], len(data[1]), np.ndim(data[0]) == 2
    if recipe.gradients is None or (is_table and rows * problem.network.num_parameters < LARGE):
        return None
    x, y = problem.check(data)
    batch = Batch(jnp.asarray(x), jnp.asarray(y), jnp.ones(rows))
    gradient = jit(jax.grad(lambda latents: problem.log_joint(latents, batch)))
    jax.block_until_ready(gradient(problem.latents))
    began = time.perf_counter()
    jax.block_until_ready(gradient(problem.latents))
    each = time.perf_counter() - began
    transitions = run.arguments["draws"] + run.method.warmup / recipe.steps_per_draw
    per_device = math.ceil(run.arguments["chains"] / jax.device_count())
    return float(np.ceil(each * recipe.gradients * transitions * per_device))
