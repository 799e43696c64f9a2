"""What a cell works with: data by name, fits that survive a kill, and a place for times."""

from pathlib import Path
from typing import Any

import posteriax.data as data_sets
from posteriax.data import DataSet
from posteriax.posterior import Posterior
from posteriax.run import fit
from posteriax.studies.stand_ins import stand_in


class Workbench:
    """Data sets, fits and times of one cell.

    Args:
        folder: where the cell's runs keep their checkpoints; None keeps none.
        trial: whether every data set is replaced by a few made-up examples of its shape.
        progress: as for ``px.fit``.
        loaded: data sets by name that other cells have loaded; shared among the cells of a study.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        trial: bool = False,
        progress: bool | None = None,
        loaded: dict[Any, DataSet] | None = None,
    ):
        self.folder, self.trial, self.progress = folder, trial, progress
        self.times: dict[str, float] = {}
        self._loaded: dict[Any, DataSet] = {} if loaded is None else loaded
        self._fits = 0

    def load(self, name: str, **options: Any) -> DataSet:
        """``px.data.load(name, **options)``, read once for all cells; "made-up/NAME" is a few random examples of the
        same shape, and "fashion_small" the part of Fashion-MNIST that ships with the package."""
        key = (name, *sorted(options.items()))
        if key not in self._loaded:
            self._loaded[key] = load_data(name, self.trial, **options)
        return self._loaded[key]

    def fit(self, problem: Any, data: Any, method: Any, **settings: Any) -> Posterior:
        """``px.fit`` with a checkpoint in the cell's folder: a killed study resumes within the run."""
        checkpoint = None if self.folder is None else self.folder / f"fit-{self._fits}"
        self._fits += 1
        return fit(problem, data, method, checkpoint=checkpoint, progress=self.progress, **settings)


def load_data(name: str, trial: bool = False, **options: Any) -> DataSet:
    """A data set for a study, or its stand-in."""
    real = name.removeprefix("made-up/")
    if trial or real != name:
        return stand_in(real)
    if name == "fashion_small":
        train, test = data_sets.fashion_small()
        return DataSet(name, train, test, tuple(map(str, range(10))))
    return data_sets.load(name, **options)
