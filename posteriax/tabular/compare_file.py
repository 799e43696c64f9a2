"""``posteriax compare``: from a file to a report, without writing code.

A scikit-learn pipeline, for every method: a preparation of the file's rows (preparation.py), the estimator of the
method (estimators.py), and then one comparison of all.
"""

import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from rich.console import Console
from rich.markup import escape

from posteriax.evaluation import Baseline, Comparison, RunEnd, compare, recommend
from posteriax.likelihoods.joined import join_examples
from posteriax.posterior.posterior import Posterior
from posteriax.tabular.baselines import fit_baselines
from posteriax.tabular.budget import Budget, seconds_of
from posteriax.tabular.data_files import read_data
from posteriax.tabular.description import Description, save_described
from posteriax.tabular.fold_fits import (
    TUNED,
    FittedFold,
    check_methods,
    fit_methods,
    make_problem,
    prior_by_name,
    tuned_prior,
)
from posteriax.tabular.folds import Fold, join_tests, prepare_all_rows, prepare_folds
from posteriax.tabular.messages import TableError
from posteriax.tabular.networks import choose_network
from posteriax.tabular.preparation import ImagePreparation
from posteriax.tabular.recipes import DEFAULT_METHODS, RECIPES, REFERENCES
from posteriax.tabular.report_context import report_context
from posteriax.tabular.settings import DataSettings

QUICK = 5  # how much less time
WORST_FIRST = ("failed", "not converged", "stopped at the budget", "converged")

Save = Callable[[str, Posterior, Description], None]


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


def budget_seconds(text: str) -> float:
    """The value of `--budget` in seconds."""
    try:
        return seconds_of(text)
    except ValueError as error:
        raise TableError(f"--budget: {error}") from error


def compare_file(data: Path, out: Path, folder: Path, settings: CompareSettings, screen: Console) -> Comparison:
    """Fit every method to a file's data, save each posterior as it is done, compare them, and write the report.

    Args:
        data: the file.
        out: the report.
        folder: for the posteriors.
        settings: the options.
        screen: where lines go.
    """
    began = time.monotonic()
    run = CompareRun(settings, screen)
    say = run.say
    source = read_data(data)
    splits = prepare_folds(source, settings)
    for parent in (folder, out.parent):  # first, so that a folder that cannot be written to is an error at once
        parent.mkdir(parents=True, exist_ok=True)
    _introduce(say, data, splits, settings)
    budget = share_out(settings.seconds, run.names, len(splits))
    files: dict[str, str] = {}

    def save(name: str, posterior: Posterior, description: Description) -> None:
        path = folder / f"{name}.posterior"
        save_described(posterior, description, path)
        files[name] = str(path)

    folds, finished = [], True
    for number, fold in enumerate(splits):
        if len(splits) > 1:
            say(f"fold {number + 1} of {len(splits)}")
        fitted, finished = run.fit(fold, number, budget, save if len(splits) == 1 else None)
        folds.append(fitted)
        if not finished:
            break
    comparison = compare_folds(folds)
    advice = recommend(comparison)
    if len(splits) > 1 and finished and advice.posterior is not None:
        say(f"{advice.posterior} once more, with all rows, to predict new ones")
        final = CompareRun(replace(settings, methods=[advice.posterior], baselines=False), screen)
        again = share_out(max(budget.left(), settings.seconds / 4), final.names, 1)
        final.fit(prepare_all_rows(source, settings), 0, again, save)
    say("")
    screen.print(comparison)  # with the recommendation
    run.log.append(str(comparison))
    command = shlex.join(["posteriax", *sys.argv[1:]]) if sys.argv[1:2] == ["compare"] else ""
    context = report_context(data, folds, settings.seconds, files, command, "\n".join(run.log), comparison)
    title = f"{data.name}: which posterior predicts {folds[0].data.target.name} best"
    comparison.to_html(out, title=title, context=context)
    predict = context.predict_with(advice.posterior)
    say(f"\nThe report is {out}" + (f"; for new rows: {predict}" if predict else ""))
    say(f"Total time: {time.monotonic() - began:.0f} s.")
    return comparison


class CompareRun:
    """One call of the command: its methods, and what it has printed.

    Args:
        settings: the options.
        screen: where lines go.
    """

    def __init__(self, settings: CompareSettings, screen: Console):
        self.settings, self.screen = settings, screen
        self.log: list[str] = []
        self.names = check_methods(settings.methods)

    def say(self, text: str) -> None:
        self.log.append(text)
        self.screen.print(escape(text), highlight=False, soft_wrap=True)
        self.screen.file.flush()  # so that a pipe gets each line at once

    def fit(self, fold: Fold, number: int, budget: Budget, save: Save | None = None) -> tuple[FittedFold, bool]:
        """Fit all methods and baselines to a fold. Returns False, besides what was fitted, if the user interrupted."""
        settings, seed = self.settings, self.settings.seed
        preparation, target, (x, y) = fold.preparation, fold.target, fold.train
        pixels = (preparation.mean_, preparation.scale_) if isinstance(preparation, ImagePreparation) else (0.0, 1.0)
        architecture = choose_network(x.shape[1:], target.outputs, len(y), *pixels)
        problem = make_problem(architecture, target, seed, prior_by_name(settings.prior))
        prior, noise = problem.prior, None
        if settings.prior == TUNED and not settings.quick and x.ndim == 2:
            prior, noise, line = tuned_prior(problem, (x, y), seed)
            self.say(line)
        outcomes: dict[str, RunEnd] = {}

        def done(name: str, outcome: RunEnd) -> None:
            outcomes[name] = outcome
            self.say(as_line(name, outcome, budget.left()))
            if save is not None and outcome.posterior is not None:
                save(name, outcome.posterior, Description(name, architecture, preparation, target))

        share = lambda name: budget.share(f"{name} {number}")  # noqa: E731
        interrupted = fit_methods(self.names, fold, architecture, prior, noise=noise, share=share, seed=seed, done=done)
        baselines: dict[str, Baseline] = {}
        if interrupted is not None:
            self.say(f"{interrupted}: interrupted")
        elif settings.baselines:
            task: Literal["classification", "regression"] = "classification" if target.class_names else "regression"
            baselines = fit_baselines(x, target.restore(y), task, classes=target.outputs, seed=seed)
        return FittedFold(fold, architecture, prior, outcomes, baselines), interrupted is None


def share_out(seconds: float, names: Sequence[str], folds: int) -> Budget:
    """A budget for all methods in all folds, in proportion to their recipes' shares."""
    return Budget(seconds, {f"{name} {fold}": RECIPES[name].share for fold in range(folds) for name in names})


def compare_folds(folds: Sequence[FittedFold]) -> Comparison:
    """The comparison of one split, or of the joined predictions of several."""
    first, ends = folds[0].predictors, worst_ends([fold.outcomes for fold in folds])
    predictors = [first, *(fold.predictors for fold in folds[1:])]
    names = [name for name in first if all(name in by_name for by_name in predictors)]
    if not any(name in fold.outcomes for fold in folds for name in names):
        reasons = "; ".join(f"{name}: {end.details[-1]}" for name, end in ends.items() if end.details)
        raise TableError(f"no method could be fitted{': ' if reasons else ''}{reasons}")
    reference = next((name for name in names if name in REFERENCES), None)
    reference = reference if len(names) > 1 else None
    data = folds[0].data
    labels = data.target.class_names
    if len(folds) == 1:
        return compare(first, (data.test[0], data.y_test), reference=reference, class_names=labels, runs=ends)
    predicted = {
        name: join_examples(
            [by_name[name].predict(fold.data.test[0]) for by_name, fold in zip(predictors, folds, strict=True)]
        )
        for name in names
    }
    tests = join_tests([fold.data for fold in folds])
    numbers = np.asarray(tests.rows, np.float32)[:, None]  # inputs differ from fold to fold
    return compare(predicted, (numbers, tests.y), reference=reference, class_names=labels, runs=ends)


def worst_ends(outcomes: Sequence[Mapping[str, RunEnd]]) -> dict[str, RunEnd]:
    """How each method ended; of several folds, in the one where it ended worst.

    >>> worst_ends([{"map": RunEnd("converged")}, {"map": RunEnd("failed")}])["map"].status
    'failed'
    """
    ends = {}
    for name in outcomes[0]:
        runs = [fold[name] for fold in outcomes if name in fold]
        worst = min(runs, key=lambda run: WORST_FIRST.index(run.status))
        ends[name] = replace(worst, seconds=sum(run.seconds for run in runs), posterior=None)
    return ends


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


def _introduce(say: Callable[[str], None], data: Path, splits: Sequence[Fold], settings: CompareSettings) -> None:
    first = splits[0]
    rows = len(first.train[1]) + len(first.test[1])
    tested = f"{len(first.train[1])} training rows, {len(first.test[1])} test rows"
    if len(splits) > 1:
        tested = f"{rows} rows, each tested once, in {len(splits)} folds"
    minutes = f"{settings.seconds / 60:.3g} min" if settings.seconds >= 60 else f"{settings.seconds:.3g} s"
    say(f"{data.name}: {tested}; {first.target.name!r} is {first.target.describe()}. At most {minutes} of fitting.")
    for note in first.notes:
        say(f"note: {note}")
