"""What a study is: a paper with its claims, the settings at each scale, the cells to run, and how results are shown.

The claims and their bounds are written down before anything is run (:mod:`posteriax.studies.claims`). Settings and
results are plain data, and tables and figures are drawn from the results alone.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from posteriax.studies.claims import Claim, Paper, read_paper
from posteriax.studies.figures import Figure
from posteriax.studies.judging import (
    NOT_RUN,
    UNDECIDED,
    Evidence,
    Verdict,
    combined_evidence,
    describe_rule,
    estimate,
    evidence,
    holm,
    word_for,
)
from posteriax.studies.results import CellsWaiting, Json, Results, Setting, whole_selections
from posteriax.studies.scales import StudyScales
from posteriax.studies.tables import PageTable
from posteriax.studies.workbench import Workbench

SCALES = ("smoke", "laptop", "paper")

Settings = Any  # a frozen dataclass of the study's own


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

    settings: Mapping[str, Setting]
    seed: int
    cost: float = 1.0

    @property
    def name(self) -> str:
        return ", ".join([*map(str, self.settings.values()), f"seed {self.seed}"])

    def __getitem__(self, setting: str) -> Any:
        return self.settings[setting]


@dataclass(frozen=True, kw_only=True)
class Study:
    """A paper's experiments, by one command.

    Args:
        name: what the command line calls it.
        paper: its title, citation, summary and claims, fixed before the run.
        scales: a frozen dataclass of settings for each of "smoke", "laptop" and "paper"; it has `seeds`, how many by
            default, and `data`, the data sets that must be there before anything starts.
        one_step: the same settings cut to the shortest possible run, to try a scale without waiting for it.
        cells: all cells at these settings, for so many seeds, in the order in which they run.
        run: runs a cell and returns its result, nested dicts and lists of numbers and text.
        tables: the tables of the page.
        figures: Matplotlib figures by file name (without ending).
        needs: whether the results have what a figure shows; a figure without an entry is always drawn.
    """

    name: str
    paper: Paper
    scales: Mapping[str, Settings]
    one_step: Callable[[Settings], Settings]
    cells: Callable[[Settings, int], list[Cell]]
    run: Callable[[Cell, Settings, Workbench], Mapping[str, Json]]
    tables: Callable[[Results], list[PageTable]]
    figures: Mapping[str, Callable[[Results], Figure]] = field(default_factory=dict)
    needs: Mapping[str, Callable[[Results], bool]] = field(default_factory=dict)

    def drawable_figures(self, results: Results) -> dict[str, Results]:
        """The figures for which there is what they show, with the results of which each is drawn.

        These are the results of the earlier run where a claim that the figure is about waits for cells.
        """
        drawable = {}
        for name in self.figures:
            for run in filter(None, (results, results.earlier)):
                if self._is_drawable(name, run):
                    drawable[name] = run
                    break
        return drawable

    def _is_drawable(self, name: str, run: Results) -> bool:
        if name in self.needs and not self.needs[name](run):
            return False
        beside = [claim for claim in self.claims if claim.figure == name]
        return run.complete or (bool(beside) and not any(claim.waits(run) for claim in beside))

    @property
    def title(self) -> str:
        return self.paper.title

    @property
    def claims(self) -> tuple[Claim, ...]:
        return self.paper.claims

    def claim(self, name: str) -> Claim:
        """The claim of this name."""
        return next(claim for claim in self.claims if claim.name == name)


def make_study(
    name: str,
    file: str,
    scales: StudyScales[Any],
    cells: Callable[[Settings, int], list[Cell]],
    run: Callable[[Cell, Settings, Workbench], Mapping[str, Json]],
    report: ModuleType,
) -> Study:
    """The study of a folder.

    Args:
        name: what the command line calls it.
        file: the ``__init__.py`` of the folder, which has a ``paper.md`` beside it.
        scales: the settings, as :func:`posteriax.studies.scales.read_scales` reads them.
        cells, run: as for :class:`Study`.
        report: the module with the measures that the claims use, `tables`, `FIGURES` and perhaps `NEEDS`.
    """
    return Study(
        name=name,
        paper=read_paper(Path(file).with_name("paper.md"), vars(report)),
        scales=scales,
        one_step=scales.one_step,
        cells=cells,
        run=run,
        tables=report.tables,
        figures=report.FIGURES,
        needs=getattr(report, "NEEDS", {}),
    )


def verdicts(study: Study, results: Results) -> dict[str, Verdict]:
    """The verdict on every claim, by its name.

    Claims that wait for cells have that of the earlier run, if there is one.
    """
    judged = run_verdicts(study, results)
    if results.earlier:
        for name, before in run_verdicts(study, results.earlier).items():
            if judged[name].word == NOT_RUN != before.word:
                judged[name] = replace(before, earlier=True)
    return judged


def run_verdicts(study: Study, results: Results) -> dict[str, Verdict]:
    """The same by one run alone.

    A claim is judged once all cells that its measure asks for have run, with all of their seeds: until then it has no
    numbers, so that nobody stops where they look right.
    """
    decides = results.scale in ("laptop", "paper")
    objections, estimates, waiting = {}, {}, []
    for claim in study.claims:
        try:
            objections[claim.name] = claim.objection(whole_selections(results))
            values = claim.values(whole_selections(results))
        except CellsWaiting:
            waiting.append(claim.name)
            objections[claim.name], values = "", {}
        estimates[claim.name] = {part: estimate(v) for part, v in values.items() if len(v)}
    found = {
        claim.name: combined_evidence(evidence(e, claim.above, claim.below) for e in estimates[claim.name].values())
        for claim in study.claims
    }
    # a claim that waits is counted in its family, as one that is neither shown nor refuted
    taking_part = [name for name in found if name in waiting or (estimates[name] and not objections[name])]
    adjusted = _adjust_families(study, found, taking_part)
    judged = {}
    for claim in study.claims:
        parts = estimates[claim.name]
        weakest = max(parts.values(), key=lambda e: evidence(e, claim.above, claim.below).p_holds, default=estimate([]))
        if not parts:
            word = NOT_RUN
        elif not decides or objections[claim.name] or not all(part.can_decide for part in parts.values()):
            word = UNDECIDED
        else:
            word = word_for(adjusted[claim.name])
        rule = describe_rule(claim.above, claim.below)
        judged[claim.name] = Verdict(
            word, weakest.effect, weakest.error, weakest.values, rule, parts, objections[claim.name]
        )
    return judged


def _adjust_families(study: Study, found: Mapping[str, Evidence], taking_part: Collection[str]) -> dict[str, Evidence]:
    """The evidence after Holm's correction within each family; claims without data or with objections have no part."""
    families: dict[str, list[str]] = {}
    for claim in study.claims:
        if claim.name in taking_part:
            families.setdefault(claim.family or claim.name, []).append(claim.name)
    adjusted = dict(found)
    for names in families.values():
        both = zip(names, holm([found[n].p_holds for n in names]), holm([found[n].p_fails for n in names]), strict=True)
        adjusted |= {name: Evidence(p_holds, p_fails) for name, p_holds, p_fails in both}
    return adjusted
