"""The claims of a paper: rows of a table in Markdown, with what is measured of each and when it holds.

A study's folder has a file ``paper.md``. It begins with a title, the citation and a summary of what is done here, and
has these sections, of which only the claims are required:

    ## Findings     one sentence for the front page, and a list of what was surprising
    ## Claims       a table, and remarks on single claims: "**name.** Why it does not hold."
    ## Figures      captions, in the order of the page: "**file name.** Title. Caption."
    ## Settings     a table of settings: what the paper has, and where the study has it

A row of the claims:

    | rank of scales | Two values hold ... | figure 3 | 97 % | | ... | above 0.9 | `share("MLP")` | paper | | spectra |

Its columns are `COLUMNS`. The paper's effect is the same quantity as measured here, "0.03", or "6.8 from 1" for a ratio
whose value without an effect is 1. The measure is a Python expression over the study's measures
(:class:`posteriax.studies.results.Measure`): numbers, one per seed. Claims of one family repeat a comparison; the
figure is the one beside which the page shows the claim. :mod:`posteriax.studies.judging` has the rule of verdicts.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from posteriax.studies.results import (
    CellsWaiting,
    Conditional,
    Measure,
    Parts,
    Results,
    entry,
    least,
    mean,
    most,
    whole_selections,
)

COLUMNS = (
    *("name", "claim", "location", "the paper", "paper's effect", "measured here", "holds if", "measure", "kind"),
    *("family", "figure"),
)
SETTING_COLUMNS = ("setting", "the paper", "here")

Kind = Literal["paper", "sanity", "ours"]


@dataclass(frozen=True)
class Claim:
    """A claim of a paper as a number that must lie within bounds.

    Args:
        name: short, unique within the study.
        sentence: what the paper claims.
        paper: the figures it reports.
        quantity: what is measured here, in words, with its unit.
        measure: the quantity, one value per seed or restart; several parts must all lie within the bounds.
        above, below: the claim holds if the mean of the quantity lies between them.
        location: where the paper makes the claim, such as "figure 3".
        kind: "paper" is a finding of the paper; "sanity" must hold for the others to mean anything; "ours" is not in
            the paper.
        remark: written after the run: why the claim does not hold, or what to keep in mind.
        paper_effect: the quantity in the paper; NaN if it reports none.
        null_effect: the value of the quantity where there is no effect: 0, or 1 for a ratio.
        family: claims that repeat a comparison share one, and are judged together (Holm).
        figure: beside which of the study's figures the page shows it; empty for none.
        formula: the measure as it is written in the table.
    """

    name: str
    sentence: str
    paper: str
    quantity: str
    measure: Measure | Parts | Conditional
    above: float = -math.inf
    below: float = math.inf
    location: str = ""
    kind: Kind = "paper"
    remark: str = ""
    paper_effect: float = math.nan
    null_effect: float = 0.0
    family: str = ""
    figure: str = ""
    formula: str = ""

    @property
    def reported(self) -> str:
        """What the paper reports, and where."""
        return f"{self.location}: {self.paper}" if self.location.strip("-") else self.paper

    def values(self, results: Results) -> dict[str, np.ndarray]:
        """The quantity by part, one value per seed; a single part has no name."""
        measure = self.measure.measure if isinstance(self.measure, Conditional) else self.measure
        parts = measure.by_name(results) if isinstance(measure, Parts) else {"": measure}
        return {name: np.asarray(part(results), np.float64) for name, part in parts.items()}

    def objection(self, results: Results) -> str:
        """Why the numbers decide nothing; empty if they may."""
        return self.measure.objection(results) if isinstance(self.measure, Conditional) else ""

    def waits(self, results: Results) -> bool:
        """Whether cells that the measure asks for have not run."""
        try:
            self.values(whole_selections(results))
        except CellsWaiting:
            return True
        return False


@dataclass(frozen=True)
class Caption:
    """A figure of the page: its title, which names the paper's figure, and what it shows."""

    title: str
    text: str


@dataclass(frozen=True)
class PaperSetting:
    """A setting that the paper names: its words, the paper's value, and the path of the study's."""

    words: str
    paper: str
    path: str


@dataclass(frozen=True)
class Paper:
    """What a study says in words: the paper's citation, what is done here, what was found, the claims, captions."""

    title: str
    citation: str
    summary: str
    claims: tuple[Claim, ...]
    finding: str = ""
    surprises: tuple[str, ...] = ()
    captions: Mapping[str, Caption] = field(default_factory=dict)
    settings: tuple[PaperSetting, ...] = ()


def read_paper(file: Path, measures: Mapping[str, Any]) -> Paper:
    """Read a study's ``paper.md``.

    Args:
        file: its path.
        measures: what the expressions of the claims may use, by name, beside `entry`, `least`, `most` and `mean`.

    Raises:
        ValueError: if a row or a remark cannot be understood, with its name.
    """
    words, *parts = re.split(r"\n## (\w+)\n", file.read_text(encoding="utf-8"))
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    title, _, words = words.partition("\n")
    citation, _, summary = words.strip().partition("\n\n")
    rows, *remarks = _paragraphs(sections.get("Claims", ""))
    names = {"entry": entry, "least": least, "most": most, "mean": mean, **measures}
    claims = {row[0]: _claim(file, row, names) for row in _rows(file, "claims", rows, COLUMNS)}
    for name, text in _named(file, remarks):
        if name not in claims:
            raise ValueError(f"{file}: no claim has the name of this remark: {name!r}")
        claims[name] = replace(claims[name], remark=text)
    finding, *surprises = _paragraphs(sections.get("Findings", "")) or [""]
    settings = _rows(file, "settings", sections.get("Settings", "").strip(), SETTING_COLUMNS)
    return Paper(
        title.removeprefix("# "),
        citation.removeprefix("Paper: "),
        summary,
        tuple(claims.values()),
        _one_line(finding),
        tuple(_one_line(text.removeprefix("- ")) for text in surprises),
        {name: Caption(*_split_title(text)) for name, text in _named(file, _paragraphs(sections.get("Figures", "")))},
        tuple(PaperSetting(words, value, path.strip("`")) for words, value, path in settings),
    )


def _paragraphs(text: str) -> list[str]:
    return text.strip().split("\n\n") if text.strip() else []


def _one_line(text: str) -> str:
    return " ".join(text.split("\n"))


def _named(file: Path, paragraphs: Sequence[str]) -> list[tuple[str, str]]:
    """Paragraphs that begin with a name in bold."""
    named = []
    for paragraph in paragraphs:
        match = re.fullmatch(r"\*\*(.+?)\.\*\* (.+)", _one_line(paragraph))
        if not match:
            raise ValueError(f"{file}: a paragraph must begin with **a name.**, got {paragraph[:60]!r}")
        named.append((match[1], match[2]))
    return named


def _split_title(text: str) -> tuple[str, str]:
    title, _, rest = text.partition(". ")
    return title, rest


def _rows(file: Path, what: str, table: str, columns: Sequence[str]) -> list[list[str]]:
    if not table:
        return []
    header, _, *lines = map(_cells, table.splitlines())
    if tuple(header) != tuple(columns):
        raise ValueError(f"{file}: the table of {what} has columns {header}, not {columns}")
    if uneven := next((line for line in lines if len(line) != len(columns)), None):
        raise ValueError(f"{file}: a row of the table of {what} has {len(uneven)} cells, not {len(columns)}: {uneven}")
    return lines


def _cells(line: str) -> list[str]:
    r"""The cells of a row of a Markdown table.

    >>> _cells(r"| a | P(x \| y) |")
    ['a', 'P(x | y)']
    """
    return [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def _claim(file: Path, cells: Sequence[str], measures: Mapping[str, Any]) -> Claim:
    try:
        name, sentence, location, paper, effect, quantity, rule, formula, kind, family, figure = cells
        above, below = parse_rule(rule)
        paper_effect, null_effect = parse_effect(effect)
        if kind not in get_args(Kind):
            raise ValueError(f"the kind must be one of {get_args(Kind)}, got {kind!r}")
        formula = formula.strip("`")
        measure = eval(formula, {"__builtins__": {}}, dict(measures))  # of the study's own file
    except Exception as error:
        raise ValueError(f"{file}: the claim {cells[0]!r} cannot be read: {error}") from error
    return Claim(
        *(name, sentence, paper, quantity, measure, above, below, location, kind),  # type: ignore[arg-type]
        paper_effect=paper_effect,
        null_effect=null_effect,
        family=family,
        figure=figure,
        formula=formula,
    )


def parse_rule(words: str) -> tuple[float, float]:
    """The bounds in a rule: those above and below which the mean must lie.

    >>> parse_rule("above 0"), parse_rule("between -0.1 and 0.1")
    ((0.0, inf), (-0.1, 0.1))
    """
    match words.split():
        case ["above", bound]:
            return float(bound), math.inf
        case ["below", bound]:
            return -math.inf, float(bound)
        case ["between", low, "and", high]:
            return float(low), float(high)
    raise ValueError(f"a rule is 'above 1', 'below 1' or 'between 1 and 2', got {words!r}")


def parse_effect(words: str) -> tuple[float, float]:
    """The paper's effect, and the value where there is none.

    >>> parse_effect("0.03"), parse_effect("6.8 from 1"), parse_effect("")
    ((0.03, 0.0), (6.8, 1.0), (nan, 0.0))
    """
    effect, _, null = words.partition(" from ")
    return float(effect or "nan"), float(null or 0)
