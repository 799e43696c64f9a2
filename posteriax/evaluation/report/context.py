"""What a report says beyond its comparison: the user's table, what was done, and how to do it again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from posteriax.evaluation.partial_dependence import PartialDependence


@dataclass(frozen=True, eq=False)
class TableRows:
    """The rows of the main test set as they are in the user's file, for the examples of a report.

    Args:
        columns: the names of the columns, with their units if they are known.
        cells: by test row, in the order of the test set, its cells as they are in the file: lists, or a 2-D array.
        lines: by test row, its line in the file.
        file: the file's name.

    >>> TableRows(("age (years)", "sex"), [["41", "f"], ["17", "m"]], lines=[8, 13]).cells[1]
    ['17', 'm']
    """

    columns: Sequence[str]
    cells: Sequence[Sequence[object]]
    lines: Sequence[int] | None = None
    file: str = ""

    def __post_init__(self) -> None:
        if len(self.cells) and len(self.cells[0]) != len(self.columns):
            raise ValueError(f"there are {len(self.columns)} columns, but rows of {len(self.cells[0])} cells")
        if self.lines is not None and len(self.lines) != len(self.cells):
            raise ValueError(f"there are lines of {len(self.lines)} rows, but cells of {len(self.cells)}")


@dataclass(frozen=True, eq=False, kw_only=True)
class ReportContext:
    """What `comparison.to_html` reports besides the comparison. All of it is optional.

    Args:
        target: the name of what is predicted.
        unit: its unit.
        rows: the test rows as the user knows them; examples then show columns and cells, not the network's inputs.
        effects: how predictions depend on the columns, as :func:`px.evaluation.partial_dependence` finds for the
            recommended posterior.
        methods: by name, what each method is, in one sentence.
        done: what was done, in the order to tell it, such as ``{"Rows": "...", "Network": "...", "Prior": "..."}``.
        files: by name, the file of each posterior.
        predict: the command that predicts new rows, with ``{file}`` in place of the posterior's file.
        command: the command that makes this report again.
        log: what was printed on the way.

    >>> context = ReportContext(
    ...     target="price", files={"hmc": "run/hmc.posterior"}, predict="posteriax predict {file} new.csv"
    ... )
    >>> context.predict_with("hmc")
    'posteriax predict run/hmc.posterior new.csv'
    """

    target: str = ""
    unit: str = ""
    rows: TableRows | None = None
    effects: Sequence[PartialDependence] = ()
    methods: Mapping[str, str] = field(default_factory=dict)
    done: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    predict: str = "posteriax predict {file} new.csv"
    command: str = ""
    log: str = ""

    def predict_with(self, name: str | None) -> str:
        """The command that predicts new rows with a posterior; empty if its file is not known."""
        return self.predict.replace("{file}", self.files[name]) if name is not None and name in self.files else ""

    @property
    def target_heading(self) -> str:
        """The target's name, with its unit."""
        return f"{self.target} ({self.unit})" if self.target and self.unit else self.target
