"""``posteriax predict``: predictions with uncertainty for new rows, as CSV."""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from posteriax.evaluation import evaluate
from posteriax.tabular.data_files import is_npz, read_npz, read_table, table_of
from posteriax.tabular.description import Description, load_described
from posteriax.tabular.folds import known_targets
from posteriax.tabular.messages import TableError
from posteriax.tabular.preparation import ImagePreparation, compare_with_training
from posteriax.tabular.table import Table
from posteriax.tabular.targets import Classes, Quantities, Quantity, Target, Times

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # how a spreadsheet's formulas begin
NUMBER = re.compile(r"[-+]?[\d\s.,:%]*(e[-+]?\d+)?", re.IGNORECASE)  # and a sign alone: safe as they are
QUANTILES = {"5 %": 0.05, "95 %": 0.95}


def run_predict(posterior: Path, data: Path, out: Path | None, ids: Sequence[str] = ()) -> None:
    """Write predictions to a file or to standard output; scores and notes go to standard error."""
    columns, scores, notes = predict_file(posterior, data, ids)
    text = as_csv(columns)
    if out is None:
        sys.stdout.write(text)
    else:
        out.write_text(text, encoding="utf-8", newline="")
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    if scores is not None:
        print(", ".join(f"{name} {value:.4g}" for name, value in scores.items()), file=sys.stderr)


def predict_file(
    posterior: Path, data: Path, ids: Sequence[str] = ()
) -> tuple[dict[str, Any], dict[str, float] | None, list[str]]:
    """Predictions for a file's rows.

    Args:
        posterior: a file that ``posteriax compare``, ``distil`` or ``export`` wrote.
        data: a table with the same columns, or an NPZ file with x; the target may be there too.
        ids: columns to carry over, besides those that were left out of the training as IDs.

    Returns:
        The columns that name the rows and the predictions, by name; scores if the target was there; and notes on what
        is unlike the training rows.
    """
    loaded, description = load_described(posterior)
    rows = new_rows(data, description, ids)
    predictive = loaded.predict(rows.x)
    columns = _columns(predictive, description.target)
    scores = None
    if rows.y is not None and rows.known.any():
        scored = predictive if rows.known.all() else loaded.predict(rows.x[rows.known])
        scores = evaluate(scored, rows.y)
    named = {f"{name} (from the file)" if name in columns else name: cells for name, cells in rows.ids.items()}
    return named | columns, scores, rows.notes


def as_csv(columns: dict[str, Any]) -> str:
    """Columns as the text of a CSV file. Text that a spreadsheet would run as a formula gets a leading apostrophe.

    >>> as_csv({"mean": np.array([1.5, 2.0]), "note": ["a,b", "c"]}).splitlines()
    ['mean,note', '1.5,"a,b"', '2,c']
    >>> as_csv({"id": ["=HYPERLINK(A1)", "-1.5", "+"]}).splitlines()
    ['id', "'=HYPERLINK(A1)", '-1.5', '+']
    """
    cells = {
        _as_text(name): [_as_text(value) if isinstance(value, str) else _cell(value) for value in values]
        for name, values in columns.items()
    }
    return pd.DataFrame(cells).to_csv(index=False, lineterminator="\n")


def _as_text(text: str) -> str:
    return f"'{text}" if text[:1] in FORMULA and not NUMBER.fullmatch(text) else text


def _cell(value: float | np.floating) -> str:
    """All significant digits: seven for a float32; a float64 has been rounded to its significant digits already."""
    return f"{float(value):.{7 if np.asarray(value).dtype == np.float32 else 15}g}"


def _to_digits(values: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Rounded to 1e-5 of the spread, about the precision of a standardised prediction in float32; NaN stays NaN."""
    places = 5 - np.floor(np.log10(np.maximum(spread, np.finfo(np.float64).tiny)))
    return np.array([round(float(v), int(p)) for v, p in zip(values, places, strict=True)])


def _columns(predictive: Any, target: Target) -> dict[str, Any]:
    if isinstance(target, Quantities):
        columns: dict[str, Any] = {}
        for k, name in enumerate(target.names):
            columns |= {f"{name} {what}": values for what, values in _number_columns(predictive, target, k).items()}
        return columns
    if not isinstance(target, Classes):
        return _number_columns(predictive, target)
    probs = predictive.probs
    return {
        "predicted": [target.labels[i] for i in probs.argmax(axis=1)],
        **{f"probability {label}": probs[:, i] for i, label in enumerate(target.labels)},
        "entropy": predictive.entropy(),
        "mutual information": predictive.mutual_information(),
    }


def _number_columns(predictive: Any, target: Target, k: int = 0) -> dict[str, Any]:
    """Of the k-th target."""
    low, high = predictive.quantile(np.array(list(QUANTILES.values())))
    if isinstance(target, Times):  # the mean and spread of a long tail say little
        median = predictive.point()[:, k]
        named = {"median": median, **dict(zip(QUANTILES, (low[:, k], high[:, k]), strict=True))}
        return {name: _to_digits(values, median) for name, values in named.items()}
    std = predictive.std[:, k]
    named = {
        "mean": predictive.mean[:, k],
        "std": std,
        "noise std": np.asarray(predictive.noise, np.float64)[:, k],
        "model std": np.asarray(predictive.knowledge, np.float64)[:, k],
        **dict(zip(QUANTILES, (low[:, k], high[:, k]), strict=True)),
    }
    return {name: _to_digits(values, std) for name, values in named.items()}


@dataclass(frozen=True, eq=False)
class NewRows:
    """Rows of a file: inputs, targets if it has them, and what to say about them."""

    x: np.ndarray
    y: np.ndarray | None  # the known targets, in their own units
    known: np.ndarray  # which rows have one
    notes: list[str]
    ids: dict[str, list[str]]


def new_rows(data: Path, description: Description, ids: Sequence[str] = ()) -> NewRows:
    """The rows of a file as the network takes them."""
    preparation, target = description.preparation, description.target
    if isinstance(preparation, ImagePreparation):
        if not is_npz(data):
            raise TableError(f"{description.method} was trained on images: give an NPZ file with an array x of images")
        arrays = read_npz(data)
        if ids:
            raise TableError(f"{data} holds images, which have no columns for --id")
        y = None if arrays.y is None else _in_units(target, arrays.y)
        known = np.full(len(arrays.x), y is not None)
        return NewRows(preparation.transform(arrays), y, known, [], {})
    table = _table(data)
    for name in ids:
        table.require(name)
    x = preparation.transform(table)
    values, known = known_targets(table, target)
    y = None if values is None or not known.any() else _in_units(target, values)
    carried = dict.fromkeys([*ids, *(name for name in preparation.ids_ if name in table.frame)])
    notes = [*table.notes, *compare_with_training(preparation, table)]
    return NewRows(x, y, known, notes, {name: table.texts(name).fillna("").tolist() for name in carried})


def _table(data: Path) -> Table:
    if not is_npz(data):
        return read_table(data)
    arrays = read_npz(data)
    if arrays.is_image:
        raise TableError(f"{data} holds images, but the posterior was trained on a table")
    return table_of(str(data), arrays.x, arrays.y)


def _in_units(target: Target, values: np.ndarray) -> np.ndarray:
    """Targets as predictions are scored against them; an error if one is none of its kind."""
    return np.asarray(values, np.float64) if isinstance(target, Quantity | Quantities) else target.encode(values)
