"""What a study is: a paper's claims, the settings at each scale, the cells to run, and how the results are shown.

A study is one file that can be read on its own, top to bottom: claims, settings, cells, run, tables, figures. The
claims and their bounds stand there before anything is run; the verdicts are computed from the results by one rule
(:mod:`posteriax.studies.verdict`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from posteriax.studies.results import Results
from posteriax.studies.workbench import Workbench

SCALES = ("smoke", "laptop", "paper")


@dataclass(frozen=True)
class Cell:
    """One unit of work, such as one method and seed: run once, its result kept in a file.

    Args:
        settings: what distinguishes it from the other cells of the same seed, by name.
        seed: number of the repetition.
        cost: expected time relative to the other cells, for the time left.

    >>> Cell({"network": "mlp", "family": "k-tied 2"}, seed=1).name
    'mlp, k-tied 2, seed 1'
    """

    settings: Mapping[str, str | int | float]
    seed: int
    cost: float = 1.0

    @property
    def name(self) -> str:
        return ", ".join([*map(str, self.settings.values()), f"seed {self.seed}"])


@dataclass(frozen=True)
class Claim:
    """A claim of a paper as a number that must lie within bounds.

    Args:
        name: short, unique within the study.
        sentence: what the paper claims.
        paper: the figures it reports.
        quantity: what is measured here, in words, with its unit.
        measure: the quantity, one value per seed or restart.
        above, below: the claim holds if the mean of the quantity lies between them.
        remark: written after the run, if the claim does not hold or cannot be decided: why.
    """

    name: str
    sentence: str
    paper: str
    quantity: str
    measure: Callable[[Results], Sequence[float] | np.ndarray]
    above: float = float("-inf")
    below: float = float("inf")
    remark: str = ""


def with_remarks(claims: Sequence[Claim], remarks: Mapping[str, str]) -> tuple[Claim, ...]:
    """The claims with remarks by name; an error if a name is that of no claim."""
    if unknown := remarks.keys() - {claim.name for claim in claims}:
        raise ValueError(f"remarks on claims that do not exist: {sorted(unknown)}")
    return tuple(replace(claim, remark=remarks.get(claim.name, claim.remark)) for claim in claims)


@dataclass(frozen=True)
class Table:
    """A table of the page: rows of text and numbers under headings, with a caption."""

    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class Study:
    """A paper's experiments, by one command.

    Args:
        name: what the command line calls it.
        title: one line for the list.
        paper: the citation.
        summary: a paragraph at the top of the page: what is done, on which data, what differs from the paper.
        claims: fixed before the run.
        scales: a frozen dataclass of settings for each of "smoke", "laptop" and "paper"; it has `seeds`, how many by
            default, and `data`, the data sets that must be there before anything starts.
        one_step: the same settings cut to the shortest possible run, to try a scale without waiting for it.
        cells: all cells at these settings, for so many seeds, in the order in which they run.
        run: runs a cell and returns its result, nested dicts and lists of numbers and text.
        tables: the tables of the page.
        figures: Matplotlib figures by file name (without ending), drawn from the results alone.

    Settings, results and figures are plain data: a figure can be drawn again from the file of results.
    """

    name: str
    title: str
    paper: str
    summary: str
    claims: tuple[Claim, ...]
    scales: Mapping[str, Any]
    one_step: Callable[[Any], Any]
    cells: Callable[[Any, int], list[Cell]]
    run: Callable[[Cell, Any, Workbench], Mapping[str, Any]]
    tables: Callable[[Results], list[Table]]
    figures: Mapping[str, Callable[[Results], Any]] = field(default_factory=dict)
