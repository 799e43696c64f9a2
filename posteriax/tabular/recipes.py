"""Methods by name, with settings that suit data of any size."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import optax

from posteriax import families as q
from posteriax.methods.ensemble import Ensemble
from posteriax.methods.hmc import HMC
from posteriax.methods.laplace import Laplace
from posteriax.methods.map import MAP
from posteriax.methods.mclmc import MCLMC
from posteriax.methods.method import Method
from posteriax.methods.nuts import NUTS
from posteriax.methods.sgmcmc import SGHMC
from posteriax.methods.swag import SWAG
from posteriax.methods.vi import VI
from posteriax.posterior.posterior import Posterior

MethodOrName = str | Method | Ensemble

MOST_STEPS = 100_000  # of an optimiser whose objective never levels off
SWAG_RATES = (2e-2, 2e-3, 2e-4, 2e-5)
SNAPSHOTS = 40


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
    """

    rows: int
    images: bool = False

    @property
    def batch_size(self) -> int:
        return min(self.rows, 128 if self.images else 512)

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.rows // self.batch_size)


@dataclass(frozen=True)
class Recipe:
    """How a method is run.

    Args:
        attempts: what to run, from the boldest settings to the gentlest, each if those before it failed. Given the
            circumstances, and a posterior of one point at the mode if the recipe needs one.
        sentence: what it is, for a reader who has never heard of it.
        default: whether it is one of those that a comparison runs if none is named.
        at_points: whether it keeps single sets of weights, whose learned noise may be too small (point_noise.py).
        around_mode: whether it describes the posterior around the most probable weights, which must be found first.
        one_pass: whether it then needs a single pass over the data: a length is that of the search for the mode.
        from_mode: whether it starts there, unless the run's length is given. From a network's own weights, the noise
            of variational inference can drown the signal before weights have grown: the ELBO is level, and far too low.
        is_reference: whether the distances of others to it mean something: it samples the posterior itself.
        share: of the time of a comparison, relative to that of other methods.
        least: how long it must run to be worth it, in units of the time that "map" takes to compile.
    """

    attempts: Callable[[Circumstances, Posterior | None], Sequence[RecipeRun]]
    sentence: str = ""
    default: bool = True
    at_points: bool = False
    around_mode: bool = False
    one_pass: bool = False
    from_mode: bool = False
    is_reference: bool = False
    share: float = 1.0
    least: float = 2.0


def _optimised(
    make: Callable[[Circumstances], Method | Ensemble],
    sentence: str = "",
    *,
    at_points: bool = True,
    share: float = 1.0,
    least: float = 2.0,
) -> Recipe:
    attempts = lambda at, mode: [RecipeRun(make(at), {"steps": MOST_STEPS, "batch_size": at.batch_size})]  # noqa: E731
    return Recipe(attempts, sentence, at_points=at_points, share=share, least=least)


def _variational(family: q.Family, sentence: str) -> Recipe:
    def attempts(at: Circumstances, mode: Posterior | None) -> list[RecipeRun]:
        method = VI(family) if mode is None else VI(family, start=mode)
        return [RecipeRun(method, {"steps": MOST_STEPS, "batch_size": at.batch_size})]

    return Recipe(attempts, sentence, from_mode=True, least=3.0)


def _sampled(method: Any, sentence: str = "", *, default: bool = False) -> Recipe:
    return Recipe(lambda at, mode: [RecipeRun(method)], sentence, default, is_reference=True, share=12.0, least=4.0)


def _adam(at: Circumstances) -> optax.GradientTransformation:
    """Larger steps than MAP's default: these networks are small. The run lets them fall at its end."""
    return optax.adam(5e-3 if at.images else 1e-2)


def _laplace(at: Circumstances, mode: Posterior | None) -> list[RecipeRun]:
    return [RecipeRun(Laplace(mode=mode), {"epochs": 1, "batch_size": at.batch_size})]  # type: ignore[arg-type]


def _swag(at: Circumstances, mode: Posterior | None) -> list[RecipeRun]:
    """From the mode, with a constant rate from the first step on; a snapshot is taken 40 times."""
    steps = max(2000, min(SNAPSHOTS * at.steps_per_epoch, 10_000))
    every = 0.75 * steps / SNAPSHOTS / at.steps_per_epoch
    settings = {"collect": 0.75, "snapshot_every": every}
    return [
        RecipeRun(
            Ensemble(SWAG(learning_rate=rate, start_learning_rate=rate, **settings), 1, starts=mode),  # type: ignore[arg-type]
            {"steps": steps, "batch_size": at.batch_size},
        )
        for rate in SWAG_RATES
    ]


def _sghmc(at: Circumstances, mode: Posterior | None) -> list[RecipeRun]:
    epochs = min(100, max(40, 100_000 // at.rows))
    method = SGHMC(warmup_epochs=epochs, epochs_per_draw=max(1, epochs // 10))
    return [RecipeRun(method, {"draws": 200, "chains": 2, "batch_size": min(at.rows, 64)})]


RECIPES: dict[str, Recipe] = {
    "map": _optimised(lambda at: MAP(_adam(at)), "The most probable weights: an ordinary network."),
    "ensemble": _optimised(
        lambda at: Ensemble(MAP(_adam(at)), 5),
        "Several ordinary networks, trained from different starts, averaged.",
        share=3.0,
        least=1.0,
    ),
    "laplace": Recipe(
        _laplace,
        "A Gaussian around the most probable weights, as wide as the curvature there says.",
        at_points=True,
        around_mode=True,
        one_pass=True,
    ),
    "mean-field": _variational(
        q.Normal(),
        "The independent Gaussians closest to the posterior (variational inference).",
    ),
    "k-tied": _variational(
        q.KTied(2),
        "The same, with standard deviations tied by a product of rank two.",
    ),
    "rank-1": _variational(
        q.Rank1(4),
        "One network whose layers are multiplied by random factors, in four versions.",
    ),
    "swag": Recipe(
        _swag, "A Gaussian fitted to the path of stochastic gradient descent.", at_points=True, around_mode=True
    ),
    "reference": _sampled("auto", "Draws from the posterior itself, by the sampler that suits the data.", default=True),
    "hmc": _sampled(HMC(), "Draws from the posterior itself, by Hamiltonian Monte Carlo."),
    "nuts": _sampled(NUTS(max_doublings=8), "Draws from the posterior itself, by the No-U-Turn Sampler."),
    "mclmc": _sampled(MCLMC(start="map"), "Draws that are very nearly from the posterior, by microcanonical dynamics."),
    "sghmc": Recipe(
        _sghmc, "Draws roughly from the posterior, by Hamiltonian dynamics with minibatches.", default=False, share=2.0
    ),
}
DEFAULT_METHODS = tuple(name for name, recipe in RECIPES.items() if recipe.default)
OTHER_METHODS = tuple(name for name, recipe in RECIPES.items() if not recipe.default)
REFERENCES = tuple(name for name, recipe in RECIPES.items() if recipe.is_reference)


def recipe_of(method: MethodOrName) -> Recipe:
    """The recipe of a method by its name, or one for a given method, with a length that suits its kind.

    >>> recipe_of(MAP()).attempts(Circumstances(100), None)[0].arguments
    {'steps': 100000, 'batch_size': 100}
    """
    if isinstance(method, str):
        if method.lower() not in RECIPES:
            raise ValueError(f"unknown method {method!r}; there are {', '.join(RECIPES)}, and objects such as px.VI()")
        return RECIPES[method.lower()]
    given: Method | Ensemble = method
    inner = given.method if isinstance(given, Ensemble) else given
    if inner.samples:
        return _sampled(given)
    at_points = isinstance(inner, MAP | Laplace | SWAG)
    if inner.fixed_length:
        epochs = lambda at: max(40, min(200, 200_000 // at.rows))  # noqa: E731
        attempts = lambda at, mode: [RecipeRun(given, {"epochs": epochs(at), "batch_size": min(at.rows, 64)})]  # noqa: E731
        return Recipe(attempts, at_points=at_points)
    return _optimised(lambda at: given, at_points=at_points)
