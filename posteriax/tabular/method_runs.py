"""Fitting every method to one part of the data, each through its scikit-learn estimator, within a time budget."""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

import posteriax as px
from posteriax.evaluation.run_end import RunEnd
from posteriax.tabular.budget import Budget
from posteriax.tabular.estimators import BayesianMLPClassifier, BayesianMLPRegressor
from posteriax.tabular.messages import TableError
from posteriax.tabular.networks import Architecture
from posteriax.tabular.prepared import Prepared
from posteriax.tabular.recipes import RECIPES
from posteriax.tabular.until_converged import MethodFailed

SHARES = {"ensemble": 1.5, "laplace": 1.0, "reference": 6.0, "hmc": 6.0, "nuts": 6.0, "mclmc": 6.0, "sghmc": 2.0}

Tell = Callable[[str], None]


def check_methods(names: Sequence[str]) -> list[str]:
    """The names, each once; an error that lists all methods if one is unknown.

    >>> check_methods(["MAP", "hmc", "map"])
    ['map', 'hmc']
    """
    wanted = list(dict.fromkeys(name.strip().lower() for name in names if name.strip()))
    unknown = [name for name in wanted if name not in RECIPES]
    if unknown or not wanted:
        named = f"unknown method {', '.join(map(repr, unknown))}" if unknown else "no methods named"
        raise TableError(f"{named}; there are {', '.join(RECIPES)}")
    return wanted


def share_out(seconds: float, names: Sequence[str], folds: int) -> Budget:
    """A budget for all methods in all folds: samplers get several times as much as methods that optimise."""
    return Budget(seconds, {f"{name} {fold}": SHARES.get(name, 1.0) for fold in range(folds) for name in names})


def fit_methods(
    names: Sequence[str],
    prepared: Prepared,
    architecture: Architecture,
    prior: Any,
    noise: float | None,
    share: Callable[[str], float],
    seed: int,
    tell: Tell,
    done: Callable[[str, RunEnd], None],
) -> bool:
    """Fit the methods one after the other; whether all could be tried.

    Args:
        names: of the methods.
        prepared: training data.
        architecture: of the network.
        prior: of its weights.
        noise: of a quantity, for methods that keep single sets of weights, if their own would be too small.
        share: the seconds for a method that starts now.
        seed: of the network and of all methods.
        tell: prints a line.
        done: is given each outcome as soon as it is there, so that nothing is lost if the next one is interrupted.
    """
    check_all_classes(prepared)
    mode: RunEnd | None = None
    for name in names:
        given = noise if RECIPES[name].at_points else None
        estimator = estimator_of(name, prepared.target, architecture, prior, given, mode, share(name), seed)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # the outcome says the same
                outcome = estimator.fit(*prepared.train).outcome_
        except MethodFailed as error:
            outcome = error.outcome
        except (px.Interrupted, KeyboardInterrupt):
            tell(f"{name}: interrupted")
            return False
        mode = outcome if name == "map" else mode
        done(name, outcome)
    return True


def estimator_of(
    name: str,
    target: Any,
    architecture: Architecture,
    prior: Any,
    noise: float | None,
    mode: RunEnd | None,
    seconds: float,
    seed: int,
) -> Any:
    """The estimator of a method, given that of "map". Inputs and targets are prepared: it standardises neither."""
    make: Any = BayesianMLPClassifier
    if target.class_names is None:
        likelihood = target.likelihood()
        make = partial(BayesianMLPRegressor, likelihood=likelihood if noise is None else likelihood.with_noise(noise))
    net = architecture.build(seed)
    estimator = make(name, net=net, prior=prior, budget=seconds, standardize=False, random_state=seed)
    return estimator if mode is None else estimator.start_at(mode)


def check_all_classes(prepared: Prepared) -> None:
    """Raise if the training rows lack a class, which no network could then learn."""
    labels = prepared.target.class_names
    if labels is not None:
        lacking = [label for i, label in enumerate(labels) if not (prepared.train[1] == i).any()]
        if lacking:
            raise TableError(
                f"the split leaves no training rows of the class {lacking[0]!r}: use another split, or drop its rows"
            )


def as_line(name: str, outcome: RunEnd, left: float) -> str:
    """What a terminal shows of an outcome.

    >>> as_line("swag", RunEnd("failed", details=("failed: its weights became infinite.",), seconds=3.2), 250.0)
    'swag           failed: its weights became infinite.'
    >>> as_line("map", RunEnd("converged", seconds=3.2), 250.0)
    'map            converged                 3 s   (4:10 left)'
    """
    if outcome.posterior is None and outcome.status == "failed":
        return f"{name:14} {outcome.details[-1] if outcome.details else 'failed'}"
    minutes, seconds = divmod(int(np.ceil(left)), 60)
    return f"{name:14} {outcome.status:22} {outcome.seconds:4.0f} s   ({minutes}:{seconds:02} left)"
