"""``px.compare``: score several posteriors on the same test sets, and measure their distance to a reference."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from posteriax._internal.checks import check_data, check_inputs
from posteriax._internal.memory import EXAMPLES_AT_ONCE
from posteriax.comparison.chart_summaries import View, view_of
from posteriax.comparison.comparison import Comparison, Cost, Rows
from posteriax.comparison.recalibration import best_temperature, tempered
from posteriax.comparison.shift import detection
from posteriax.comparison.significance import Values, best_and_ties
from posteriax.data import CorruptedSet, Corruption
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
    corruptions, x, y = builder.add_sets(tests)
    for name, x_out in (out or {}).items():
        builder.add_outside(f"out: {name}", x, check_inputs(x_out))
    if attack is not None:
        builder.add_attacked(attack, x, y)
    if recalibrate is not None:
        builder.add_recalibrated(check_data(recalibrate), x, y)
    return Comparison(
        builder.sets,
        reference,
        builder.costs(x) if costs else {},
        builder.best,
        builder.views,
        None if class_names is None else tuple(map(str, class_names)),
        corruptions,
        {name: len(group) for name, group in runs.items()},
        None if reference is None else check_reference(reference, runs[reference][0], x, draws),
        builder.scores,
    )


class _Builder:
    """Tables under construction. Predictions are made one test set at a time and not kept."""

    def __init__(
        self, runs: dict[str, list[Any]], reference: str | None, chosen: list[Score] | None, draws: int | None
    ):
        self.runs, self.reference, self.chosen, self.draws = runs, reference, chosen, draws
        self.sets: dict[str, Rows] = {}
        self.best: dict[str, dict[str, tuple[str, ...]]] = {}
        self.views: dict[str, dict[str, View]] = {}
        self.scores: dict[str, Score] = {}  # by column

    def predict(self, run: Any, x: Any) -> Any:
        return run.predict(x, draws=self.draws) if isinstance(run, Posterior) else run

    def add_sets(self, tests: Mapping[str, Any]) -> tuple[dict[str, Corruption], Any, np.ndarray]:
        """Score the test sets; returns the corruptions by name, and inputs and targets of the main set."""
        if not tests:
            raise ValueError("data is empty: name at least one test set")
        corruptions = {}
        for name in tests:  # one at a time: many corrupted sets together may not fit into memory
            test_set = tests[name]
            if isinstance(test_set, CorruptedSet):
                corruptions[str(name)] = test_set.corruption
            self._add_set(str(name), *check_data(test_set))
        return corruptions, *check_data(next(iter(tests.values())))

    def _add_set(self, set_name: str, x: Any, y: Any) -> None:
        predictives = {name: [self.predict(run, x) for run in group] for name, group in self.runs.items()}
        reference = None if self.reference is None else predictives[self.reference][0]
        values = {name: [self._values(p, y, reference) for p in group] for name, group in predictives.items()}
        self._keep(set_name, values, {name: view_of(group[0], x, y) for name, group in predictives.items()})

    def add_outside(self, set_name: str, x: Any, x_out: Any) -> None:
        rows, views = {}, {}
        for name, group in self.runs.items():
            pairs = [(self.predict(run, x), self.predict(run, x_out)) for run in group]
            rows[name] = _over_seeds([detection(inside, outside) for inside, outside in pairs])
            views[name] = view_of(pairs[0][1], x_out, None)
        self.sets[set_name], self.views[set_name] = rows, views

    def add_attacked(self, attack: Any, x: Any, y: Any) -> None:
        values, views, successes = {}, {}, {}
        for name, group in self.runs.items():
            attacked = [attack.run(run, x, y) for run in group]
            predictives = [self.predict(run, a.x) for run, a in zip(group, attacked, strict=True)]
            values[name] = [self._values(p, y) for p in predictives]
            successes[name] = _over_seeds([{"attack_success": float(a.success[-1])} for a in attacked])
            first, view = attacked[0], view_of(predictives[0], attacked[0].x, y)
            curves = {"success": first.success, "accuracy": first.accuracy, "entropy": first.entropy}
            views[name] = replace(view, attack={key: np.asarray(value) for key, value in curves.items()})
        self._keep("attacked", values, views, successes)

    def add_recalibrated(self, held_out: Any, x: Any, y: Any) -> None:
        values, views, temperatures = {}, {}, {}
        for name, group in self.runs.items():
            fitted = [best_temperature(self.predict(run, held_out[0]), held_out[1]) for run in group]
            predictives = [tempered(self.predict(run, x), t) for run, t in zip(group, fitted, strict=True)]
            values[name] = [self._values(p, y) for p in predictives]
            temperatures[name] = _over_seeds([{"temperature": t} for t in fitted])
            views[name] = view_of(predictives[0], x, y)
        self._keep("recalibrated", values, views, temperatures)

    def costs(self, x: Any) -> dict[str, Cost]:
        few = jax.tree.map(lambda a: a[:EXAMPLES_AT_ONCE], x)
        n = len(jax.tree.leaves(few)[0])
        costs = {}
        for name, (run, *_) in self.runs.items():
            if not isinstance(run, Posterior):
                continue
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

    def _keep(
        self, set_name: str, values: dict[str, list[Values]], views: dict[str, View], more: Rows | None = None
    ) -> None:
        self.sets[set_name] = {name: self._estimates(own) | (more or {}).get(name, {}) for name, own in values.items()}
        self.views[set_name] = views
        if len(values) > 1:
            self.best[set_name] = best_and_ties(values, self.reference, self.scores)

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


def _over_seeds(values: list[dict[str, float]]) -> dict[str, Estimate]:
    estimates = {}
    for column in values[0]:
        own = np.array([row[column] for row in values])
        error = own.std(ddof=1) / np.sqrt(len(own)) if len(own) > 1 else np.nan
        estimates[column] = Estimate(float(own.mean()), float(error), "seeds")
    return estimates
