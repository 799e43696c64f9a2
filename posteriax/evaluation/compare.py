"""``px.compare``: score several posteriors on the same test sets, and measure their distance to a reference."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree
from numpy.typing import ArrayLike

from posteriax._internal.checks import check_data, check_inputs
from posteriax._internal.memory import EXAMPLES_AT_ONCE
from posteriax.data.corruptions.corrupt import CorruptedSet
from posteriax.diagnostics.reference import check_reference
from posteriax.evaluation.chart_summaries import ChartSummary, Disagreement, chart_summary, find_disagreements
from posteriax.evaluation.comparison import NOT_SCORED, Comparison, Cost, Rows, RunEnd
from posteriax.evaluation.robustness.attack import PGD
from posteriax.evaluation.robustness.conformal import conformal as make_conformal
from posteriax.evaluation.robustness.conformal import interval_scores, interval_values
from posteriax.evaluation.robustness.recalibration import best_temperature
from posteriax.evaluation.robustness.shift import detection
from posteriax.evaluation.significance import Values, best_and_ties
from posteriax.likelihoods.predictive import Predictive
from posteriax.metrics.log_score import NLL
from posteriax.metrics.registry import SCORES, choose
from posteriax.metrics.score import Estimate, Score
from posteriax.posterior.export.exported import ExportedPosterior
from posteriax.posterior.posterior import Posterior

Data = tuple[PyTree, ArrayLike]  # inputs and targets
TIMED_CALLS, TIMED_SECONDS = 5, 0.5  # of a prediction whose time is measured, at most


@dataclass(frozen=True, eq=False)
class Baseline:
    """A fitted model that posteriors are compared with, such as a random forest. :func:`px.compare` takes it as a row.

    Args:
        predictor: from inputs, as the posteriors take them, to predictions.
        description: one sentence: what it is, and where its probabilities or its spread come from.
        seconds: how long it took to fit.

    >>> import numpy as np, posteriax as px
    >>> always_even = lambda x: px.likelihoods.ClassPredictive(px.Categorical(), np.zeros((1, len(x), 2), np.float32))
    >>> coin = px.evaluation.Baseline(always_even, "Both classes are equally probable.")
    >>> x, y = np.zeros((4, 1), np.float32), np.array([0, 1, 1, 1])
    >>> px.compare({"coin": coin}, (x, y), scores=["nll"])["coin"]["nll"]
    0.693...
    """

    predictor: Callable[[PyTree], Predictive]
    description: str = ""
    seconds: float = math.nan

    def predict(self, x: PyTree, draws: int | None = None) -> Predictive:
        """Predictions for new inputs; `draws` is ignored, since there are none."""
        return self.predictor(x)


class Mixture(ABC):
    """Several models that predict as one (:class:`px.evaluation.Stacked`)."""

    @property
    def description(self) -> str:
        """One sentence: of what it is a mixture."""
        return ""

    @abstractmethod
    def predict(self, x: PyTree, draws: int | None = None) -> Predictive:
        """Predictions of the mixture."""


Row = Posterior | Baseline | Mixture | Predictive


def compare(
    posteriors: Mapping[str, Row | Sequence[Row]],
    data: Data | CorruptedSet | Mapping[str, Data | CorruptedSet],
    *,
    reference: str | None = None,
    scores: Sequence[str | Score] | None = None,
    draws: int | None = None,
    out: Mapping[str, PyTree] | None = None,
    attack: PGD | None = None,
    recalibrate: Data | None = None,
    conformal: Data | None = None,
    level: float = 0.9,
    class_names: Sequence[str] | None = None,
    costs: bool = True,
    runs: Mapping[str, RunEnd] | None = None,
) -> Comparison:
    """Score several posteriors on one or several test sets.

    Args:
        posteriors: by name; also what :func:`px.stack` returns, a :class:`px.evaluation.Baseline`, predictives (for one
            test set), or lists of posteriors from several seeds, to average scores over seeds and test significance
            over seeds and examples together.
        data: the test set ``(x, y)``, or several by name: the first is the main one. Sets of type
            :class:`px.data.CorruptedSet`, such as those of :func:`px.data.corrupted`, are also averaged by severity.
        reference: the name of one posterior, usually HMC's: distances to its first seed are added, unless `scores`
            names distances. If its chains have not mixed (R-hat of predictions above 1.05), the tables say so.
        scores: names and :class:`px.metrics.Score` records to use;
            ``[*px.likelihoods.ClassPredictive.scores, mine]`` adds one.
        draws: how many draws each prediction averages over; see :meth:`Posterior.predict`.
        out: out-of-distribution inputs, by name: scores how well uncertainty tells them from the main test set.
        attack: such as ``px.evaluation.PGD(...)``: each posterior is attacked, and then scored, on the main test set.
        recalibrate: held-out data ``(x, y)``: each posterior gets the temperature that fits them best, and is scored
            with it on the main test set, in a separate table (classes only).
        conformal: held-out data ``(x, y)``: how many targets of the main test set a posterior's own intervals or sets
            hold and how wide they are, beside conformal ones (:func:`px.evaluation.conformal`), in a separate table.
        level: of these intervals or sets.
        class_names: names of the labels, for the report.
        costs: measure the cost of each posterior (parameters, training time, prediction time) and show it.
        runs: by name, how each method's run ended. Those that failed or were skipped are listed but not scored, so they
            are not among `posteriors`.

    >>> import equinox as eqx, jax, posteriax as px
    >>> train, test = px.data.two_moons()
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical())
    >>> posterior = px.fit(problem, train, px.MAP(), epochs=1, key=0)
    >>> px.compare({"MAP": posterior}, test, scores=["accuracy", "nll"]).columns
    ['accuracy', 'nll']
    """
    tests = data if isinstance(data, Mapping) else {"test": data}
    ends = {str(name): replace(end, posterior=None) for name, end in (runs or {}).items()}
    only_main_set = len(tests) < 2 and not (out or attack or recalibrate or conformal)
    rows = _checked_rows(posteriors, reference, draws, only_main_set)
    _check_failures(rows, ends)
    tables = _Tables(rows, reference, _checked_scores(scores, reference))
    if not tests:
        raise ValueError("data is empty: name at least one test set")
    corruptions = {}
    for name in tests:  # one at a time: many corrupted sets together may not fit into memory
        test_set = tests[name]
        if isinstance(test_set, CorruptedSet):
            corruptions[str(name)] = test_set.corruption
        x, y = check_data(test_set)
        tables.add(str(name), y, partial(_predict, x=x), distances=True)
    x, y = check_data(next(iter(tests.values())))  # the main set
    for name, x_out in (out or {}).items():
        tables.add(f"out: {name}", None, partial(_predict_outside, x=x, x_out=check_inputs(x_out)))
    if attack is not None:
        tables.add("attacked", y, partial(_predict_attacked, attack=attack, x=x, y=y))
    if recalibrate is not None:
        tables.add("recalibrated", y, partial(_predict_recalibrated, held_out=check_data(recalibrate), x=x))
    if conformal is not None:
        predict = partial(_predict_conformal, held_out=check_data(conformal), x=x, y=y, level=level)
        tables.add(f"conformal {100 * level:g} %", y, predict)
    check = None if reference is None else check_reference(reference, rows[reference][0].posterior, x, draws)
    return Comparison(
        sets=tables.sets,
        reference=reference,
        costs=_costs(rows, x) if costs else {},
        best=tables.best,
        charts=tables.charts,
        class_names=None if class_names is None else tuple(map(str, class_names)),
        corruptions=corruptions,
        seeds={name: len(group) for name, group in rows.items()},
        reference_check=check,
        scores=tables.scores,
        baselines={name: run.baseline.description for name, (run, *_) in rows.items() if run.baseline is not None},
        mixtures={name: run.mixture.description for name, (run, *_) in rows.items() if run.mixture is not None},
        runs=ends,
        disagreements=tables.disagreements,
        floor=tables.floor if check is not None and check.converged is not None else {},
        differences=tables.differences,
    )


class _Run(NamedTuple):
    """One run of a row: what a comparison asks of a posterior, a baseline or plain predictions."""

    predict: Callable[[PyTree], Predictive]
    posterior: Posterior | None = None  # whose gradient an attack follows
    baseline: Baseline | None = None
    mixture: Mixture | None = None


class _Scorable(NamedTuple):
    """One run's predictions on a test set, and what its table shows besides the scores of these predictions."""

    predictive: Predictive
    x: PyTree
    columns: Mapping[str, float] = {}  # further columns, without values per example
    attack: Mapping[str, np.ndarray] = {}  # by quantity, its values after every iteration
    values: Values | None = None  # per example, of `scores`, in place of the scores that apply to the predictions
    scores: Mapping[str, Score] = {}


def _predict(run: _Run, x: PyTree) -> _Scorable:
    return _Scorable(run.predict(x), x)


def _predict_outside(run: _Run, x: PyTree, x_out: PyTree) -> _Scorable:
    predictive = run.predict(x_out)
    return _Scorable(predictive, x_out, detection(run.predict(x), predictive))


def _predict_attacked(run: _Run, attack: PGD, x: PyTree, y: np.ndarray) -> _Scorable | None:
    if run.posterior is None:  # no gradient to follow
        return None
    result = attack.run(run.posterior, x, y)
    curves = {"success": result.success, "accuracy": result.accuracy, "entropy": result.entropy}
    columns = {"attack_success": float(result.success[-1])}
    return _Scorable(run.predict(result.x), result.x, columns, curves)


def _predict_recalibrated(run: _Run, held_out: tuple[PyTree, np.ndarray], x: PyTree) -> _Scorable:
    temperature = best_temperature(run.predict(held_out[0]), held_out[1])
    return _Scorable(run.predict(x).tempered(temperature), x, {"temperature": temperature})


def _predict_conformal(
    run: _Run, held_out: tuple[PyTree, np.ndarray], x: PyTree, y: np.ndarray, level: float
) -> _Scorable:
    calibrated = make_conformal(run.predict(held_out[0]), held_out[1], level)
    predictive = run.predict(x)
    values = interval_values(calibrated, predictive, y)
    return _Scorable(predictive, x, values=values, scores=interval_scores(level, calibrated.classes))


class _Tables:
    """Tables under construction. Predictions are made one test set at a time and not kept."""

    def __init__(self, rows: dict[str, list[_Run]], reference: str | None, chosen: list[Score] | None):
        self.rows, self.reference, self.chosen = rows, reference, chosen
        self.sets: dict[str, Rows] = {}
        self.best: dict[str, dict[str, tuple[str, ...]]] = {}
        self.charts: dict[str, dict[str, ChartSummary]] = {}
        self.scores: dict[str, Score] = {}  # by column
        self.disagreements: tuple[Disagreement, ...] = ()
        self.floor: dict[str, Estimate] = {}
        self.differences: dict[str, Estimate] = {}

    def add(
        self,
        set_name: str,
        y: np.ndarray | None,
        predict: Callable[[_Run], _Scorable | None],
        *,
        distances: bool = False,
    ) -> None:
        """Score what `predict` gives for each run, if anything; with `distances`, also against the reference."""
        is_main = not self.sets
        predicted = {name: [predict(run) for run in group] for name, group in self.rows.items()}
        rows = {name: [run for run in group if run] for name, group in predicted.items() if all(group)}
        firsts = {name: group[0] for name, group in rows.items()}
        reference = firsts[self.reference].predictive if distances and self.reference is not None else None
        values: dict[str, list[Values]] = {}
        if y is not None:
            values = {name: [self._values(run, y, reference) for run in group] for name, group in rows.items()}
        self.sets[set_name] = {
            name: self._estimates(values.get(name, [{}])) | _over_seeds([run.columns for run in group])
            for name, group in rows.items()
        }
        self.charts[set_name] = {
            name: replace(chart_summary(first.predictive, first.x, y, by_class=is_main), attack=first.attack)
            for name, first in firsts.items()
            if first.values is None
        }
        if is_main and reference is not None:
            self.floor = reference_floor(
                reference, [score for score in self.scores.values() if score.against_reference]
            )
        if is_main and y is not None:
            x = next(iter(firsts.values())).x
            self.disagreements = find_disagreements({name: run.predictive for name, run in firsts.items()}, x, y)
        if is_main:
            self.differences = _paired_differences(values)
        if len(values) > 1:
            self.best[set_name] = best_and_ties(self._comparable(values), self.reference, self.scores)

    def _values(self, run: _Scorable, y: np.ndarray, reference: Predictive | None) -> Values:
        """Values per example of each score. Distances to a reference are those chosen, or else all that apply."""
        if run.values is not None:
            self.scores |= run.scores
            return run.values
        scores = choose(self.chosen, run.predictive)
        if not any(score.against_reference for score in scores):
            distances = [score for score in SCORES.values() if score.against_reference]
            scores += [score for score in distances if score.applies_to(run.predictive, reference)]
        scores = [score for score in scores if not score.against_reference or reference is not None]
        self.scores |= {score.name: score for score in scores}
        return {
            score.name: score.values(
                run.predictive, y if reference is None or not score.against_reference else reference
            )
            for score in scores
        }

    def _estimates(self, group: list[Values]) -> dict[str, Estimate]:
        if len(group) == 1:
            return {column: self.scores[column].estimate(values) for column, values in group[0].items()}
        return _over_seeds([{c: self.scores[c].reduction.value(values) for c, values in run.items()} for run in group])

    def _comparable(self, values: dict[str, list[Values]]) -> dict[str, list[Values]]:
        """Without distances of baselines to the reference: they do not try to be close to it."""
        without_distances = lambda run: {c: v for c, v in run.items() if not self.scores[c].against_reference}  # noqa: E731
        return {
            name: group if self.rows[name][0].baseline is None else [without_distances(run) for run in group]
            for name, group in values.items()
        }


def _paired_differences(values: Mapping[str, Sequence[Values]]) -> dict[str, Estimate]:
    """How much larger each row's negative log likelihood is than the smallest, by the same examples; of single runs."""
    losses = {name: runs[0][NLL.name] for name, runs in values.items() if len(runs) == 1 and NLL.name in runs[0]}
    if len(losses) < 2:
        return {}
    best = min(losses.values(), key=lambda loss: float(np.nan_to_num(loss, nan=np.inf).mean()))
    return {name: NLL.estimate(loss - best) for name, loss in losses.items()}


def _over_seeds(values: Sequence[Mapping[str, float]]) -> dict[str, Estimate]:
    return {column: Estimate.from_mean([row[column] for row in values], "seeds") for column in values[0]}


def _costs(rows: Mapping[str, Sequence[_Run]], x: PyTree) -> dict[str, Cost]:
    few = jax.tree.map(lambda a: a[:EXAMPLES_AT_ONCE], x)
    n = len(jax.tree.leaves(few)[0])
    costs = {}
    for name, (run, *_) in rows.items():
        if run.posterior is not None:
            parameters, seconds = run.posterior.num_parameters, run.posterior.trace.seconds
        elif run.baseline is not None:
            parameters, seconds = None, run.baseline.seconds
        else:
            continue
        costs[name] = Cost(parameters, seconds, 1e3 * _seconds_to_predict(run, few) * 1000 / n, timed_rows=n)
    return costs


def _seconds_to_predict(run: _Run, x: PyTree) -> float:
    """The shortest of a few calls: other programs can only make a call take longer."""
    run.predict(x)  # compiles
    times: list[float] = []
    while len(times) < TIMED_CALLS and sum(times) < TIMED_SECONDS:
        began = time.perf_counter()
        run.predict(x)
        times.append(time.perf_counter() - began)
    return min(times)


def reference_floor(predictive: Predictive, scores: Iterable[Score]) -> dict[str, Estimate]:
    """By score, the distance between the predictions of the first half of the draws and those of the second.

    A sampled posterior gives all draws of a chain before those of the next, so that the halves are different chains:
    chance alone puts them this far apart. Empty if the draws were not kept.

    >>> import numpy as np, posteriax as px
    >>> draws = np.random.default_rng(0).normal(size=(40, 200, 3)).astype(np.float32)
    >>> predictive = px.likelihoods.ClassPredictive(px.Categorical(), draws)
    >>> floor = reference_floor(predictive, [px.metrics.SCORES["total_variation"]])
    >>> bool(0.01 < floor["total_variation"].value < 0.1)
    True
    """
    kept: Any = predictive  # with `outputs` and `latents` of every draw, unless it was reduced
    if len(getattr(kept, "outputs", ())) < 2:
        return {}
    middle = len(kept.outputs) // 2

    def half(draws: slice) -> Predictive:
        latents = jax.tree.map(lambda leaf: leaf[draws], kept.latents)
        return replace(kept, outputs=kept.outputs[draws], latents=latents)

    halves = half(slice(0, middle)), half(slice(middle, 2 * middle))
    return {score.name: score.estimate(score.values(*halves)) for score in scores}


def _checked_rows(
    posteriors: Mapping[str, Row | Sequence[Row]], reference: str | None, draws: int | None, only_main_set: bool
) -> dict[str, list[_Run]]:
    if not isinstance(posteriors, Mapping):
        raise TypeError(
            f"compare takes posteriors by name, got {type(posteriors).__name__}: "
            f'px.compare({{"first": posterior, "second": other}}, (x, y))'
        )
    if not posteriors:
        raise ValueError("posteriors is empty: name at least one")
    if reference is not None and reference not in posteriors:
        raise ValueError(f"reference {reference!r} is not one of the posteriors: {', '.join(map(repr, posteriors))}")
    rows = {}
    for name, value in posteriors.items():
        group = value if isinstance(value, (list, tuple)) else [value]
        if not group:
            raise ValueError(f"{name!r} has no posteriors")
        rows[name] = [_as_run(name, run, draws, only_main_set) for run in group]
    return rows


def _as_run(name: str, row: object, draws: int | None, only_main_set: bool) -> _Run:
    match row:
        case Posterior():
            return _Run(lambda x: row.predict(x, draws), posterior=row)
        case ExportedPosterior():
            return _Run(lambda x: row.predict(x, draws))
        case Baseline():
            return _Run(row.predict, baseline=row)
        case Mixture():
            return _Run(row.predict, mixture=row)
        case Predictive():
            if not only_main_set:
                raise ValueError("A predictive covers one test set; pass posteriors to score several.")
            return _Run(lambda x: row)
    raise TypeError(f"{name!r} must be a posterior, a baseline, a predictive or a list of posteriors, got {row!r}")


def _check_failures(rows: Iterable[str], ends: Mapping[str, RunEnd]) -> None:
    for name, end in ends.items():
        if end.status in NOT_SCORED and name in rows:
            what = "failed" if end.status == "failed" else "was skipped"
            raise ValueError(f"runs says that {name!r} {what}: leave it out of the posteriors")
        if end.status not in NOT_SCORED and name not in rows:
            raise ValueError(f"runs has {name!r}, which is not one of the posteriors: {', '.join(map(repr, rows))}")


def _checked_scores(scores: Sequence[str | Score] | None, reference: str | None) -> list[Score] | None:
    if scores is None:
        return None
    chosen = choose(scores, None)
    for score in chosen:
        if score.against_reference and reference is None:
            raise ValueError(f"the score {score.name!r} needs a reference: name one of the posteriors, reference=...")
        if score.per_example is None:
            raise ValueError(f"{score.name!r} cannot be chosen: px.compare adds it to its own tables")
    if not chosen:
        raise ValueError("scores is empty: name at least one")
    return chosen
