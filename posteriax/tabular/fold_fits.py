"""All methods fitted to one fold, each by its scikit-learn estimator, within a time budget."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from posteriax import priors as p
from posteriax._internal.interruption import Interrupted
from posteriax.evaluation import Baseline, RunEnd
from posteriax.posterior.posterior import Posterior
from posteriax.priors.prior import Prior
from posteriax.problem import Problem
from posteriax.tabular.estimators import (
    BayesianEstimator,
    BayesianMLPClassifier,
    BayesianMLPRegressor,
    in_target_units,
)
from posteriax.tabular.folds import Fold
from posteriax.tabular.messages import TableError
from posteriax.tabular.networks import Architecture
from posteriax.tabular.point_noise import underestimates_noise
from posteriax.tabular.recipes import RECIPES
from posteriax.tabular.targets import Target
from posteriax.tabular.until_converged import MethodFailed

TUNED = "tuned"
ROUNDS = 100
FEW_ROUNDS = 20  # enough for the scales; the noise of many rows takes longer to settle, and is not needed

PriorByLeaf = Prior | Mapping[str, Prior]


@dataclass(frozen=True, eq=False)
class FittedFold:
    """A fold of the data, with what was fitted to it.

    Args:
        data: training and test rows.
        architecture: of the network.
        prior: of its weights.
        outcomes: by method.
        baselines: models of other kinds.
    """

    data: Fold
    architecture: Architecture
    prior: PriorByLeaf
    outcomes: dict[str, RunEnd]
    baselines: dict[str, Baseline]

    @property
    def predictors(self) -> dict[str, Posterior | Baseline]:
        """All that predicts, by name, in the target's units."""
        fitted = {name: outcome.posterior for name, outcome in self.outcomes.items() if outcome.posterior is not None}
        units = self.data.target.units
        return {name: in_target_units(posterior, units) for name, posterior in fitted.items()} | self.baselines


def make_problem(architecture: Architecture, target: Target, seed: int, prior: PriorByLeaf = p.HeNormal()) -> Problem:
    """The network with its likelihood (for regression with learned noise) and its prior.

    >>> from posteriax.tabular.networks import choose_network
    >>> from posteriax.tabular.targets import Classes
    >>> make_problem(choose_network((4,), 2, 100), Classes("kind", ("elm", "oak")), 0).prior
    HeNormal(gain=2.0, bias_scale=1.0)
    """
    return Problem(architecture.build(seed), target.likelihood(), prior=prior)


def check_methods(names: Sequence[str]) -> list[str]:
    """The names, each once; an error that lists all methods if one is unknown.

    >>> check_methods(["MAP", "hmc", "map"])
    ['map', 'hmc']
    """
    methods = list(dict.fromkeys(name.strip().lower() for name in names if name.strip()))
    unknown = [name for name in methods if name not in RECIPES]
    if unknown or not methods:
        problem = f"unknown method {', '.join(map(repr, unknown))}" if unknown else "no methods named"
        raise TableError(f"{problem}; there are {', '.join(RECIPES)}")
    return methods


def prior_by_name(text: str) -> Prior:
    """The prior that `--prior` names; for "tuned", the one that tuning starts from.

    >>> prior_by_name("he"), prior_by_name("0.5")
    (HeNormal(gain=2.0, bias_scale=1.0), Normal(scale=0.5, loc=0.0))
    """
    if text in (TUNED, "he"):
        return p.HeNormal()
    try:
        return p.Normal(scale=float(text))
    except ValueError:
        raise TableError(
            f"--prior must be tuned, he, or the standard deviation of all weights, such as 0.5; got {text!r}"
        ) from None


def tuned_prior(
    problem: Problem, data: tuple[np.ndarray, np.ndarray], seed: int
) -> tuple[PriorByLeaf, float | None, str]:
    """Prior scales, one for each leaf, under which the data are most probable, the noise, and a line about them.

    The noise is None unless that at the most probable weights would be too small. If the scales cannot be found, the
    prior is that of the problem, and the line says why.
    """
    few_rows = underestimates_noise(problem, len(data[1]))
    try:
        tuned = p.tune(problem, data, noise="learned", key=seed, rounds=ROUNDS if few_rows else FEW_ROUNDS)
    except (FloatingPointError, ValueError, RuntimeError) as error:
        return problem.prior, None, f"the prior could not be tuned ({error}): N(0, 2 / fan-in) is used"
    scales = [scale for name, scale in tuned.tuning.scales.items() if "bias" not in name]
    listed = ", ".join(f"{scale:.2g}" for scale in scales)
    return (
        tuned.prior,
        tuned.tuning.noise if few_rows else None,
        f"prior: the standard deviations of the layers' weights that make the data most probable, {listed}",
    )


def fit_methods(
    names: Sequence[str],
    data: Fold,
    architecture: Architecture,
    prior: PriorByLeaf,
    *,
    noise: float | None,
    share: Callable[[str], float],
    seed: int,
    done: Callable[[str, RunEnd], None],
) -> str | None:
    """Fit the methods in turn. Returns the name of the method that the user interrupted, if any.

    Args:
        names: of the methods.
        data: training rows.
        architecture: of the network.
        prior: of its weights.
        noise: of a quantity, for methods that keep single sets of weights, if that at the mode would be too small.
        share: the seconds for a method that starts now.
        seed: of the network and of all methods.
        done: called with each outcome as soon as it is available, so that nothing is lost if the next method is
            interrupted.
    """
    check_all_classes(data)
    mode: RunEnd | None = None
    for name in names:
        point_noise = noise if RECIPES[name].at_points else None
        estimator = make_estimator(name, data.target, architecture, prior, point_noise, mode, share(name), seed)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # the outcome says the same
                outcome = estimator.fit(*data.train).outcome_
        except MethodFailed as error:
            outcome = error.outcome
        except (Interrupted, KeyboardInterrupt):
            return name
        mode = outcome if name == "map" else mode
        done(name, outcome)
    return None


def make_estimator(
    name: str,
    target: Target,
    architecture: Architecture,
    prior: PriorByLeaf,
    noise: float | None,
    mode: RunEnd | None,
    seconds: float,
    seed: int,
) -> BayesianEstimator:
    """The estimator of a method, given the result of "map". It standardises nothing: the rows are prepared."""
    net = architecture.build(seed)
    estimator: BayesianEstimator
    if target.class_names is not None:
        estimator = BayesianMLPClassifier(
            name, net=net, prior=prior, budget=seconds, standardize=False, random_state=seed
        )
    else:
        likelihood = target.likelihood() if noise is None else target.likelihood().with_noise(noise)
        estimator = BayesianMLPRegressor(
            name, net=net, likelihood=likelihood, prior=prior, budget=seconds, standardize=False, random_state=seed
        )
    return estimator if mode is None else estimator.start_at(mode)


def check_all_classes(data: Fold) -> None:
    """Raise if the training rows lack a class, which no network could then learn."""
    labels = data.target.class_names
    if labels is not None:
        lacking = [label for i, label in enumerate(labels) if not (data.train[1] == i).any()]
        if lacking:
            raise TableError(
                f"the split leaves no training rows of the class {lacking[0]!r}: use another split, or drop its rows"
            )
