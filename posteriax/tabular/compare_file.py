"""``posteriax compare``: from a file to a report, without writing code."""

import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.markup import escape

import posteriax as px
from posteriax.evaluation.recommend import recommend
from posteriax.evaluation.run_end import RunEnd
from posteriax.tabular.baselines import fit_baselines
from posteriax.tabular.budget import seconds_of
from posteriax.tabular.data_files import prepare_folds, prepare_whole, read_data
from posteriax.tabular.description import Description, save_described
from posteriax.tabular.estimators import in_target_units
from posteriax.tabular.image_preparation import ImagePreparation
from posteriax.tabular.messages import TableError
from posteriax.tabular.method_runs import as_line, check_methods, fit_methods, share_out
from posteriax.tabular.networks import Architecture, choose_network, make_problem
from posteriax.tabular.prepared import Prepared, join_tests
from posteriax.tabular.priors import TUNED, prior_of, tuned_prior
from posteriax.tabular.recipes import DEFAULT_METHODS, REFERENCES
from posteriax.tabular.report_context import context_of, describe_run
from posteriax.tabular.settings import DataSettings

QUICK = 5  # how much less time


@dataclass(frozen=True, kw_only=True)
class CompareSettings(DataSettings):
    """The options of the command line.

    Args:
        methods: by name.
        budget: seconds for all methods together.
        prior: "tuned", "he", or the standard deviation of all weights.
        baselines: whether to fit models of other kinds as well.
        quick: a fifth of the time, and no tuning of the prior.
    """

    methods: Sequence[str] = DEFAULT_METHODS
    budget: float = 300.0
    prior: str = TUNED
    baselines: bool = True
    quick: bool = False

    @property
    def seconds(self) -> float:
        return self.budget / QUICK if self.quick else self.budget


@dataclass(frozen=True, eq=False)
class Fold:
    """One split of the data, with what was fitted to it.

    Args:
        prepared: the data.
        architecture: of the network.
        prior: of its weights.
        outcomes: by method.
        baselines: models of other kinds.
    """

    prepared: Prepared
    architecture: Architecture
    prior: Any
    outcomes: dict[str, RunEnd]
    baselines: dict[str, px.Baseline]

    @property
    def rows(self) -> dict[str, Any]:
        """All that predicts, in the target's units."""
        fitted = {name: outcome.posterior for name, outcome in self.outcomes.items() if outcome.posterior is not None}
        units = {name: in_target_units(posterior, self.prepared.target.units) for name, posterior in fitted.items()}
        return units | self.baselines


def seconds_of_option(text: str) -> float:
    """The value of `--budget` in seconds."""
    try:
        return seconds_of(text)
    except ValueError as error:
        raise TableError(f"--budget: {error}") from error


class Comparing:
    """One call of the command: what it has printed, and how much of its time is left.

    Args:
        settings: the options.
        screen: where lines go.
    """

    def __init__(self, settings: CompareSettings, screen: Any):
        self.settings, self.screen = settings, screen
        self.log: list[str] = []
        self.names = check_methods(settings.methods)

    def say(self, text: str) -> None:
        self.log.append(text)
        self.screen.print(escape(text), highlight=False, soft_wrap=True)
        self.screen.file.flush()  # so that a pipe gets each line at once

    def fit(self, prepared: Prepared, number: int, budget: Any, save: Any = None) -> tuple[Fold, bool]:
        """All methods and baselines on one split; and whether it was left in peace."""
        settings, seed = self.settings, self.settings.seed
        preparation, (x, y) = prepared.preparation, prepared.train
        pixels = (preparation.mean, preparation.scale) if isinstance(preparation, ImagePreparation) else (0.0, 1.0)
        architecture = choose_network(x.shape[1:], prepared.target.outputs, len(y), *pixels)
        problem = make_problem(architecture, prepared.target, seed, prior_of(settings.prior))
        prior, noise = problem.prior, None
        if settings.prior == TUNED and not settings.quick and x.ndim == 2:
            prior, noise, line = tuned_prior(problem, (x, y), seed)
            self.say(line)
        outcomes: dict[str, RunEnd] = {}

        def done(name: str, outcome: RunEnd) -> None:
            outcomes[name] = outcome
            self.say(as_line(name, outcome, budget.left()))
            if save is not None and outcome.posterior is not None:
                save(name, outcome.posterior, Description(name, architecture, preparation))

        share = lambda name: budget.share(f"{name} {number}")  # noqa: E731
        whole = fit_methods(self.names, prepared, architecture, prior, noise, share, seed, self.say, done)
        baselines = {}
        if settings.baselines and whole:
            task: Any = "classification" if prepared.target.class_names else "regression"
            baselines = fit_baselines(x, prepared.target.restore(y), task, classes=prepared.target.outputs, seed=seed)
        return Fold(prepared, architecture, prior, outcomes, baselines), whole


def run_compare(data: Path, out: Path, folder: Path, settings: CompareSettings, screen: Any) -> px.Comparison:
    """Fit every method to a file's data, save each posterior as it is done, compare them, and write the report."""
    began = time.monotonic()
    comparing = Comparing(settings, screen)
    say = comparing.say
    source = read_data(data)
    splits = prepare_folds(source, settings)
    for place in (folder, out.parent):  # first, so that a folder that cannot be written to is an error at once
        place.mkdir(parents=True, exist_ok=True)
    _introduce(say, data, splits, settings)
    budget = share_out(settings.seconds, comparing.names, len(splits))
    files: dict[str, str] = {}

    def save(name: str, posterior: px.Posterior, description: Description) -> None:
        path = folder / f"{name}.posterior"
        save_described(posterior, description, path)
        files[name] = str(path)

    folds, whole = [], True
    for number, prepared in enumerate(splits):
        if len(splits) > 1:
            say(f"fold {number + 1} of {len(splits)}")
        fold, whole = comparing.fit(prepared, number, budget, save if len(splits) == 1 else None)
        folds.append(fold)
        if not whole:
            break
    comparison = compare_folds(folds)
    advice = recommend(comparison)
    if len(splits) > 1 and whole and advice.posterior is not None:
        say(f"{advice.posterior} once more, with all rows, to predict new ones")
        final = Comparing(replace(settings, methods=[advice.posterior], baselines=False), screen)
        again = share_out(max(budget.left(), settings.seconds / 4), final.names, 1)
        final.fit(prepare_whole(source, settings), 0, again, save)
    say("")
    screen.print(comparison)  # with the recommendation
    comparing.log.append(str(comparison))
    command = shlex.join(["posteriax", *sys.argv[1:]]) if sys.argv[1:2] == ["compare"] else ""
    context = context_of(data, folds, settings.seconds, files, command, "\n".join(comparing.log), comparison)
    title = f"{data.name}: which posterior predicts {folds[0].prepared.target.name} best"
    comparison.to_html(out, title=title, context=context)
    predict = context.predict_with(advice.posterior)
    say(f"\nThe report is {out}" + (f"; for new rows: {predict}" if predict else ""))
    say(f"Total time: {time.monotonic() - began:.0f} s.")
    return comparison


def compare_folds(folds: Sequence[Fold]) -> px.Comparison:
    """The comparison of one split, or of the joined predictions of several."""
    first, ends = folds[0], describe_run([fold.outcomes for fold in folds])
    names = [name for name in first.rows if all(name in fold.rows for fold in folds)]
    if not any(name in fold.outcomes for fold in folds for name in names):
        reasons = "; ".join(f"{name}: {end.details[-1]}" for name, end in ends.items() if end.details)
        raise TableError(f"no method could be fitted{': ' if reasons else ''}{reasons}")
    reference = next((name for name in names if name in REFERENCES), None)
    reference = reference if len(names) > 1 else None
    labels = first.prepared.target.class_names
    if len(folds) == 1:
        test = first.prepared.test[0], first.prepared.y_test
        return px.compare(first.rows, test, reference=reference, class_names=labels, runs=ends)
    predicted = {
        name: px.join_examples([fold.rows[name].predict(fold.prepared.test[0]) for fold in folds]) for name in names
    }
    tests = join_tests([fold.prepared for fold in folds])
    numbers = np.asarray(tests.rows, np.float32)[:, None]  # inputs differ from fold to fold
    return px.compare(predicted, (numbers, tests.y), reference=reference, class_names=labels, runs=ends)


def _introduce(say: Any, data: Path, splits: Sequence[Prepared], settings: CompareSettings) -> None:
    first = splits[0]
    rows = len(first.train[1]) + len(first.test[1])
    tested = f"{len(first.train[1])} training rows, {len(first.test[1])} test rows"
    if len(splits) > 1:
        tested = f"{rows} rows, each tested once, in {len(splits)} folds"
    minutes = f"{settings.seconds / 60:.3g} min" if settings.seconds >= 60 else f"{settings.seconds:.3g} s"
    say(f"{data.name}: {tested}; {first.target.name!r} is {first.target.describe()}. At most {minutes} of fitting.")
    for note in first.notes:
        say(f"note: {note}")
