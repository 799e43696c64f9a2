"""The page of a study, in Markdown, with its figures: all drawn from the file of results, nothing is run again.

Each figure has its caption and the claims that it is about beside it, those that fail first, with their remarks. What
the claims were when the run started, and what was revised since, is said at the top and listed at the end.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from posteriax._internal.plot_style import pyplot
from posteriax.metrics.score import Estimate as Score
from posteriax.metrics.score import format_estimate
from posteriax.studies.claims import Caption, Claim
from posteriax.studies.judging import FAILS, HOLDS, NOT_RUN, UNDECIDED, WORDS, Verdict
from posteriax.studies.registration import Revisions, revisions
from posteriax.studies.results import Json, Results, look_up, plain, read_results
from posteriax.studies.study import Study, verdicts
from posteriax.studies.tables import PageTable, markdown

DPI = 120
EARLIER_LIST = "revised-after-the-earlier-run"
WITHOUT_FIGURE = Caption("Without a figure", "")
HEADINGS = ("claim", "the paper", "paper's effect", "measured here", "holds if", "here", "verdict")


def write_page(study: Study, folder: Path) -> Results:
    """Write README.md and the figures beside a folder's ``results.json``; returns the results."""
    results = read_results(folder)
    draw_figures(study, results, folder)
    (folder / "README.md").write_text(page(study, results))
    return results


def page(study: Study, results: Results) -> str:
    """The text of the page; of an unfinished study, what is known, and the rest from the earlier run."""
    judged, revised = verdicts(study, results), revisions(study, results)
    parts = [f"# {study.title}", study.paper.finding, f"Paper: {study.paper.citation}"]
    parts += [count_verdicts(paper_verdicts(study, judged)), _provenance(results), revision_notice(revised)]
    if not results.complete:
        whole = len(results.cells) + len(results.waiting)
        parts.append(
            f"**Not complete**: {len(results.cells)} of {number_of(whole, 'cell')} have run, and the same command runs "
            "the others. A claim is judged once all cells that it needs have run, with all of their seeds."
        )
    if results.earlier:
        parts.append("Until then claims are judged, and figures drawn, by an earlier run, which the tables name.")
        parts += [_provenance(results.earlier), revision_notice(revisions(study, results.earlier), EARLIER_LIST)]
    parts += ["## What is done here", study.paper.summary, *_compared_settings(study, results)]
    parts += ["## Claims", *_claims_by_figure(study, judged, results)]
    parts += _result_tables(study, results, "Results")
    if results.earlier:
        parts += _result_tables(study, results.earlier, "Results of the earlier run")
    parts += _revised_claims(revised, "Revised after the run")
    if results.earlier:
        parts += _revised_claims(revisions(study, results.earlier), "Revised after the earlier run")
    return "\n\n".join(part for part in parts if part) + "\n"


def _result_tables(study: Study, run: Results, heading: str) -> list[str]:
    """The tables of a run that has finished cells; those without rows are left out."""
    tables = [table for table in study.tables(run) if table.rows] if run.cells else []
    return [f"## {heading}", *(f"{table.caption}\n\n{markdown(table)}" for table in tables)] if tables else []


def paper_verdicts(study: Study, judged: Mapping[str, Verdict]) -> list[Verdict]:
    """Those on claims of the paper, which are the ones that are counted."""
    return [judged[claim.name] for claim in study.claims if claim.kind == "paper"]


def count_verdicts(judged: Iterable[Verdict], source: str = "the paper") -> str:
    """How many claims of a source hold, in words.

    >>> count_verdicts([Verdict(HOLDS, 1.0, 0.1, 3, ""), Verdict(FAILS, 1.0, 0.1, 3, "")])
    '2 claims of the paper: 1 holds, 1 does not hold, 0 not decidable at this scale, 0 not run at this scale yet.'
    """
    words = [verdict.word for verdict in judged]
    hold, fail = words.count(HOLDS), words.count(FAILS)
    return (
        f"{number_of(len(words), 'claim')} of {source}: {hold} {'holds' if hold == 1 else 'hold'}, {fail} "
        f"{'does' if fail == 1 else 'do'} not hold, {words.count(UNDECIDED)} {UNDECIDED}, "
        f"{words.count(NOT_RUN)} {NOT_RUN}."
    )


def revision_notice(revised: Revisions, list_at: str = "revised-after-the-run") -> str:
    """One line that says whether the claims are those with which the run started, with a link to the list."""
    settings = " The settings of the scale have been changed since, for the next run." if revised.settings else ""
    if not revised.registered:
        return (
            "**Bounds were revised after this run**, which started before claims were registered: against its stored "
            f"verdicts, {revised.summary} ([list](#{list_at})).{settings}"
        )
    if revised:
        return f"**Revised after this run**: {revised.summary} ([list](#{list_at})).{settings}"
    return f"Claims, statistics and bounds are those that were registered when the run started.{settings}"


def claim_rows(claims: Sequence[Claim], judged: Mapping[str, Verdict]) -> list[list[str]]:
    """A row for each claim, those that fail first."""
    order = sorted(claims, key=lambda claim: (claim.kind != "paper", WORDS.index(judged[claim.name].word)))
    rows = []
    for claim in order:
        verdict = judged[claim.name]
        kind = "" if claim.kind == "paper" else f" ({claim.kind})"
        effect = "" if math.isnan(claim.paper_effect) else f"{claim.paper_effect:g}"
        run = ", earlier run" if verdict.earlier else ""
        here, word = result_in_words(verdict), f"**{verdict.word}**{run}{kind}"
        rows.append([claim.sentence, claim.reported, effect, claim.quantity, verdict.rule, here, word])
    return rows


def result_in_words(verdict: Verdict) -> str:
    """The mean with its standard error, by part if there are several.

    >>> from posteriax.studies.judging import Estimate
    >>> result_in_words(Verdict(HOLDS, 1.0, 0.1, 3, "", {"a": Estimate(1.0, 0.1, 3), "b": Estimate(2.0, 0.1, 3)}))
    'a 1.0 ± 0.1; b 2.0 ± 0.1 (n = 3)'
    """
    if not verdict.parts:
        return "-"
    shown = [
        f"{name} {format_estimate(Score(part.effect, part.error))}".strip() for name, part in verdict.parts.items()
    ]
    fewest = min(part.values for part in verdict.parts.values())
    return "; ".join(shown) + f" (n = {fewest})"


def _claims_by_figure(study: Study, judged: Mapping[str, Verdict], results: Results) -> list[str]:
    """Each figure with its caption and claims; a figure without an image only if it has claims."""
    images = study.drawable_figures(results)
    untitled = {name: Caption(name.replace("_", " ").capitalize(), "") for name in study.figures}
    parts = []
    for name, caption in [*(untitled | dict(study.paper.captions)).items(), ("", WITHOUT_FIGURE)]:
        claims = [claim for claim in study.claims if claim.figure == name]
        if claims or name in images:
            parts.append(f"### {caption.title}")
            if name in images:
                before = " Drawn from the earlier run." if images[name] is results.earlier else ""
                parts += [f"![{caption.title}]({name}.png)", caption.text + before]
        if claims:
            parts.append(markdown(PageTable("", HEADINGS, claim_rows(claims, judged))))
            parts += _remarks(claims, judged)
    return parts


def _remarks(claims: Sequence[Claim], judged: Mapping[str, Verdict]) -> list[str]:
    """What was written about single claims, and why numbers decide nothing."""
    said = []
    for claim in sorted(claims, key=lambda claim: WORDS.index(judged[claim.name].word)):
        objection = judged[claim.name].objection
        words = [f"Decides nothing: {objection}."] if objection else []
        words += [claim.remark] if claim.remark else []
        if words:
            said.append(f"*{claim.sentence.rstrip('.')}:* {' '.join(words)}")
    return said


def _compared_settings(study: Study, results: Results) -> list[str]:
    """The paper's settings beside those of the paper scale and of this run, generated; what differs is bold."""
    if not study.paper.settings:
        return []
    paper = plain(asdict(study.scales["paper"]))
    rows = []
    runs = {f"here, {results.scale}, this run": results.settings}
    if results.earlier:
        runs["earlier run"] = results.earlier.settings
    for setting in study.paper.settings:
        row = [setting.words, _verbatim(setting.paper)]
        for settings in (paper, *runs.values()):
            value = _setting(settings, setting.path)
            same = value == setting.paper or setting.paper == "-"
            row.append(_verbatim(value) if same else f"**{_verbatim(value)}**")
        rows.append(row)
    headings = ("setting", "the paper", "here, paper scale", *runs)
    said = "Settings that the paper names. Those that differ from it are bold; `results.json` has all of them."
    return [said, markdown(PageTable("", headings, rows))]


def _verbatim(value: str) -> str:
    """A value whose stars Markdown would read as bold is code."""
    return f"`{value}`" if "*" in value else value


def _setting(settings: Mapping[str, Json], path: str) -> str:
    """A setting in words; a path of several, joined by commas, has them side by side.

    >>> _setting({"mlp": {"steps": 14700, "rate": 0.001}}, "mlp.steps"), _setting({"depths": [8, 14]}, "depths")
    ('14,700', '8, 14')
    """
    try:
        return " / ".join(write_setting(look_up(settings, one.strip())) for one in path.split(","))
    except (KeyError, IndexError, TypeError):
        return "none"


def write_setting(value: Json) -> str:
    """A number, word or list as the table of settings has it.

    >>> write_setting(0.0003), write_setting(True), write_setting(50000), write_setting([])
    ('0.0003', 'yes', '50,000', 'none')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(write_setting, value)) or "none"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer() and abs(value) >= 1):
        return f"{value:,.0f}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _revised_claims(revised: Revisions, heading: str) -> list[str]:
    if not revised:
        return []
    words = [f"- {name}: {what}" for name, what in revised.changed.items()]
    words += [f"- {name}: added" for name in revised.added]
    words += [f"- {name}: withdrawn" for name in revised.withdrawn]
    return [f"## {heading}", "\n".join(words)]


def _provenance(results: Results) -> str:
    made, seconds = results.made_by, sum(cell["seconds"] for cell in results.times.values())
    lines = [
        f"Scale: {results.scale}, {number_of(results.seeds, 'seed')}. {number_of(len(results.cells), 'cell')}, "
        f"{seconds / 60:.0f} minutes in all. {made['machine']}; posteriax {made['posteriax']}, "
        f"commit {made['commit']}, JAX {made['jax']}."
    ]
    if made["command"]:
        lines.append(f"```sh\n{made['command']}\n```")
    return "\n\n".join(lines)


def number_of(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def draw_figures(study: Study, results: Results, folder: Path) -> None:
    """Every figure of the study, as a PNG file of its name."""
    plt = pyplot()
    backend = plt.get_backend()
    plt.switch_backend("Agg")  # no screen is needed
    try:
        for name, run in study.drawable_figures(results).items():
            figure = study.figures[name](run)
            figure.savefig(folder / f"{name}.png", dpi=DPI)
            plt.close(figure)
    finally:
        plt.switch_backend(backend)
