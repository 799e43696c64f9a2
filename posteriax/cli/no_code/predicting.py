"""``posteriax predict``: predictions with uncertainty for new rows, as CSV."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import posteriax as px
from posteriax.cli.no_code.description import Description, load_described
from posteriax.cli.user_data.array_files import is_npz, read_npz, table_of
from posteriax.cli.user_data.image_preparation import ImagePreparation
from posteriax.cli.user_data.messages import DataError
from posteriax.cli.user_data.table import Table
from posteriax.cli.user_data.table_files import read_table
from posteriax.cli.user_data.targets import Classes, Quantity

QUANTILES = {"5 %": 0.05, "95 %": 0.95}


def run_predict(posterior: Path, data: Path, out: Path | None) -> None:
    """Write predictions to a file or to standard output; scores and notes go to standard error."""
    columns, scores, notes = predict_file(posterior, data)
    text = as_csv(columns)
    if out is None:
        sys.stdout.write(text)
    else:
        out.write_text(text, encoding="utf-8", newline="")
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    if scores is not None:
        print(", ".join(f"{name} {value:.4g}" for name, value in scores.items()), file=sys.stderr)


def predict_file(posterior: Path, data: Path) -> tuple[dict[str, Any], dict[str, float] | None, list[str]]:
    """Predictions for a file's rows.

    Args:
        posterior: a file that ``posteriax compare`` saved.
        data: a table with the same columns, or an NPZ file with x; the target may be there too.

    Returns:
        The predictions by column, scores if the target was there, and notes on what is unlike the training rows.
    """
    loaded, description = load_described(posterior)
    x, y, known, notes = _inputs(data, description)
    predictive = loaded.predict(x)
    columns = _columns(predictive, description.preparation.target)
    scores = None
    if known.any():
        scored = predictive if known.all() else loaded.predict(x[known])
        scores = px.evaluate(scored, y)
    return columns, scores, notes


def as_csv(columns: dict[str, Any]) -> str:
    """Columns as the text of a CSV file.

    >>> as_csv({"mean": np.array([1.5, 2.0]), "note": ["a,b", "c"]}).splitlines()
    ['mean,note', '1.5,"a,b"', '2,c']
    """
    cells = {
        name: [value if isinstance(value, str) else _cell(value) for value in values]
        for name, values in columns.items()
    }
    return pd.DataFrame(cells).to_csv(index=False, lineterminator="\n")


def _cell(value: Any) -> str:
    """All significant digits: seven for a float32; a float64 has been rounded to its significant digits already."""
    return f"{float(value):.{7 if np.asarray(value).dtype == np.float32 else 15}g}"


def _to_digits(values: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Rounded to 1e-5 of the spread, about the precision of a standardised prediction in float32; NaN stays NaN."""
    places = 5 - np.floor(np.log10(np.maximum(spread, np.finfo(np.float64).tiny)))
    return np.array([round(float(v), int(p)) for v, p in zip(values, places, strict=True)])


def _columns(predictive: Any, target: Classes | Quantity) -> dict[str, Any]:
    if isinstance(target, Quantity):
        low, high = predictive.quantile(np.array(list(QUANTILES.values())))
        std = predictive.std[:, 0]
        columns = {"mean": predictive.mean[:, 0], "std": std} | dict(
            zip(QUANTILES, (low[:, 0], high[:, 0]), strict=True)
        )
        return {name: _to_digits(values, std) for name, values in columns.items()}
    probs = predictive.probs
    return {
        "predicted": [target.labels[i] for i in probs.argmax(axis=1)],
        **{f"probability {label}": probs[:, i] for i, label in enumerate(target.labels)},
        "entropy": predictive.entropy(),
        "mutual information": predictive.mutual_information(),
    }


def _inputs(data: Path, description: Description) -> tuple[np.ndarray, Any, np.ndarray, list[str]]:
    """Prepared inputs, the known targets in their own units, which rows these are, and notes."""
    preparation = description.preparation
    if isinstance(preparation, ImagePreparation):
        if not is_npz(data):
            raise DataError(f"{description.method} was trained on images: give an NPZ file with an array x of images")
        arrays = read_npz(data)
        y = None if arrays.y is None else _in_units(preparation.target, arrays.y)
        known = np.full(len(arrays.x), y is not None)
        return preparation.inputs(str(data), arrays.x), y, known, []
    table = _table(data)
    x = preparation.inputs(table)
    y, known = _targets(table, preparation.target)
    return x, y, known, preparation.notes(table)


def _table(data: Path) -> Table:
    if not is_npz(data):
        return read_table(data)
    arrays = read_npz(data)
    if arrays.is_image:
        raise DataError(f"{data} holds images, but the posterior was trained on a table")
    return table_of(str(data), arrays.x, arrays.y)


def _targets(table: Table, target: Classes | Quantity) -> tuple[Any, np.ndarray]:
    if target.name not in table.frame:
        return None, np.zeros(table.rows, bool)
    known = table.frame[target.name].notna().to_numpy()
    if not known.any():
        return None, known
    text = isinstance(target, Classes) and table.is_text(target.name)
    values = table.texts(target.name).to_numpy() if text else table.numbers(target.name)
    return _in_units(target, values[known]), known


def _in_units(target: Classes | Quantity, values: Any) -> np.ndarray:
    return target.encode(values) if isinstance(target, Classes) else np.asarray(values, np.float64)
