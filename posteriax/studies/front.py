"""The front page over several studies: one sentence for each paper, a scoreboard, one figure, and what was surprising.

The figure has every claim for which the paper reports an effect: ours divided by the paper's, so that 1 is the paper's
effect and 0 is none. All claims are in a page of their own behind it.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from posteriax._internal.plot_style import PALETTE, pyplot, subplots
from posteriax.studies.claims import Claim
from posteriax.studies.figures import Axis, Figure
from posteriax.studies.judging import CONFIDENCE, FAILS, HOLDS, NOT_RUN, UNDECIDED, Estimate, Verdict
from posteriax.studies.page import DPI, HEADINGS, claim_rows, count_verdicts, paper_verdicts
from posteriax.studies.registration import revisions
from posteriax.studies.results import Results
from posteriax.studies.study import Study, verdicts
from posteriax.studies.tables import PageTable, markdown

TITLE = "What the papers claim, and what holds here"
FOREST = "forest.png"
CLAIMS = "claims.md"
COLOURS = {FAILS: PALETTE[3], UNDECIDED: "0.6", HOLDS: PALETTE[0]}
MARKERS = {FAILS: "X", UNDECIDED: "o", HOLDS: "s"}
FROM, TO = -1.5, 3.0  # ratios shown; those beyond are drawn at the edge, with their number

Pages = Mapping[str, tuple[Study, Results]]  # by the folder of the page, relative to the front page


def write_front(pages: Pages, folder: Path) -> None:
    """Write README.md, claims.md and the figure over all studies."""
    (folder / "README.md").write_text(front_page(pages))
    (folder / CLAIMS).write_text(claims_page(pages))
    plt = pyplot()
    backend = plt.get_backend()
    plt.switch_backend("Agg")
    try:
        figure = forest(pages)
        figure.savefig(folder / FOREST, dpi=DPI)
        plt.close(figure)
    finally:
        plt.switch_backend(backend)


def front_page(pages: Pages) -> str:
    """The text of the front page."""
    judged = {folder: verdicts(study, results) for folder, (study, results) in pages.items()}
    found = [f"- [{study.name}]({folder}/README.md): {study.paper.finding}" for folder, (study, _) in pages.items()]
    surprises = [
        f"- {text} ([{study.name}]({folder}/README.md))"
        for folder, (study, _) in pages.items()
        for text in study.paper.surprises
    ]
    parts = [f"# {TITLE}", count_verdicts(_all_paper_verdicts(pages, judged), "the papers"), "\n".join(found)]
    parts += [
        markdown(_scoreboard(pages, judged)),
        _meaning(pages),
        f"![Effects here over those of the papers]({FOREST})",
        _CAPTION,
    ]
    if surprises:
        parts += ["## What surprised us", "\n".join(surprises)]
    return "\n\n".join(parts) + "\n"


def claims_page(pages: Pages) -> str:
    """All claims of all studies, those that fail first."""
    parts = ["# All claims", f"Those that do not hold come first, by paper. The [front page](README.md) counts {_OF}."]
    for folder, (study, results) in pages.items():
        parts.append(f"## [{study.title}]({folder}/README.md)")
        parts.append(markdown(PageTable("", HEADINGS, claim_rows(study.claims, verdicts(study, results)))))
    return "\n\n".join(parts) + "\n"


_OF = "only findings of the papers: not sanity checks, which hold by construction, nor our own claims"
_CAPTION = (
    "Effects here divided by those of the papers (1: the same; 0: none), with the interval by which a claim is judged "
    "before Holm's correction; claims that do not hold come first. Squares hold, crosses do not, grey circles are "
    "undecided; an arrow stands for a value beyond the axis. Claims of no difference, and those for which the paper "
    "has no number, are in the table of [all claims](claims.md)."
)


def _all_paper_verdicts(pages: Pages, judged: Mapping[str, Mapping[str, Verdict]]) -> list[Verdict]:
    return [verdict for folder, (study, _) in pages.items() for verdict in paper_verdicts(study, judged[folder])]


def _scoreboard(pages: Pages, judged: Mapping[str, Mapping[str, Verdict]]) -> PageTable:
    headings = ("paper", "its claims", "hold", "do not", "undecided", "not run yet", "sanity checks", "our own claims")
    rows, totals = [], [0] * 5
    for folder, (study, _) in pages.items():
        words = [verdict.word for verdict in paper_verdicts(study, judged[folder])]
        counts = [len(words), *(words.count(word) for word in (HOLDS, FAILS, UNDECIDED, NOT_RUN))]
        totals = [a + b for a, b in zip(totals, counts, strict=True)]
        others = [_held(study, judged[folder], kind) for kind in ("sanity", "ours")]
        rows.append([f"[{study.name}]({folder}/README.md), {_authors(study)}", *map(str, counts), *others])
    rows.append(["**all**", *(f"**{total}**" for total in totals), "", ""])
    return PageTable("", headings, rows)


def _authors(study: Study) -> str:
    """The first author and the year of its citation."""
    year = re.search(r"\b(19|20)\d\d\b", study.paper.citation)
    surname = re.search(r"\b[A-Z][a-z]{3,}", study.paper.citation)
    return " ".join(match[0] for match in (surname, year) if match)


def _held(study: Study, judged: Mapping[str, Verdict], kind: str) -> str:
    words = [judged[claim.name].word for claim in study.claims if claim.kind == kind]
    return f"{words.count(HOLDS)} of {len(words)} hold" if words else "-"


def _meaning(pages: Pages) -> str:
    parts = [
        f"Counted are {_OF}. A claim holds if the {CONFIDENCE:.0%} interval of its mean over seeds lies within its "
        "bounds, on every network where there are several, and after Holm's correction where a comparison is repeated "
        f"([the rule](../studies.md#verdicts), [all claims]({CLAIMS})). Claims and settings are registered when a run "
        "starts; each page says what was revised afterwards."
    ]
    judged = [verdicts(study, results) for study, results in pages.values()]
    if earlier := sum(verdict.earlier for each in judged for verdict in each.values()):
        parts.append(f"{earlier} verdicts are of earlier runs, as cells of the present ones have yet to run.")
    unregistered = [
        folder
        for folder, (study, results) in pages.items()
        if not all(revisions(study, run).registered for run in (results, results.earlier) if run)
    ]
    if unregistered:
        names = ", ".join(unregistered)
        parts.append(f"Runs from before claims were registered, after which bounds were revised: {names}.")
    return " ".join(parts)


@dataclass(frozen=True)
class ForestRow:
    """A claim's parts as ratios to the paper's effect."""

    label: str
    word: str
    estimates: tuple[Estimate, ...]
    claim: Claim

    def ratio(self, value: float) -> float:
        return (value - self.claim.null_effect) / (self.claim.paper_effect - self.claim.null_effect)


def forest_rows(study: Study, results: Results) -> list[ForestRow]:
    """The claims with an effect of the paper's to divide by, those that fail first; not claims of no difference."""
    judged, order = verdicts(study, results), list(COLOURS)
    rows = []
    for claim in study.claims:
        verdict, no_difference = judged[claim.name], claim.above < claim.null_effect < claim.below
        reported = math.isfinite(claim.paper_effect) and claim.paper_effect != claim.null_effect
        if claim.kind == "paper" and reported and not no_difference and verdict.word in order and verdict.parts:
            rows.append(ForestRow(claim.name, verdict.word, tuple(verdict.parts.values()), claim))
    return sorted(rows, key=lambda row: order.index(row.word))


def forest(pages: Pages) -> Figure:
    """Effects here over those of the papers, one panel for each study."""
    by_study = [(study, rows) for study, results in pages.values() if (rows := forest_rows(study, results))]
    tallest = max((len(rows) for _, rows in by_study), default=1)
    figure, grid = subplots(1, max(1, len(by_study)), 4.4, 0.7 + 0.2 * tallest)
    for axis, (study, rows) in zip(grid[0], by_study, strict=False):
        for height, row in enumerate(rows):
            for number, part in enumerate(row.estimates):
                _draw_estimate(axis, row, part, height + 0.16 * (number - (len(row.estimates) - 1) / 2))
        axis.axvline(0.0, color="0.75", linewidth=1, zorder=0)
        axis.axvline(1.0, color="0.4", linewidth=1, linestyle=":", zorder=0)
        axis.set(xlim=(FROM - 0.2, TO + 0.2), ylim=(tallest - 0.4, -0.8), xlabel="our effect / the paper's")
        axis.set_yticks(range(len(rows)), [row.label for row in rows], fontsize="x-small")
        axis.tick_params(axis="y", length=0)
        axis.spines["left"].set_visible(False)
        axis.set_title(study.name, fontsize="medium", loc="left")
    return figure


def _draw_estimate(axis: Axis, row: ForestRow, part: Estimate, height: float) -> None:
    """One ratio with its interval; beyond the axis an arrow at its edge."""
    colour, x = COLOURS[row.word], row.ratio(part.effect)
    ends = sorted(min(max(row.ratio(end), FROM), TO) for end in part.interval)
    axis.plot(ends, [height, height], color=colour, linewidth=1)
    if FROM <= x <= TO:
        axis.plot([x], [height], MARKERS[row.word], color=colour, markersize=5)
        return
    edge, arrow, offset, side = (TO, ">", -0.12, "right") if x > TO else (FROM, "<", 0.12, "left")
    axis.plot([edge], [height], arrow, color=colour, markersize=4)
    if len(row.estimates) == 1:
        axis.text(edge + offset, height - 0.28, f"{x:.0f}", ha=side, va="center", fontsize=6, color=colour)
