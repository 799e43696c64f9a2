"""What the report of `posteriax compare` tells besides the scores: the user's own columns, what was done, and how."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import posteriax as px
from posteriax.evaluation.run_end import RunEnd
from posteriax.tabular.columns import Category, Number
from posteriax.tabular.preparation import Preparation
from posteriax.tabular.prepared import join_tests
from posteriax.tabular.recipes import RECIPES

WORST_FIRST = ("failed", "not converged", "stopped at the budget", "converged")


def describe_run(outcomes: Sequence[Mapping[str, RunEnd]]) -> dict[str, RunEnd]:
    """How each method ended; of several folds, in the one where it ended worst.

    >>> describe_run([{"map": RunEnd("converged")}, {"map": RunEnd("failed")}])["map"].status
    'failed'
    """
    ends = {}
    for name in outcomes[0]:
        runs = [fold[name] for fold in outcomes if name in fold]
        worst = min(runs, key=lambda run: WORST_FIRST.index(run.status))
        ends[name] = replace(worst, seconds=sum(run.seconds for run in runs), posterior=None)
    return ends


def context_of(
    data: Path,
    folds: Sequence[Any],
    seconds: float,
    files: Mapping[str, str],
    command: str,
    log: str,
    comparison: px.Comparison,
) -> px.ReportContext:
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
    prepared, preparation = first.prepared, first.prepared.preparation
    tests = join_tests([fold.prepared for fold in folds])
    rows: px.TableRows | None = None
    effects: Sequence[Any] = ()
    if tests.cells is not None:
        columns = [column.name for column in preparation.columns if column.name in tests.cells]
        cells = tests.cells[columns].astype(str).to_numpy()
        rows = px.TableRows(columns, cells, [int(line) for line in tests.cells.index], data.name)
    chosen = None if comparison.recommendation is None else comparison.recommendation.posterior
    if isinstance(preparation, Preparation) and chosen is not None and len(prepared.test[1]):
        effects = px.partial_dependence(first.rows[chosen], prepared.test[0], features_of(preparation))
    layers = f"{first.architecture.depth} hidden layer{'s' if first.architecture.depth > 1 else ''}"
    kind = "convolutions" if first.architecture.kind == "images" else f"of {first.architecture.width} units"
    done = {
        "Rows": f"{len(prepared.train[1])} for training, {len(prepared.test[1])} for testing"
        + (f", in each of {len(folds)} folds" if len(folds) > 1 else ""),
        "Network": f"{layers} {kind}",
        "Prior": _prior_words(first.prior),
        "Time": f"at most {seconds:.0f} s for all methods together",
    }
    return px.ReportContext(
        target=prepared.target.name,
        rows=rows,
        effects=effects,
        methods={name: RECIPES[name].sentence for name in first.outcomes},
        done=done,
        files=dict(files),
        command=command,
        log=log,
    )


def _prior_words(prior: Any) -> str:
    if isinstance(prior, Mapping):
        return "Normal, with a scale for each leaf that makes the data most probable"
    return repr(prior)


def features_of(preparation: Preparation) -> list[px.Feature]:
    """The columns whose effect can be shown: numbers in their own units, and categories."""
    features = []
    for column in preparation.columns:
        where = preparation.inputs_of[column.name]
        inputs = tuple(range(where.start, where.stop))
        if isinstance(column, Number):
            features.append(px.Feature(column.name, inputs[:1], column.mean, column.scale, marks=inputs[1:]))
        elif isinstance(column, Category):
            levels = {
                name: tuple(float(i == k) for k in range(len(inputs))) for i, name in enumerate(column.input_names)
            }
            features.append(px.Feature(column.name, inputs, levels=levels))
    return features
