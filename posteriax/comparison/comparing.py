"""``px.compare``: score several posteriors on the same test sets, and measure their distance to a reference."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from posteriax._internal.checks import check_data, check_inputs
from posteriax._internal.memory import EXAMPLES_AT_ONCE
from posteriax.comparison.chart_summaries import ChartSummary, chart_summary
from posteriax.comparison.comparison import Comparison, Cost, Rows
from posteriax.comparison.recalibration import best_temperature
from posteriax.comparison.shift import detection
from posteriax.comparison.significance import Values, best_and_ties
from posteriax.data import CorruptedSet
from posteriax.diagnostics import check_reference
from posteriax.metrics import SCORES, Estimate, Score, choose
from posteriax.posterior import Posterior, Predictive


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
    class_names: Sequence[str] | None = None,
    costs: bool = True,
) -> Comparison:
    """Score several posteriors on one or several test sets.

    Args:
        posteriors: by name; also predictives (for one test set), or lists of posteriors from several seeds, to average
            scores over seeds and test significance over seeds and examples together.
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
        class_names: names of the labels, for the report.
        costs: measure the cost of each posterior (parameters, training time, prediction time) and show it.

    >>> import equinox as eqx, jax, posteriax as px
    >>> train, test = px.data.two_moons()
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical())
    >>> posterior = px.fit(problem, train, px.MAP(), epochs=1, key=0)
    >>> px.compare({"MAP": posterior}, test, scores=["accuracy", "nll"]).columns
    ['accuracy', 'nll']
    """
    tests = data if isinstance(data, Mapping) else {"test": data}
    runs = _checked_runs(posteriors, reference, one_set=len(tests) < 2 and not (out or attack or recalibrate))
    builder = _Builder(runs, reference, _checked_scores(scores, reference), draws)
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
    return Comparison(
        builder.sets,
        reference,
        builder.costs(x) if costs else {},
        builder.best,
        builder.charts,
        None if class_names is None else tuple(map(str, class_names)),
        corruptions,
        {name: len(group) for name, group in runs.items()},
        None if reference is None else check_reference(reference, runs[reference][0], x, draws),
        builder.scores,
    )


class _Made(NamedTuple):
    """One run's predictions for some inputs, further columns, and the curves of an attack."""

    predictive: Any
    x: Any
    columns: Mapping[str, float] = {}
    attack: Mapping[str, np.ndarray] = {}


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

    def predict(self, run: Any, x: Any) -> Any:
        return run.predict(x, draws=self.draws) if isinstance(run, Posterior) else run

    def add(self, set_name: str, y: Any, make: Callable[[Any], "_Made"], *, distances: bool = False) -> None:
        """Score what `make` gives for each run; with `distances`, also against the reference."""
        made = {name: [make(run) for run in group] for name, group in self.runs.items()}
        reference = made[self.reference][0].predictive if distances and self.reference is not None else None
        values: dict[str, list[Values]] = {}
        if y is not None:
            values = {name: [self._values(one.predictive, y, reference) for one in own] for name, own in made.items()}
        self.sets[set_name] = {
            name: self._estimates(values.get(name, [{}])) | _over_seeds([one.columns for one in own])
            for name, own in made.items()
        }
        self.charts[set_name] = {
            name: replace(chart_summary(first.predictive, first.x, y), attack=first.attack)
            for name, (first, *_) in made.items()
        }
        if len(values) > 1:
            self.best[set_name] = best_and_ties(values, self.reference, self.scores)

    def plain(self, run: Any, x: Any) -> "_Made":
        return _Made(self.predict(run, x), x)

    def outside(self, run: Any, x: Any, x_out: Any) -> "_Made":
        predictive = self.predict(run, x_out)
        return _Made(predictive, x_out, detection(self.predict(run, x), predictive))

    def attacked(self, run: Any, attack: Any, x: Any, y: Any) -> "_Made":
        result = attack.run(run, x, y)
        curves = {"success": result.success, "accuracy": result.accuracy, "entropy": result.entropy}
        columns = {"attack_success": float(result.success[-1])}
        return _Made(self.predict(run, result.x), result.x, columns, curves)

    def recalibrated(self, run: Any, held_out: tuple[Any, np.ndarray], x: Any) -> "_Made":
        temperature = best_temperature(self.predict(run, held_out[0]), held_out[1])
        return _Made(self.predict(run, x).tempered(temperature), x, {"temperature": temperature})

    def costs(self, x: Any) -> dict[str, Cost]:
        few = jax.tree.map(lambda a: a[:EXAMPLES_AT_ONCE], x)
        n = len(jax.tree.leaves(few)[0])
        costs = {}
        for name, run in ((name, group[0]) for name, group in self.runs.items() if isinstance(group[0], Posterior)):
            run.predict(few, draws=self.draws)  # compiles
            began = time.perf_counter()
            run.predict(few, draws=self.draws)
            took = time.perf_counter() - began
            costs[name] = Cost(run.num_parameters, run.trace.seconds, 1e3 * took * 1000 / n)
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


def _checked_runs(posteriors: Mapping[str, Any], reference: str | None, one_set: bool) -> dict[str, list[Any]]:
    if not posteriors:
        raise ValueError("posteriors is empty: name at least one")
    if reference is not None and reference not in posteriors:
        raise ValueError(f"reference {reference!r} is not one of the posteriors: {', '.join(map(repr, posteriors))}")
    runs = {name: list(value) if isinstance(value, (list, tuple)) else [value] for name, value in posteriors.items()}
    for name, group in runs.items():
        if not group:
            raise ValueError(f"{name!r} has no posteriors")
        for run in group:
            if not isinstance(run, Posterior | Predictive):
                raise TypeError(f"{name!r} must be a posterior, a predictive or a list of posteriors, got {run!r}")
            if not isinstance(run, Posterior) and not one_set:
                raise ValueError("A predictive covers one test set; pass posteriors to score several.")
    return runs


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
