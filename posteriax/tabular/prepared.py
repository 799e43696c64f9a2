"""Data prepared for training: what a fold is trained and tested on, and where its rows came from."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

Examples = tuple[np.ndarray, np.ndarray]  # inputs and encoded targets


def _no_rows() -> np.ndarray:
    return np.zeros(0, int)


@dataclass(frozen=True, eq=False)
class Prepared:
    """Data prepared for training, and how new data are prepared alike.

    Args:
        preparation: a `Preparation` of tables, or an `ImagePreparation`; its `target` says what the targets are.
        train, test: inputs, and targets as the network sees them: labels, standardised numbers or counts.
        notes: lines for the user about the file, its columns and the split.
        train_rows, test_rows: which rows of the file these are, from 0 on.
        cells: the test rows as they are in the file, with all of its columns; the index holds the place of each and is
            named "line" or "row". None for images.
    """

    preparation: Any
    train: Examples
    test: Examples
    notes: tuple[str, ...] = ()
    train_rows: np.ndarray = field(default_factory=_no_rows)
    test_rows: np.ndarray = field(default_factory=_no_rows)
    cells: pd.DataFrame | None = None

    @property
    def target(self) -> Any:
        """What is predicted: `Classes`, `Quantity` or `Counts`."""
        return self.preparation.target

    @property
    def y_test(self) -> np.ndarray:
        """The test targets as predictions are scored against them: numbers in their own units."""
        return self.target.restore(self.test[1])

    def place(self, example: int) -> str:
        """Where a test example is in the file, such as "line 7"."""
        if self.cells is None:
            return f"example {int(self.test_rows[example])}"
        return f"{self.cells.index.name or 'row'} {self.cells.index[example]}"


class JoinedTests(NamedTuple):
    """The test rows of all folds, one fold after the other, as `px.join_examples` joins their predictions."""

    y: np.ndarray  # in the target's own units
    rows: np.ndarray
    cells: pd.DataFrame | None


def join_tests(folds: Sequence[Prepared]) -> JoinedTests:
    """The test rows of all folds. Inputs are not joined: columns may have other categories in another fold."""
    cells = [fold.cells for fold in folds if fold.cells is not None]
    return JoinedTests(
        np.concatenate([fold.y_test for fold in folds]),
        np.concatenate([fold.test_rows for fold in folds]),
        pd.concat(cells) if len(cells) == len(folds) else None,
    )
