"""From a file to what a network is trained and tested on."""

from dataclasses import replace
from pathlib import Path

from posteriax.tabular import table_preparation as tables
from posteriax.tabular.array_files import Arrays, is_npz, joined, read_npz, table_of
from posteriax.tabular.image_preparation import prepare_image_folds, prepare_whole_images
from posteriax.tabular.messages import TableError
from posteriax.tabular.prepared import Prepared
from posteriax.tabular.settings import DataSettings
from posteriax.tabular.table import Table
from posteriax.tabular.table_files import read_table


def read_data(path: Path) -> Table | Arrays:
    """A table, or arrays if the file is called .npz."""
    return read_npz(path) if is_npz(path) else read_table(path)


def prepare_folds(data: Table | Arrays, settings: DataSettings) -> list[Prepared]:
    """Training and test rows, prepared: one `Prepared` by default, or one per fold.

    >>> import numpy as np
    >>> arrays = Arrays("arrays.npz", np.arange(200.0).reshape(100, 2) ** 2, np.arange(100) % 2)
    >>> [fold.test[0].shape for fold in prepare_folds(arrays, DataSettings(folds=4))]
    [(25, 2), (25, 2), (25, 2), (25, 2)]
    """
    if isinstance(data, Table):
        test = None if settings.test is None else _read_test_table(settings.test)
        return tables.prepare_folds(data, settings, test=test)
    _refuse_columns(data, settings)
    if data.is_image:
        return prepare_image_folds(data, settings)
    x, y, split = joined(data)
    return tables.prepare_folds(table_of(data.name, x, y), replace(settings, target="y"), split)


def prepare_whole(data: Table | Arrays, settings: DataSettings) -> Prepared:
    """All rows for training and none for testing, for a posterior that is to be used after it was tested in folds."""
    if isinstance(data, Table):
        return tables.prepare_whole(data, settings)
    _refuse_columns(data, settings)
    if data.is_image:
        return prepare_whole_images(data, settings)
    x, y, _ = joined(data)
    return tables.prepare_whole(table_of(data.name, x, y), replace(settings, target="y"))


def _read_test_table(path: Path) -> Table:
    if is_npz(path):
        raise TableError(f"--test {path}: the test rows of a table must be in a table too")
    return read_table(path)


def _refuse_columns(arrays: Arrays, settings: DataSettings) -> None:
    if settings.test is not None:
        raise TableError(f"{arrays.name}: instead of --test, add arrays x_test and y_test to the file")
    if arrays.x_test is not None and (settings.folds or 1) > 1:
        raise TableError(f"{arrays.name} has test examples, x_test, so that --folds has nothing to do")
    if arrays.is_image and (settings.group or settings.time):
        raise TableError(f"{arrays.name} holds images, which have no columns for --group or --time")
