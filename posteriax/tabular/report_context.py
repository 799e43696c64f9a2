"""What the report of `posteriax compare` tells besides the scores: the user's own columns, what was done, and how."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from posteriax.evaluation import (
    Comparison,
    Feature,
    PartialDependence,
    ReportContext,
    TableRows,
    partial_dependence,
)
from posteriax.posterior.posterior import Posterior
from posteriax.tabular.columns import Category, Number
from posteriax.tabular.fold_fits import FittedFold, PriorByLeaf
from posteriax.tabular.folds import join_tests
from posteriax.tabular.preparation import TablePreparation
from posteriax.tabular.recipes import RECIPES


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
    predictor = None if chosen is None else first.predictors[chosen]
    if isinstance(preparation, TablePreparation) and isinstance(predictor, Posterior) and len(fold.test[1]):
        effects = partial_dependence(predictor, fold.test[0], table_features(preparation))
    layers = f"{first.architecture.depth} hidden layer{'s' if first.architecture.depth > 1 else ''}"
    kind = "convolutions" if first.architecture.kind == "images" else f"of {first.architecture.width} units"
    done = {
        "Rows": f"{len(fold.train[1])} for training, {len(fold.test[1])} for testing"
        + (f", in each of {len(folds)} folds" if len(folds) > 1 else ""),
        "Network": f"{layers} {kind}",
        "Prior": _prior_words(first.prior),
        "Time": f"at most {seconds:.0f} s for all methods together",
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
            levels = {
                name: tuple(float(i == k) for k in range(len(inputs))) for i, name in enumerate(column.input_names)
            }
            features.append(Feature(column.name, inputs, levels=levels))
    return features
