"""``px.compare``: score several posteriors on the same test sets, and measure their distance to a reference.

Baseline: a model that is not a posterior, as a row of a comparison.

The floor of distances to a reference: how far two halves of its own chains are from each other, by chance alone.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from posteriax._internal.checks import check_data, check_inputs
from posteriax._internal.memory import EXAMPLES_AT_ONCE
from posteriax.data.corruptions.corrupt import CorruptedSet
from posteriax.diagnostics.reference import check_reference
from posteriax.evaluation.chart_summaries import ChartSummary, Disagreement, chart_summary, find_disagreements
from posteriax.evaluation.comparison import Comparison, Cost, Rows
from posteriax.evaluation.robustness.conformal import conformal as make_conformal
from posteriax.evaluation.robustness.conformal import interval_scores, interval_values
from posteriax.evaluation.robustness.recalibration import best_temperature
from posteriax.evaluation.robustness.shift import detection
from posteriax.evaluation.run_end import RunEnd, run_ends
from posteriax.evaluation.significance import Values, best_and_ties
from posteriax.likelihoods.predictive import Predictive
from posteriax.metrics.registry import SCORES, choose
from posteriax.metrics.score import Estimate, Score
from posteriax.posterior.posterior import Posterior


def compare(
    posteriors: Mapping[str, Any],
    data: Any,
    *,
    reference: str | None = None,
    scores: Sequence[str | Score] | None = None,
    draws: int | None = None,
    out: Mapping[str, Any] | None = None,
    attack: Any = None,
    recalibrate: Any = None,
    conformal: Any = None,
    level: float = 0.9,
    class_names: Sequence[str] | None = None,
    costs: bool = True,
    runs: Mapping[str, Any] | None = None,
) -> Comparison:
    """Score several posteriors on one or several test sets.

    Args:
        posteriors: by name; also a :class:`px.Baseline`, predictives (for one test set), or lists of posteriors from
            several seeds, to average scores over seeds and test significance over seeds and examples together.
        data: the test set ``(x, y)``, or several by name: the first is the main one. Sets of type
            :class:`px.data.CorruptedSet`, such as those of :func:`px.corrupted`, are also averaged by severity.
        reference: the name of one posterior, usually HMC's: distances to its first seed are added, unless `scores`
            names distances. If its chains have not mixed (R-hat of predictions above 1.05), the tables say so.
        scores: names and :class:`px.metrics.Score` records to use: ``[*px.ClassPredictive.scores, mine]`` adds one.
        draws: how many draws each prediction averages over; see :meth:`Posterior.predict`.
        out: out-of-distribution inputs, by name: scores how well uncertainty tells them from the main test set.
        attack: such as ``px.PGD(...)``: each posterior is attacked, and then scored, on the main test set.
        recalibrate: held-out data ``(x, y)``: each posterior gets the temperature that fits them best, and is scored
            with it on the main test set, in a separate table (classes only).
        conformal: held-out data ``(x, y)``: how many targets of the main test set a posterior's own intervals or sets
            hold and how wide they are, beside conformal ones (:func:`px.conformal`), in a separate table.
        level: of these intervals or sets.
        class_names: names of the labels, for the report.
        costs: measure the cost of each posterior (parameters, training time, prediction time) and show it.
        runs: by name, how each method's run ended: :class:`px.RunEnd`, or anything with `status`, `details` and
            `seconds`. Those that failed are listed but not scored, so they are not among `posteriors`.

    >>> import equinox as eqx, jax, posteriax as px
    >>> train, test = px.data.two_moons()
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical())
    >>> posterior = px.fit(problem, train, px.MAP(), epochs=1, key=0)
    >>> px.compare({"MAP": posterior}, test, scores=["accuracy", "nll"]).columns
    ['accuracy', 'nll']
    """
    tests = data if isinstance(data, Mapping) else {"test": data}
    more = out or attack or recalibrate or conformal
    rows, ends = _checked_rows(posteriors, reference, one_set=len(tests) < 2 and not more), run_ends(runs or {})
    _check_failures(rows, ends)
    builder = _Builder(rows, reference, _checked_scores(scores, reference), draws)
    if not tests:
        raise ValueError("data is empty: name at least one test set")
    corruptions = {}
    for name in tests:  # one at a time: many corrupted sets together may not fit into memory
        test_set = tests[name]
        if isinstance(test_set, CorruptedSet):
            corruptions[str(name)] = test_set.corruption
        x, y = check_data(test_set)
        builder.add(str(name), y, partial(builder.plain, x=x), distances=True)
    x, y = check_data(next(iter(tests.values())))  # the main set
    for name, x_out in (out or {}).items():
        builder.add(f"out: {name}", None, partial(builder.outside, x=x, x_out=check_inputs(x_out)))
    if attack is not None:
        builder.add("attacked", y, partial(builder.attacked, attack=attack, x=x, y=y))
    if recalibrate is not None:
        builder.add("recalibrated", y, partial(builder.recalibrated, held_out=check_data(recalibrate), x=x))
    if conformal is not None:
        make = partial(builder.conformal, held_out=check_data(conformal), x=x, y=y, level=level)
        builder.add(f"conformal {100 * level:g} %", y, make)
    check = None if reference is None else check_reference(reference, rows[reference][0], x, draws)
    return Comparison(
        builder.sets,
        reference,
        builder.costs(x) if costs else {},
        builder.best,
        builder.charts,
        None if class_names is None else tuple(map(str, class_names)),
        corruptions,
        {name: len(group) for name, group in rows.items()},
        check,
        builder.scores,
        {name: group[0].description for name, group in rows.items() if isinstance(group[0], Baseline)},
        ends,
        builder.disagreements,
        builder.floor if check is not None and check.converged is not None else {},
    )


class _Made(NamedTuple):
    """One run's predictions for some inputs, further columns, the curves of an attack, and values per example of the
    scores to use instead of the usual ones."""

    predictive: Any
    x: Any
    columns: Mapping[str, float] = {}
    attack: Mapping[str, np.ndarray] = {}
    values: Values | None = None


class _Builder:
    """Tables under construction. Predictions are made one test set at a time and not kept."""

    def __init__(
        self, runs: dict[str, list[Any]], reference: str | None, chosen: list[Score] | None, draws: int | None
    ):
        self.runs, self.reference, self.chosen, self.draws = runs, reference, chosen, draws
        self.sets: dict[str, Rows] = {}
        self.best: dict[str, dict[str, tuple[str, ...]]] = {}
        self.charts: dict[str, dict[str, ChartSummary]] = {}
        self.scores: dict[str, Score] = {}  # by column
        self.disagreements: tuple[Disagreement, ...] = ()
        self.floor: dict[str, Estimate] = {}

    def predict(self, run: Any, x: Any) -> Any:
        return run if isinstance(run, Predictive) else run.predict(x, draws=self.draws)

    def add(self, set_name: str, y: Any, make: Callable[[Any], "_Made | None"], *, distances: bool = False) -> None:
        """Score what `make` gives for each run, if anything; with `distances`, also against the reference."""
        is_main = not self.sets
        groups = {name: [make(run) for run in group] for name, group in self.runs.items()}
        made = {name: [one for one in group if one is not None] for name, group in groups.items() if None not in group}
        reference = made[self.reference][0].predictive if distances and self.reference is not None else None
        values: dict[str, list[Values]] = {}
        if y is not None:
            values = {
                name: [self._values(one.predictive, y, reference) if one.values is None else one.values for one in own]
                for name, own in made.items()
            }
        self.sets[set_name] = {
            name: self._estimates(values.get(name, [{}])) | _over_seeds([one.columns for one in own])
            for name, own in made.items()
        }
        self.charts[set_name] = {
            name: replace(chart_summary(first.predictive, first.x, y, by_class=is_main), attack=first.attack)
            for name, (first, *_) in made.items()
            if first.values is None
        }
        if is_main and reference is not None:
            distances_used = [score for score in self.scores.values() if score.against_reference]
            self.floor = reference_floor(reference, distances_used)
        if is_main and y is not None:
            firsts = {name: own[0] for name, own in made.items()}
            x = next(iter(firsts.values())).x
            self.disagreements = find_disagreements({name: one.predictive for name, one in firsts.items()}, x, y)
        if len(values) > 1:
            self.best[set_name] = best_and_ties(self._comparable(values), self.reference, self.scores)

    def _comparable(self, values: dict[str, list[Values]]) -> dict[str, list[Values]]:
        """Without distances of baselines to the reference: they do not try to be close to it."""
        return {
            name: [{c: v for c, v in run.items() if not self.scores[c].against_reference} for run in own]
            if isinstance(self.runs[name][0], Baseline)
            else own
            for name, own in values.items()
        }

    def plain(self, run: Any, x: Any) -> "_Made":
        return _Made(self.predict(run, x), x)

    def outside(self, run: Any, x: Any, x_out: Any) -> "_Made":
        predictive = self.predict(run, x_out)
        return _Made(predictive, x_out, detection(self.predict(run, x), predictive))

    def attacked(self, run: Any, attack: Any, x: Any, y: Any) -> "_Made | None":
        if isinstance(run, Baseline):  # has no gradient
            return None
        result = attack.run(run, x, y)
        curves = {"success": result.success, "accuracy": result.accuracy, "entropy": result.entropy}
        columns = {"attack_success": float(result.success[-1])}
        return _Made(self.predict(run, result.x), result.x, columns, curves)

    def recalibrated(self, run: Any, held_out: tuple[Any, np.ndarray], x: Any) -> "_Made":
        temperature = best_temperature(self.predict(run, held_out[0]), held_out[1])
        return _Made(self.predict(run, x).tempered(temperature), x, {"temperature": temperature})

    def conformal(self, run: Any, held_out: tuple[Any, np.ndarray], x: Any, y: Any, level: float) -> "_Made":
        found = make_conformal(self.predict(run, held_out[0]), held_out[1], level)
        predictive = self.predict(run, x)
        self.scores |= interval_scores(level, found.classes)
        return _Made(predictive, x, values=interval_values(found, predictive, y))

    def costs(self, x: Any) -> dict[str, Cost]:
        few = jax.tree.map(lambda a: a[:EXAMPLES_AT_ONCE], x)
        n = len(jax.tree.leaves(few)[0])
        costs = {}
        for name, (run, *_) in self.runs.items():
            if isinstance(run, Predictive):
                continue
            run.predict(few, draws=self.draws)  # compiles
            began = time.perf_counter()
            run.predict(few, draws=self.draws)
            took = 1e3 * (time.perf_counter() - began) * 1000 / n
            if isinstance(run, Baseline):
                costs[name] = Cost(None, run.seconds, took)
            else:
                costs[name] = Cost(run.num_parameters, run.trace.seconds, took)
        return costs

    def _values(self, predictive: Any, y: Any, reference: Any = None) -> Values:
        """Per-example values of each score. Distances to a reference are those chosen, or else all that apply."""
        scores = choose(self.chosen, predictive)
        if not any(score.against_reference for score in scores):
            distances = [score for score in SCORES.values() if score.against_reference]
            scores += [score for score in distances if score.applies_to(predictive, reference)]
        scores = [score for score in scores if not score.against_reference or reference is not None]
        self.scores |= {score.name: score for score in scores}
        return {s.name: s.values(predictive, reference if s.against_reference else y) for s in scores}

    def _estimates(self, group: list[Values]) -> dict[str, Estimate]:
        if len(group) == 1:
            return {column: self.scores[column].estimate(values) for column, values in group[0].items()}
        return _over_seeds([{c: self.scores[c].reduction.value(values) for c, values in run.items()} for run in group])


def _checked_rows(posteriors: Mapping[str, Any], reference: str | None, one_set: bool) -> dict[str, list[Any]]:
    if not posteriors:
        raise ValueError("posteriors is empty: name at least one")
    if reference is not None and reference not in posteriors:
        raise ValueError(f"reference {reference!r} is not one of the posteriors: {', '.join(map(repr, posteriors))}")
    runs = {name: list(value) if isinstance(value, (list, tuple)) else [value] for name, value in posteriors.items()}
    for name, group in runs.items():
        if not group:
            raise ValueError(f"{name!r} has no posteriors")
        for run in group:
            if not isinstance(run, Posterior | Baseline | Predictive):
                raise TypeError(
                    f"{name!r} must be a posterior, a baseline, a predictive or a list of posteriors, got {run!r}"
                )
            if isinstance(run, Predictive) and not one_set:
                raise ValueError("A predictive covers one test set; pass posteriors to score several.")
    return runs


def _check_failures(rows: Mapping[str, Any], ends: Mapping[str, RunEnd]) -> None:
    for name, end in ends.items():
        if end.status == "failed" and name in rows:
            raise ValueError(f"runs says that {name!r} failed: leave it out of the posteriors")
        if end.status != "failed" and name not in rows:
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


def _over_seeds(values: list[Mapping[str, float]]) -> dict[str, Estimate]:
    return {column: Estimate.of_mean([row[column] for row in values], "seeds") for column in values[0]}


@dataclass(frozen=True, eq=False)
class Baseline:
    """A fitted model that posteriors are compared with, such as a random forest. :func:`px.compare` takes it as a row.

    Args:
        predictor: from inputs, as the posteriors take them, to predictions.
        description: one sentence: what it is, and where its probabilities or its spread come from.
        seconds: how long it took to fit.

    >>> import numpy as np, posteriax as px
    >>> always_even = lambda x: px.ClassPredictive(px.Categorical(), np.zeros((1, len(x), 2), np.float32))
    >>> coin = px.Baseline(always_even, "Both classes are equally probable.")
    >>> x, y = np.zeros((4, 1), np.float32), np.array([0, 1, 1, 1])
    >>> px.compare({"coin": coin}, (x, y), scores=["nll"])["coin"]["nll"]
    0.693...
    """

    predictor: Callable[[Any], Predictive]
    description: str = ""
    seconds: float = math.nan

    def predict(self, x: Any, draws: int | None = None) -> Predictive:
        """Predictions for new inputs; `draws` is ignored, since there are none."""
        return self.predictor(x)


def reference_floor(predictive: Any, scores: Iterable[Score]) -> dict[str, Estimate]:
    """By score, the distance between the predictions of the first half of the draws and those of the second.

    A posterior that was sampled gives all draws of a chain before those of the next, so that these are other chains.
    Empty if the draws were not kept.

    >>> import numpy as np, posteriax as px
    >>> draws = np.random.default_rng(0).normal(size=(40, 200, 3)).astype(np.float32)
    >>> floor = reference_floor(px.ClassPredictive(px.Categorical(), draws), [px.metrics.SCORES["total_variation"]])
    >>> bool(0.01 < floor["total_variation"].value < 0.1)
    True
    """
    outputs = getattr(predictive, "outputs", None)
    if outputs is None or len(outputs) < 2:
        return {}
    middle = len(outputs) // 2

    def half(draws: slice) -> Any:
        latents = jax.tree.map(lambda leaf: leaf[draws], predictive.latents)
        return replace(predictive, outputs=outputs[draws], latents=latents)

    halves = half(slice(0, middle)), half(slice(middle, 2 * middle))
    return {score.name: score.estimate(score.values(*halves)) for score in scores}
