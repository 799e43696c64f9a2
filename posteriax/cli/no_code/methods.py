"""Which methods `posteriax compare` runs, and how long a sampler will take."""

import math
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import posteriax as px
from posteriax._internal.compiler import jit
from posteriax.cli.user_data.messages import DataError
from posteriax.data import Batch
from posteriax.methods import RECIPES, RecipeRun

REFERENCE = "hmc"
LARGE = 2e7  # weights times rows of a table, above which a sampler's expected time is printed


def check_methods(names: Sequence[str]) -> list[str]:
    """The names, each once; an error that lists all methods if one is unknown.

    >>> check_methods(["MAP", "hmc", "map"])
    ['map', 'hmc']
    """
    wanted = list(dict.fromkeys(name.strip().lower() for name in names if name.strip()))
    unknown = [name for name in wanted if name not in RECIPES]
    if unknown or not wanted:
        named = f"unknown method {', '.join(map(repr, unknown))}" if unknown else "no methods named"
        raise DataError(f"{named}; there are {', '.join(RECIPES)}")
    return wanted


def expected_seconds(name: str, run: RecipeRun, problem: px.Problem, data: Any) -> float | None:
    """A rough guess at how long a sampler takes, from the time of one gradient; None if the run is short."""
    recipe, rows, is_table = RECIPES[name], len(data[1]), np.ndim(data[0]) == 2
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
