"""``posteriax compare``: from a file to a report, without writing code.

For every method a scikit-learn pipeline: a preparation of the file's rows (preparation.py), then the estimator of the
method (estimators.py). Then one comparison of all, and a report that also tells what was done, in the file's terms.
"""

import math
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.markup import escape
from sklearn.exceptions import ConvergenceWarning

from posteriax import priors as p
from posteriax._internal.interruption import Interrupted
from posteriax.evaluation import (
    Comparison,
    Feature,
    PartialDependence,
    ReportContext,
    RunEnd,
    TableRows,
    compare,
    partial_dependence,
    recommend,
)
from posteriax.evaluation.comparison import NOT_SCORED
from posteriax.evaluation.stacking import Stacked
from posteriax.likelihoods.joined import join_examples
from posteriax.likelihoods.normal import Normal
from posteriax.posterior.posterior import Posterior
from posteriax.priors.prior import Prior
from posteriax.problem import Problem
from posteriax.tabular.baseline_files import SavableBaseline
from posteriax.tabular.baselines import MODELS_OF_NUMBERS, BaselineTask, fit_baselines
from posteriax.tabular.columns import Category, Number
from posteriax.tabular.data_files import read_data
from posteriax.tabular.description import Description, save_described
from posteriax.tabular.estimators import (
    ENOUGH_TO_PREDICT_NOISE,
    BayesianEstimator,
    BayesianMLPClassifier,
    BayesianMLPRegressor,
    ensemble_end,
    in_target_units,
)
from posteriax.tabular.folds import Fold, join_tests, prepare_all_rows, prepare_folds
from posteriax.tabular.held_out_choice import (
    Choice,
    Perceptron,
    choose,
    fit_ensemble,
    networks_for,
    predicts_noise,
)
from posteriax.tabular.messages import TableError
from posteriax.tabular.networks import Architecture, choose_network
from posteriax.tabular.point_noise import underestimates_noise
from posteriax.tabular.preparation import ImagePreparation, TablePreparation
from posteriax.tabular.recipes import DEFAULT_METHODS, RECIPES, REFERENCES
from posteriax.tabular.splitting import DataSettings
from posteriax.tabular.stacked_file import ENDING, STACKED, save_stack, stacked_from, weigh_parts
from posteriax.tabular.targets import Counts, Fractions, Quantities, Quantity, Target, Times
from posteriax.tabular.time_plan import TimePlan, compiler_seconds
from posteriax.tabular.until_converged import MethodFailed, seconds_of

QUICK = 5  # --quick divides the time by this
WORST_FIRST = ("failed", "skipped", "not converged", "stopped at the budget", "converged")

TUNED = "tuned"  # the value of --prior
CHOSEN = "ensemble"  # the method that is fitted with what held-out rows say
ROUNDS = 100  # of tuning
FEW_ROUNDS = 20  # enough for the scales; the noise of many rows takes longer to settle, and is not needed

Save = Callable[[str, Posterior | SavableBaseline, Description], None]
PriorByLeaf = Prior | Mapping[str, Prior]


@dataclass(frozen=True, kw_only=True)
class CompareSettings(DataSettings):
    """The options of the command line.

    Args:
        methods: by name.
        budget: seconds for everything, the report included.
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


@dataclass(frozen=True, eq=False)
class FittedFold:
    """A fold of the data, with what was fitted to it.

    Args:
        data: training and test rows.
        architecture: of the network.
        prior: of its weights.
        outcomes: by method.
        baselines: models of other kinds.
        weights: of the parts of the stacked row, and the log scores they come from.
    """

    data: Fold
    architecture: Architecture
    prior: PriorByLeaf
    outcomes: dict[str, RunEnd]
    baselines: dict[str, SavableBaseline]
    weights: tuple[dict[str, float], np.ndarray] | None = None

    @property
    def predictors(self) -> dict[str, Posterior | SavableBaseline | Stacked]:
        """All that predicts, by name, in the target's units."""
        rows: dict[str, Posterior | SavableBaseline | Stacked] = {
            name: in_target_units(outcome.posterior, self.data.target.units)
            for name, outcome in self.outcomes.items()
            if outcome.posterior is not None
        }
        rows |= self.baselines
        if self.weights is not None and all(name in rows for name in self.weights[0]):
            rows[STACKED] = stacked_from(rows, *self.weights)
        return rows


def compare_file(
    data: Path, out: Path, folder: Path, settings: CompareSettings, screen: Console, began: float | None = None
) -> Comparison:
    """Fit every method to a file's data, save each posterior as it is done, compare them, and write the report.

    Args:
        data: the file.
        out: the report.
        folder: for the posteriors.
        settings: the options.
        screen: where lines go.
        began: when the command did, by `time.monotonic`; by default now.
    """
    began = time.monotonic() if began is None else began
    run = CompareRun(settings, screen)
    say = run.say
    source = read_data(data)
    splits = prepare_folds(source, settings)
    for parent in (folder, out.parent):  # first, so that a folder that cannot be written to is an error at once
        parent.mkdir(parents=True, exist_ok=True)
    # of several folds, the one that is recommended is fitted to all rows as well
    plan = TimePlan(
        settings.seconds,
        run.names,
        folds=len(splits) + (len(splits) > 1),
        baselines=(len(MODELS_OF_NUMBERS) + 1) * settings.baselines,  # and the stacked row
        began=began,
    )
    _introduce(say, data, splits, settings, plan)
    files: dict[str, str] = {}

    def save(name: str, model: Posterior | SavableBaseline, description: Description) -> None:
        ending = "baseline" if isinstance(model, SavableBaseline) else "posterior"
        path = folder / f"{name.replace(' ', '-')}.{ending}"
        save_described(model, description, path)
        files[name] = str(path)

    folds, finished = [], True
    for number, fold in enumerate(splits):
        if len(splits) > 1:
            say(f"fold {number + 1} of {len(splits)}")
        fitted, finished = run.fit(fold, plan, save if len(splits) == 1 else None)
        folds.append(fitted)
        plan.next_fold()
        if not finished:
            break
    comparison = compare_folds(folds)
    advice = recommend(comparison)
    if len(splits) > 1 and finished:
        fold = prepare_all_rows(source, settings)
        again = [name for name in (advice.posterior, CHOSEN if advice.name == STACKED else None) if name is not None]
        if again:
            say(f"{' and '.join(dict.fromkeys(again))} once more, with all rows, to predict new ones")
            final = CompareRun(replace(settings, methods=again, baselines=advice.name == STACKED), screen)
            fitted, _ = final.fit(fold, TimePlan(plan.left() + plan.to_compare, final.names, baselines=0), save)
            save_stacked(fitted, folder, files, save)
        if advice.name in folds[0].baselines:
            baselines = fit_baselines_to(fold, settings.seed, [advice.name])
            save(advice.name, baselines[advice.name], Description(advice.name, None, fold.preparation, fold.target))
    elif advice.name in folds[0].baselines and len(splits) == 1:
        data_of = folds[0].data
        baseline = folds[0].baselines[advice.name]
        save(advice.name, baseline, Description(advice.name, None, data_of.preparation, data_of.target))
    if len(splits) == 1:
        save_stacked(folds[0], folder, files, save)
    say("")
    screen.print(comparison)  # with the recommendation
    run.log.append(str(comparison))
    command = shlex.join(["posteriax", *sys.argv[1:]]) if sys.argv[1:2] == ["compare"] else ""
    context = report_context(data, folds, settings.seconds, files, command, "\n".join(run.log), comparison)
    title = f"{data.name}: which posterior predicts {folds[0].data.target.name} best"
    comparison.to_html(out, title=title, context=context)
    predict = context.predict_with(advice.name) or context.predict_with(advice.posterior)
    say(f"\nThe report is {out}" + (f"; for new rows: {predict}" if predict else ""))
    say(f"Total time: {time.monotonic() - began:.0f} s.")
    return comparison


def save_stacked(fitted: FittedFold, folder: Path, files: dict[str, str], save: Save) -> None:
    """Save the stacked row, if there is one: those of its parts that are not saved yet, and a file that names them."""
    stacked = fitted.predictors.get(STACKED)
    if not isinstance(stacked, Stacked):
        return
    for name in stacked.models.keys() & fitted.baselines.keys():
        data = fitted.data
        save(name, fitted.baselines[name], Description(name, None, data.preparation, data.target))
    path = folder / f"{STACKED}{ENDING}"
    save_stack(path, [(name, Path(files[name]), weight) for name, weight in stacked.weights.items()])
    files[STACKED] = str(path)


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

    def fit(self, fold: Fold, plan: TimePlan, save: Save | None = None) -> tuple[FittedFold, bool]:
        """Fit all methods and baselines to a fold. Returns False, besides what was fitted, if the user interrupted."""
        settings, seed = self.settings, self.settings.seed
        preparation, target, (x, y) = fold.preparation, fold.target, fold.train
        pixels = (preparation.mean_, preparation.scale_) if isinstance(preparation, ImagePreparation) else (0.0, 1.0)
        architecture = choose_network(x.shape[1:], target.outputs, len(y), *pixels)
        baselines: dict[str, SavableBaseline] = {}
        outcomes: dict[str, RunEnd] = {}
        fitted = FittedFold(fold, architecture, prior_by_name(settings.prior), outcomes, baselines)
        if settings.baselines and isinstance(target, Times | Quantities):
            what = "censored times" if isinstance(target, Times) else "several targets at once"
            self.say(f"note: no baselines, which are not made for {what}")
        elif settings.baselines:
            try:
                baselines |= fit_baselines_to(fold, seed, seconds=plan.for_baselines())
            except (Interrupted, KeyboardInterrupt):
                self.say("baselines: interrupted")
                return fitted, False
            self.say(as_line("baselines", RunEnd("converged", seconds=_seconds(baselines)), plan.left(), "fitted"))
        choice: Choice | None = None
        if x.ndim == 2 and settings.prior == TUNED:
            choice = choose_for(fold, settings, plan.for_tuning())
            if choice is not None:
                self.say(choice.words)
                architecture = as_architecture(choice.perceptron)
                weights = self._weigh(fold, choice, baselines, plan)
                target = with_noise_of(target, choice)
                fold = replace(fold, target=target)
                fitted = replace(fitted, data=fold, architecture=architecture, weights=weights)
        problem = make_problem(architecture, target, seed, prior_by_name(settings.prior))
        prior, noise = problem.prior, None
        if settings.prior == TUNED and not settings.quick and x.ndim == 2:
            # where the network, the noise and one scale are chosen, a scale for each layer is worth half as much time
            seconds = plan.for_tuning() * (1.0 if choice is None else 0.5)
            prior, noise, line = tuned_prior(problem, (x, y), seed, seconds)
            self.say(line)
        if (
            noise is None
            and choice is not None
            and choice.log_noise is not None
            and underestimates_noise(problem, len(y))
        ):
            noise = math.exp(choice.log_noise)  # the evidence would take its time to say much the same
        compiled = compiler_seconds()

        def done(name: str, outcome: RunEnd) -> None:
            outcomes[name] = outcome
            plan.compiled(compiler_seconds() - compiled)
            self.say(as_line(name, outcome, plan.left()))
            if save is not None and outcome.posterior is not None:
                save(name, outcome.posterior, Description(name, architecture, preparation, target))

        interrupted = fit_methods(
            self.names, fold, architecture, prior, noise=noise, choice=choice, share=plan.share, seed=seed, done=done
        )
        if interrupted is not None:
            self.say(f"{interrupted}: interrupted")
        return replace(fitted, prior=prior), interrupted is None

    def _weigh(
        self, fold: Fold, choice: Choice, baselines: Mapping[str, SavableBaseline], plan: TimePlan
    ) -> tuple[dict[str, float], np.ndarray] | None:
        """The weights of the stacked row; None if there is none, or no time to fit the baselines once more."""
        seconds = plan.for_baselines()
        if CHOSEN not in self.names or _seconds(baselines) > seconds:
            return None
        found = weigh_parts(fold, choice, CHOSEN, baselines, self.settings.seed, seconds)
        if found is not None:
            used = ", ".join(f"{name} {weight:.2f}" for name, weight in found[0].items() if weight > 0)
            self.say(f"stacked: weights by the log score of held-out rows, {used}")
        return found


def _seconds(baselines: Mapping[str, SavableBaseline]) -> float:
    return sum(baseline.seconds for baseline in baselines.values())


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


def choose_for(fold: Fold, settings: CompareSettings, seconds: float) -> Choice | None:
    """The network, the noise and the prior's scale that held-out training rows prefer."""
    (x, y), target = fold.train, fold.target
    if isinstance(target, Counts | Fractions | Times):
        networks, others = networks_for(0), []
    else:
        networks = networks_for(len(y))
        enough = isinstance(target, Quantity | Quantities) and len(y) >= ENOUGH_TO_PREDICT_NOISE
        others = [(Normal(scale="predicted"), 2 * target.outputs)] if enough else []
    perceptrons = [
        Perceptron(x.shape[1], hidden, target.outputs, activation, target.likelihood(), equinox=True)
        for hidden, activation in networks
    ]
    return choose(perceptrons, (x, y), seed=settings.seed, others=others, seconds=seconds)


def as_architecture(perceptron: Perceptron) -> Architecture:
    """As a file stores it."""
    hidden, inputs = perceptron.hidden, (perceptron.inputs,)
    return Architecture("table", inputs, perceptron.outputs, hidden[0], len(hidden), perceptron.activation)


def with_noise_of(target: Target, choice: Choice) -> Target:
    """The target with noise that is constant or predicted, as was chosen."""
    if not (isinstance(target, Quantity | Quantities) and predicts_noise(choice.perceptron.likelihood)):
        return target
    return replace(target, noise="predicted")


def make_problem(architecture: Architecture, target: Target, seed: int, prior: PriorByLeaf = p.HeNormal()) -> Problem:
    """The network with its likelihood (for regression with learned noise) and its prior.

    >>> from posteriax.tabular.networks import choose_network
    >>> from posteriax.tabular.targets import Classes
    >>> make_problem(choose_network((4,), 2, 100), Classes("kind", ("elm", "oak")), 0).prior
    HeNormal(gain=2.0, bias_scale=1.0)
    """
    return Problem(architecture.build(seed), target.likelihood(), prior=prior)


def tuned_prior(
    problem: Problem, data: tuple[np.ndarray, np.ndarray], seed: int, seconds: float | None = None
) -> tuple[PriorByLeaf, float | None, str]:
    """Prior scales, one for each leaf, under which the data are most probable, the noise, and a line about them.

    The noise is None unless that at the most probable weights would be too small. If the scales cannot be found, the
    prior is that of the problem, and the line says why.
    """
    few_rows = underestimates_noise(problem, len(data[1]))
    try:
        rounds = ROUNDS if few_rows else FEW_ROUNDS
        tuned = p.tune(problem, data, noise="learned", key=seed, rounds=rounds, seconds=seconds)
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
    choice: Choice | None = None,
    share: Callable[[str], float | None],
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
        choice: what held-out rows say, with which an ensemble is fitted; None if they were not asked.
        share: the seconds for a method that starts now; None if there are none for it.
        seed: of the network and of all methods.
        done: called with each outcome as soon as it is available, so that nothing is lost if the next method is
            interrupted.
    """
    mode: RunEnd | None = None
    for name in names:
        seconds = share(name)
        if seconds is None:
            done(name, RunEnd("skipped", ("skipped: no time left",), 0.0))
            continue
        if name == CHOSEN and choice is not None:
            try:
                posterior = fit_ensemble(choice, data.train, seed=seed, seconds=seconds)
            except (Interrupted, KeyboardInterrupt):
                return name
            done(name, ensemble_end(posterior))
            continue
        point_noise = noise if RECIPES[name].at_points else None
        estimator = make_estimator(name, data.target, architecture, prior, point_noise, mode, seconds, seed)
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


def fit_baselines_to(
    fold: Fold, seed: int, names: Sequence[str] | None = None, seconds: float | None = None
) -> dict[str, SavableBaseline]:
    """All baselines, or those named, fitted to the training rows, with targets in their own units."""
    (x, y), target = fold.train, fold.target
    task: BaselineTask = "classification" if target.class_names else "regression"
    classes = None if target.class_names is None else len(target.class_names)
    return fit_baselines(x, target.restore(y), task, classes=classes, seed=seed, names=names, seconds=seconds)


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
    """The estimator of a method, given where it starts. It standardises nothing: the rows are prepared."""
    net = architecture.build(seed)
    estimator: BayesianEstimator
    if target.class_names is not None:
        estimator = BayesianMLPClassifier(
            name,
            net=net,
            likelihood="ordinal" if target.task == "ordinal" else "categorical",
            prior=prior,
            budget=seconds,
            standardize=False,
            random_state=seed,
        )
    else:
        likelihood = target.likelihood() if noise is None else target.likelihood().with_noise(noise)
        estimator = BayesianMLPRegressor(
            name, net=net, likelihood=likelihood, prior=prior, budget=seconds, standardize=False, random_state=seed
        )
    return estimator if mode is None else estimator.start_at(mode)


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


def as_line(name: str, outcome: RunEnd, left: float, words: str = "") -> str:
    """What a terminal shows of an outcome.

    >>> as_line("swag", RunEnd("failed", details=("failed: its weights became infinite.",), seconds=3.2), 250.0)
    'swag           failed: its weights became infinite.'
    >>> as_line("map", RunEnd("converged", seconds=3.2), 250.0)
    'map            converged                 3 s   (4:10 left)'
    """
    if outcome.status in NOT_SCORED:
        return f"{name:14} {outcome.details[-1] if outcome.details else 'failed'}"
    minutes, seconds = divmod(int(np.ceil(left)), 60)
    return f"{name:14} {words or outcome.status:22} {outcome.seconds:4.0f} s   ({minutes}:{seconds:02} left)"


def _introduce(
    say: Callable[[str], None], data: Path, splits: Sequence[Fold], settings: CompareSettings, plan: TimePlan
) -> None:
    first = splits[0]
    rows = len(first.train[1]) + len(first.test[1])
    tested = f"{len(first.train[1])} training rows, {len(first.test[1])} test rows"
    if len(splits) > 1:
        tested = f"{rows} rows, each tested once, in {len(splits)} folds"
    minutes = f"{settings.seconds / 60:.3g} min" if settings.seconds >= 60 else f"{settings.seconds:.3g} s"
    say(f"{data.name}: {tested}; {first.target.name!r} is {first.target.describe()}. About {minutes} in all.")
    if plan.too_short is not None:
        say(f"note: --budget is too short: this will take about {plan.too_short:.0f} s, and there is no time to sample")
    for note in first.notes:
        say(f"note: {note}")


def report_context(
    data: Path,
    folds: Sequence[FittedFold],
    seconds: float,
    files: Mapping[str, str],
    command: str,
    log: str,
    comparison: Comparison,
) -> ReportContext:
    """The context of the report.

    Args:
        data: the user's file.
        folds: what was fitted.
        seconds: the time budget.
        files: of the posteriors.
        command: that was given.
        log: what was printed.
        comparison: whose recommended posterior's columns are examined.
    """
    first = folds[0]
    fold, preparation = first.data, first.data.preparation
    tests = join_tests([fitted.data for fitted in folds])
    rows: TableRows | None = None
    effects: Sequence[PartialDependence] = ()
    if tests.cells is not None and isinstance(preparation, TablePreparation):
        columns = [column.name for column in preparation.columns_ if column.name in tests.cells]
        cells = tests.cells[columns].astype(str).to_numpy()
        rows = TableRows(columns, cells, [int(line) for line in tests.cells.index], data.name)
    chosen = None if comparison.recommendation is None else comparison.recommendation.posterior
    predictor: object = None if chosen is None else first.predictors[chosen]
    one_target = not isinstance(fold.target, Quantities)
    if (
        isinstance(preparation, TablePreparation)
        and isinstance(predictor, Posterior)
        and len(fold.test[1])
        and one_target
    ):
        effects = partial_dependence(predictor, fold.test[0], table_features(preparation))
    layers = f"{first.architecture.depth} hidden layer{'s' if first.architecture.depth > 1 else ''}"
    kind = "convolutions" if first.architecture.kind == "images" else f"of {first.architecture.width} units"
    done = {
        "Rows": f"{len(fold.train[1])} for training, {len(fold.test[1])} for testing"
        + (f", in each of {len(folds)} folds" if len(folds) > 1 else ""),
        "Network": f"{layers} {kind}",
        "Prior": _prior_words(first.prior),
        "Time": f"about {seconds:.0f} s in all",
    }
    return ReportContext(
        target=fold.target.name,
        rows=rows,
        effects=effects,
        methods={name: RECIPES[name].sentence for name in first.outcomes},
        done=done,
        files=dict(files),
        command=command,
        log=log,
    )


def _prior_words(prior: PriorByLeaf) -> str:
    if isinstance(prior, Mapping):
        return "Normal, with a scale for each leaf that makes the data most probable"
    return repr(prior)


def table_features(preparation: TablePreparation) -> list[Feature]:
    """The columns whose effect can be shown: numbers in their own units, and categories."""
    features = []
    for column in preparation.columns_:
        span = preparation.inputs_by_column[column.name]
        inputs = tuple(range(span.start, span.stop))
        if isinstance(column, Number):
            features.append(Feature(column.name, inputs[:1], column.mean, column.scale, marks=inputs[1:]))
        elif isinstance(column, Category):
            names = [name.removeprefix(f"{column.name} is ") for name in column.input_names]
            names = names if len(set(names)) == len(names) else list(column.input_names)  # a value named "missing"
            levels = {name: tuple(float(i == k) for k in range(len(inputs))) for i, name in enumerate(names)}
            features.append(Feature(column.name, inputs, levels=levels))
    return features
