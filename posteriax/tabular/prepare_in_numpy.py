"""The preparation of rows for predict.py, in NumPy alone. Written by posteriax; the numbers are in preparation.json.

    from prepare import prepare
    from predict import predict
    predict(prepare({"height": [1.5, None], "kind": ["oak", "elm"], "planted": ["2024-01-31", None]}))

Numbers are numbers, categories text as in the training table, dates ISO text or datetimes; None is missing.
"""

import json
from pathlib import Path

import numpy as np

PERIODS = {"day of week": 7.0, "time of year": 365.2425, "time of day": 1.0}  # in days


def prepare(table: dict) -> np.ndarray:
    """The inputs of predict, (rows, inputs), from the cells of every column by name. Other columns are ignored."""
    columns = json.loads(Path(__file__).with_name("preparation.json").read_text())["columns"]
    rows = max(len(cells) for cells in table.values())
    parts = []
    for column in columns:
        name = column["name"]
        if name not in table and not column.get("missing") and None not in column.get("categories", []):
            raise ValueError(f"there is no column {name!r}")
        cells = list(table.get(name, [None] * rows))
        if len(cells) != rows:
            raise ValueError(f"column {name!r} has {len(cells)} rows, but others have {rows}")
        parts += _category(column, cells) if "categories" in column else _numbers(column, cells)
    return np.stack(parts, axis=1).astype(np.float32)


def _category(column: dict, cells: list) -> list:
    named = [value for value in column["categories"] if value is not None]
    cells = [None if cell is None else str(cell) for cell in cells]
    parts = [np.array([cell == value for cell in cells]) for value in named]
    if column["pooled"]:
        parts.append(np.array([cell is not None and cell not in named for cell in cells]))
    if None in column["categories"]:
        parts.append(np.array([cell is None for cell in cells]))
    return parts


def _numbers(column: dict, cells: list) -> list:
    if isinstance(column.get("form"), str):  # dates
        days = np.array([np.datetime64("NaT") if cell is None else np.datetime64(cell, "us") for cell in cells])
        values = (days.astype("datetime64[us]") - np.datetime64(0, "us")) / np.timedelta64(1, "D")
    else:
        values = np.array([np.nan if cell is None else float(cell) for cell in cells])
        values = np.where(np.isinf(values), np.nan, values)
    missing = np.isnan(values)
    parts = []
    if column.get("trend", True):
        parts.append((np.where(missing, column["median"], values) - column["mean"]) / column["scale"])
    if column["missing"]:
        parts.append(missing)
    for part in column.get("parts", []):
        angle = 2 * np.pi * ((np.floor(values) if part == "day of week" else values) / PERIODS[part] % 1)
        parts += [np.nan_to_num(np.sin(angle)), np.nan_to_num(np.cos(angle))]
    return parts
