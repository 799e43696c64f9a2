"""Compare: several posteriors on the same test sets, and how far each is from a reference."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from posteriax._internal.checks import check_data, check_inputs
from posteriax.comparison.comparison import Comparison, Cost, Rows
from posteriax.comparison.evaluation import Examples, Score, example_distances, example_scores, summarise
from posteriax.comparison.recalibration import best_temperature, tempered
from posteriax.comparison.shift import detection
from posteriax.comparison.significance import best_and_ties
from posteriax.comparison.views import View, view_of
from posteriax.data import CorruptedSet
from posteriax.diagnostics import check_reference
from posteriax.posterior import EXAMPLES_AT_ONCE, Posterior


def compare(
    posteriors: Mapping[str, Any],
    data: Any,
    *,
    reference: str | None = None,
    draws: int | None = None,
    out: Mapping[str, Any] | None = None,
    attack: Any = None,
    recalibrate: Any = None,
    class_names: Sequence[str] | None = None,
    costs: bool = True,
) -> Comparison:
    """Score several posteriors on one or several test sets.

    Args:
        posteriors: by name. A value may also be a predictive for the same inputs (one test set), or a list of
            posteriors of several seeds: scores are then means over seeds, errors those of these means, and what is
            significantly worse is found over seeds and examples together. Numbers of seeds may differ.
        data: the test set ``(x, y)``, or several by name: the first is the main one. Those of the type
            :class:`px.data.CorruptedSet`, as :func:`px.corrupted` makes them, are also averaged by severity.
        reference: the name of one of them, usually HMC's: the others' distances to it (to its first seed) are added. If
            its chains do not agree on their predictions (R-hat above 1.05), the tables say so.
        draws: how many draws each prediction averages; see :meth:`Posterior.predict`.
        out: inputs from elsewhere, by name: how well uncertainty tells them from the main test set's.
        attack: ``px.FastSign(...)``: each posterior is attacked on the main test set, and scored there.
        recalibrate: held-out data ``(x, y)``: one temperature per posterior is fitted to them, and the main test set is
            scored again with it, in a table of its own (classes only).
        class_names: of the labels, for the report.
        costs: measure what each posterior takes (parameters, seconds of training, time to predict) and show it.

    >>> import equinox as eqx, jax, posteriax as px
    >>> train, test = px.data.two_moons()
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical())
    >>> posterior = px.fit(problem, train, px.MAP(), epochs=1, key=0)
    >>> px.compare({"MAP": posterior}, test).columns
    ['accuracy', 'nll', 'ece', 'brier']
    """
    if not posteriors:
        raise ValueError("posteriors is empty: name at least one")
    if reference is not None and reference not in posteriors:
        raise ValueError(f"reference {reference!r} is none of the posteriors: {', '.join(map(repr, posteriors))}")
    runs = {name: _runs(name, value) for name, value in posteriors.items()}
    tests = data if isinstance(data, Mapping) else {"test": data}
    if not tests:
        raise ValueError("data is empty: name at least one test set")
    if any(not isinstance(run, Posterior) for group in runs.values() for run in group) and (
        len(tests) > 1 or out or attack or recalibrate
    ):
        raise ValueError("predictives are of one test set only: give posteriors, to predict the other sets as well")
    main = next(iter(tests))
    work = _Comparing(runs, reference, draws)
    corruptions = {}
    for name in tests:  # one at a time: many corrupted sets together may not fit into memory
        test_set = tests[name]
        if isinstance(test_set, CorruptedSet):
            corruptions[str(name)] = test_set.corruption
        work.add_set(str(name), *check_data(test_set))
    x_main, y_main = check_data(tests[main])
    for name, x_out in (out or {}).items():
        work.add_outside(f"out: {name}", x_main, check_inputs(x_out))
    if attack is not None:
        work.add_attacked(attack, x_main, y_main)
    if recalibrate is not None:
        work.add_recalibrated(check_data(recalibrate), x_main, y_main)
    return Comparison(
        work.sets,
        reference,
        work.costs(x_main) if costs else {},
        work.best,
        work.views,
        None if class_names is None else tuple(map(str, class_names)),
        corruptions,
        {name: len(group) for name, group in runs.items()},
        None if reference is None else check_reference(reference, runs[reference][0], x_main, draws),
    )


class _Comparing:
    """Tables under construction. Predictions are made set by set and not kept."""

    def __init__(self, runs: dict[str, list[Any]], reference: str | None, draws: int | None):
        self.runs, self.reference, self.draws = runs, reference, draws
        self.sets: dict[str, Rows] = {}
        self.best: dict[str, dict[str, tuple[str, ...]]] = {}
        self.views: dict[str, dict[str, View]] = {}

    def predict(self, run: Any, x: Any) -> Any:
        return run.predict(x, draws=self.draws) if isinstance(run, Posterior) else run

    def add_set(self, name: str, x: Any, y: Any) -> None:
        predictives = {own: [self.predict(run, x) for run in group] for own, group in self.runs.items()}
        examples = {own: [example_scores(p, y) for p in group] for own, group in predictives.items()}
        if self.reference is not None:
            theirs = predictives[self.reference][0]
            for own, group in predictives.items():
                for scored, predictive in zip(examples[own], group, strict=True):
                    scored.update(example_distances(predictive, theirs))
        self._keep(name, examples, {own: view_of(group[0], x, y) for own, group in predictives.items()})

    def add_outside(self, name: str, x: Any, x_out: Any) -> None:
        rows, views = {}, {}
        for own, group in self.runs.items():
            pairs = [(self.predict(run, x), self.predict(run, x_out)) for run in group]
            rows[own] = _over_seeds([detection(inside, outside) for inside, outside in pairs])
            views[own] = view_of(pairs[0][1], x_out, None)
        self.sets[name], self.views[name] = rows, views

    def add_attacked(self, attack: Any, x: Any, y: Any) -> None:
        examples: dict[str, list[Examples]] = {}
        views, successes = {}, {}
        for own, group in self.runs.items():
            attacked = [attack.run(run, x, y) for run in group]
            predictives = [self.predict(run, a.x) for run, a in zip(group, attacked, strict=True)]
            examples[own] = [example_scores(p, y) for p in predictives]
            successes[own] = _over_seeds([{"attack_success": float(a.success[-1])} for a in attacked])
            first, view = attacked[0], view_of(predictives[0], attacked[0].x, y)
            curves = {"success": first.success, "accuracy": first.accuracy, "entropy": first.entropy}
            views[own] = replace(view, attack={key: np.asarray(value) for key, value in curves.items()})
        self._keep("attacked", examples, views)
        for own, row in self.sets["attacked"].items():
            row.update(successes[own])

    def add_recalibrated(self, held_out: Any, x: Any, y: Any) -> None:
        examples, temperatures, views = {}, {}, {}
        for own, group in self.runs.items():
            fitted = [best_temperature(self.predict(run, held_out[0]), held_out[1]) for run in group]
            predictives = [tempered(self.predict(run, x), t) for run, t in zip(group, fitted, strict=True)]
            examples[own] = [example_scores(p, y) for p in predictives]
            temperatures[own] = _over_seeds([{"temperature": t} for t in fitted])
            views[own] = view_of(predictives[0], x, y)
        self._keep("recalibrated", examples, views)
        for own, row in self.sets["recalibrated"].items():
            row.update(temperatures[own])

    def costs(self, x: Any) -> dict[str, Cost]:
        few = jax.tree.map(lambda a: a[:EXAMPLES_AT_ONCE], x)
        n = len(jax.tree.leaves(few)[0])
        costs = {}
        for own, group in self.runs.items():
            run = group[0]
            if not isinstance(run, Posterior):
                continue
            run.predict(few, draws=self.draws)  # compiles
            began = time.perf_counter()
            run.predict(few, draws=self.draws)
            took = time.perf_counter() - began
            costs[own] = Cost(run.num_parameters, run.trace.seconds, 1e3 * took * 1000 / n)
        return costs

    def _keep(self, name: str, examples: dict[str, list[Examples]], views: dict[str, View]) -> None:
        self.sets[name] = {own: _scores(group) for own, group in examples.items()}
        self.views[name] = views
        if len(examples) > 1:
            self.best[name] = best_and_ties(examples, self.reference)


def _runs(name: str, value: Any) -> list[Any]:
    runs = list(value) if isinstance(value, (list, tuple)) else [value]
    if not runs:
        raise ValueError(f"{name!r} has no posteriors")
    for run in runs:
        if not isinstance(run, Posterior) and not hasattr(run, "log_prob"):
            raise TypeError(f"{name!r} must be a posterior, a predictive or a list of posteriors, got {run!r}")
    return runs


def _scores(group: list[Examples]) -> dict[str, Score]:
    each = [summarise(examples) for examples in group]
    if len(each) == 1:
        return each[0]
    return _over_seeds([{column: score.value for column, score in row.items()} for row in each])


def _over_seeds(values: list[dict[str, float]]) -> dict[str, Score]:
    scores = {}
    for column in values[0]:
        own = np.array([row[column] for row in values])
        error = own.std(ddof=1) / np.sqrt(len(own)) if len(own) > 1 else np.nan
        scores[column] = Score(float(own.mean()), float(error), "seeds")
    return scores
