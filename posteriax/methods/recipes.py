"""Methods by name, with settings that suit data of any size."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import optax

from posteriax import families as q
from posteriax.methods.ensemble import Ensemble
from posteriax.methods.hmc import HMC
from posteriax.methods.laplace import Laplace
from posteriax.methods.map import MAP
from posteriax.methods.mclmc import MCLMC
from posteriax.methods.nuts import NUTS
from posteriax.methods.sgmcmc import SGHMC
from posteriax.methods.swag import SWAG
from posteriax.methods.vi import VI


@dataclass(frozen=True)
class RecipeRun:
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
        default: whether it is one of those that a comparison runs if none is named.
        gradients: of the whole data set per draw, typically, for a sampler that needs such; None for others.
        steps_per_draw: of its warm-up steps, how many take as long as a draw.
    """

    run: Callable[[Circumstances], RecipeRun]
    default: bool = True
    gradients: int | None = None
    steps_per_draw: int = 1


def _optimised(make: Callable[[Circumstances], Any], number: int) -> Recipe:
    return Recipe(lambda at: RecipeRun(make(at), {"steps": at.steps(number), "batch_size": at.batch_size}))


def _sampled(make: Callable[[Circumstances], Any], **facts: Any) -> Recipe:
    return Recipe(lambda at: RecipeRun(make(at), {"draws": at.count(300), "chains": 2}), **facts)


def _adam(at: Circumstances) -> optax.GradientTransformation:
    """Larger steps than MAP's default: these networks are small."""
    return optax.adam(optax.cosine_decay_schedule(5e-3 if at.images else 1e-2, at.steps(2000)))


def _sghmc(at: Circumstances) -> RecipeRun:
    method = SGHMC(warmup_epochs=at.epochs(100), epochs_per_draw=max(1, at.epochs(100) // 10))
    return RecipeRun(method, {"draws": at.count(200), "chains": 2, "batch_size": min(at.rows, 64)})


def _laplace(at: Circumstances) -> RecipeRun:
    per_epoch = -(-at.rows // at.batch_size)
    epochs = -(-at.steps(2000) // per_epoch) + 1
    return RecipeRun(Laplace(optimizer=_adam(at)), {"epochs": epochs, "batch_size": at.batch_size})


RECIPES: dict[str, Recipe] = {
    "map": _optimised(lambda at: MAP(_adam(at)), 2000),
    "ensemble": _optimised(lambda at: Ensemble(MAP(_adam(at)), 5), 2000),
    "laplace": Recipe(_laplace, default=False),
    "mean-field": _optimised(lambda at: VI(q.Normal()), 4000),
    "k-tied": _optimised(lambda at: VI(q.KTied(2)), 4000),
    "rank-1": _optimised(lambda at: VI(q.Rank1(4)), 2000),
    "swag": Recipe(lambda at: RecipeRun(SWAG(), {"epochs": at.epochs(200), "batch_size": min(at.rows, 64)})),
    "hmc": _sampled(lambda at: HMC(warmup=at.count(200)), gradients=25),
    "nuts": _sampled(lambda at: NUTS(warmup=at.count(300), max_doublings=8), default=False, gradients=60),
    "mclmc": _sampled(
        lambda at: MCLMC(start="map", warmup=at.count(3000)), default=False, gradients=40, steps_per_draw=20
    ),
    "sghmc": Recipe(_sghmc, default=False),
}
DEFAULT_METHODS = tuple(name for name, recipe in RECIPES.items() if recipe.default)
OTHER_METHODS = tuple(name for name, recipe in RECIPES.items() if not recipe.default)


def run_of(method: Any, at: Circumstances) -> RecipeRun:
    """A method by its name, or a given one with a length that suits its kind.

    >>> run_of("hmc", Circumstances(100)).arguments
    {'draws': 300, 'chains': 2}
    """
    if isinstance(method, str):
        if method.lower() not in RECIPES:
            raise ValueError(f"unknown method {method!r}; there are {', '.join(RECIPES)}, and objects such as px.VI()")
        return RECIPES[method.lower()].run(at)
    inner = method.method if isinstance(method, Ensemble) else method
    if inner.samples:
        chains = {} if isinstance(method, Ensemble) else {"chains": 2}
        return RecipeRun(method, {"draws": at.count(300), **chains})
    if inner.fixed_length:
        return RecipeRun(method, {"epochs": at.epochs(200), "batch_size": min(at.rows, 64)})
    return RecipeRun(method, {"steps": at.steps(4000), "batch_size": at.batch_size})
