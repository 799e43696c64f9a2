"""The claims of a paper: rows of a table in Markdown, and the rule that turns their numbers into verdicts.

A study's folder has a file ``paper.md``: title, citation, a summary of what is done here, the claims, and remarks on
those that do not hold. A row has the claim's name, its sentence, where the paper makes it (if that is known), what the
paper reports, what is measured here, when the claim holds, the measure, and its kind:

    | rank of scales | Two values hold nearly all ... | figure 3 | 97 % | ... | above 0.9 | `share("MLP", 2)` | paper |

The measure is a Python expression over the study's measures, :class:`posteriax.studies.results.Measure`: numbers, one
per seed. The verdict is the same rule for every claim:

    interval = mean ± t s / sqrt(n)     s: standard deviation; t: Student's 95 % quantile, n - 1 degrees of freedom

The claim holds if the interval lies within the claim's bounds, does not hold if it lies outside, and cannot be decided
otherwise, nor from fewer than two values, nor at a scale that is only for trying out.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from scipy.stats import t as student

from posteriax.studies.results import Measure, Results, entry, least, mean, most

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "not decidable at this scale"
CONFIDENCE = 0.95  # that the mean is above the lower end, and that it is below the upper end
COLUMNS = ("name", "claim", "location", "the paper", "measured here", "holds if", "measure", "kind")

Kind = Literal["paper", "sanity", "ours"]


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
        location: where the paper makes the claim, such as "figure 3".
        kind: "paper" is a finding of the paper; "sanity" must hold for the others to mean anything; "ours" is not in
            the paper.
        remark: written after the run, if the claim does not hold or cannot be decided: why.
    """

    name: str
    sentence: str
    paper: str
    quantity: str
    measure: Measure | Callable[[Results], Sequence[float] | np.ndarray]
    above: float = -math.inf
    below: float = math.inf
    location: str = ""
    kind: Kind = "paper"
    remark: str = ""

    @property
    def reported(self) -> str:
        """What the paper reports, and where."""
        return f"{self.location}: {self.paper}" if self.location else self.paper


@dataclass(frozen=True)
class Paper:
    """What a study says in words: its title, the paper's citation, what is done here and what differs, the claims."""

    title: str
    citation: str
    summary: str
    claims: tuple[Claim, ...]


def read_paper(file: Path, measures: Mapping[str, Any]) -> Paper:
    """Read a study's ``paper.md``.

    Args:
        file: its path.
        measures: what the expressions of the claims may use, by name, beside `entry`, `least`, `most` and `mean`.

    Raises:
        ValueError: if a row or a remark cannot be understood, with its name.
    """
    words, _, table = file.read_text(encoding="utf-8").partition("\n## Claims\n")
    title, _, words = words.partition("\n")
    citation, _, summary = words.strip().partition("\n\n")
    rows, *remarks = table.strip().split("\n\n")
    header, _, *lines = map(_cells, rows.splitlines())
    if tuple(header) != COLUMNS:
        raise ValueError(f"{file}: the table of claims has columns {header}, not {COLUMNS}")
    names = {"entry": entry, "least": least, "most": most, "mean": mean, **measures}
    claims = {line[0]: _claim(file, line, names) for line in lines}
    for paragraph in remarks:
        match = re.fullmatch(r"\*\*(.+?)\.\*\* (.+)", " ".join(paragraph.split("\n")))
        if not match or match[1] not in claims:
            raise ValueError(f"{file}: no claim has the name of this remark: {paragraph[:60]!r}")
        claims[match[1]] = replace(claims[match[1]], remark=match[2])
    return Paper(title.removeprefix("# "), citation.removeprefix("Paper: "), summary, tuple(claims.values()))


def _cells(line: str) -> list[str]:
    r"""The cells of a row of a Markdown table.

    >>> _cells(r"| a | P(x \| y) |")
    ['a', 'P(x | y)']
    """
    return [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def _claim(file: Path, cells: Sequence[str], measures: Mapping[str, Any]) -> Claim:
    try:
        name, sentence, location, paper, quantity, rule, formula, kind = cells
        above, below = parse_rule(rule)
        if kind not in get_args(Kind):
            raise ValueError(f"the kind must be one of {get_args(Kind)}, got {kind!r}")
        measure = eval(formula.strip("`"), {"__builtins__": {}}, dict(measures))  # of the study's own file
    except Exception as error:
        raise ValueError(f"{file}: the claim {cells[0]!r} cannot be read: {error}") from error
    return Claim(name, sentence, paper, quantity, measure, above, below, location, kind)  # type: ignore[arg-type]


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


def describe_rule(above: float, below: float) -> str:
    """The bounds in words.

    >>> describe_rule(0.0, math.inf), describe_rule(-0.1, 0.1)
    ('above 0', 'between -0.1 and 0.1')
    """
    if math.isinf(below):
        return f"above {above:g}"
    if math.isinf(above):
        return f"below {below:g}"
    return f"between {above:g} and {below:g}"


@dataclass(frozen=True)
class Verdict:
    """What the results say about a claim.

    Args:
        word: "holds", "does not hold" or "not decidable at this scale".
        effect: mean of the quantity; NaN if there is none.
        error: its standard error over the values; NaN for fewer than two.
        values: how many.
        rule: the rule that was applied, in words.
    """

    word: str
    effect: float
    error: float
    values: int
    rule: str


def judge(values: Sequence[float] | np.ndarray, above: float, below: float, decides: bool = True) -> Verdict:
    """The verdict on a quantity that should lie between `above` and `below`.

    >>> judge([0.30, 0.34, 0.32], above=0.1, below=math.inf).word
    'holds'
    >>> judge([0.30, 0.34, -0.32], above=0.1, below=math.inf).word
    'not decidable at this scale'
    """
    numbers = np.asarray(values, np.float64)
    count = len(numbers)
    effect = float(numbers.mean()) if count else math.nan
    error = float(numbers.std(ddof=1) / math.sqrt(count)) if count > 1 else math.nan
    rule = describe_rule(above, below)
    if not decides or not np.isfinite([effect, error]).all():
        return Verdict(UNDECIDED, effect, error, count, rule)
    reach = float(student.ppf(CONFIDENCE, count - 1)) * error
    low, high = effect - reach, effect + reach
    if above < low and high < below:
        word = HOLDS
    elif high <= above or low >= below:
        word = FAILS
    else:
        word = UNDECIDED
    return Verdict(word, effect, error, count, rule)
