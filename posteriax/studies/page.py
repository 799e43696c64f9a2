"""The page of a study, in Markdown, with its figures: all drawn from the file of results, nothing is run again."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from posteriax._internal.plot_style import pyplot
from posteriax.metrics.score import Estimate, format_estimate
from posteriax.studies.claims import CONFIDENCE, FAILS, HOLDS, UNDECIDED, Verdict
from posteriax.studies.results import Json, Results, read_results
from posteriax.studies.study import Study, verdicts
from posteriax.studies.tables import PageTable, markdown

DPI = 120
FRONT_TITLE = "What the papers claim, and what holds here"


def write_page(study: Study, folder: Path) -> Results:
    """Write README.md and the figures beside a folder's ``results.json``; returns the results."""
    results = read_results(folder)
    if results.complete:
        _draw(study, results, folder)
    (folder / "README.md").write_text(page(study, results))
    return results


def page(study: Study, results: Results) -> str:
    """The text of the page; without tables and figures while the study is not finished."""
    judged = verdicts(study, results)
    parts = [f"# {study.title}", study.paper.summary, f"Paper: {study.paper.citation}", _provenance(results)]
    if not results.complete:
        parts.append("**Not complete**: some cells have not run yet. The same command runs them.")
    parts += ["## Claims", count_verdicts(judged.values()), markdown(_claims_table(study, judged))]
    parts += [f"**{claim.name}.** {claim.remark}" for claim in study.claims if claim.remark]
    if results.complete:
        parts += ["## Results", *(f"{table.caption}\n\n{markdown(table)}" for table in study.tables(results))]
        parts += [f"![{name.replace('_', ' ')}]({name}.png)" for name in study.figures]
    parts += ["## Settings", _settings(results.settings)]
    return "\n\n".join(parts) + "\n"


def front_page(pages: Mapping[str, tuple[Study, Results]]) -> str:
    """One page over several studies: how many claims there are, how many hold, and by what margin.

    Args:
        pages: study and results by the folder that holds its page, relative to the front page.
    """
    judged = {folder: verdicts(study, results) for folder, (study, results) in pages.items()}
    every = [verdict for by_claim in judged.values() for verdict in by_claim.values()]
    parts = [f"# {FRONT_TITLE}", f"{_number(len(pages), 'paper')}. {count_verdicts(every)}", _MEANING]
    for folder, (study, results) in pages.items():
        parts += [
            f"## [{study.title}]({folder}/README.md)",
            f"{study.paper.citation} {count_verdicts(judged[folder].values())}",
        ]
        parts.append(f"Scale: {results.scale}, {_number(results.seeds, 'seed')}.")
        parts.append(markdown(_claims_table(study, judged[folder])))
    return "\n\n".join(parts) + "\n"


def count_verdicts(judged: Iterable[Verdict]) -> str:
    """How many claims hold, in words.

    >>> count_verdicts([Verdict(HOLDS, 1.0, 0.1, 3, ""), Verdict(FAILS, 1.0, 0.1, 3, "")])
    '2 claims: 1 holds, 1 does not hold, 0 not decidable at this scale.'
    """
    words = [verdict.word for verdict in judged]
    hold, fail = words.count(HOLDS), words.count(FAILS)
    return (
        f"{_number(len(words), 'claim')}: {hold} {'holds' if hold == 1 else 'hold'}, {fail} "
        f"{'does' if fail == 1 else 'do'} not hold, {words.count(UNDECIDED)} not decidable at this scale."
    )


_MEANING = (
    f"A claim is a number with bounds that were fixed before the run. It holds if the {CONFIDENCE:.0%} interval of its "
    "mean over seeds (Student's t, one-sided at each end) lies within the bounds, does not hold if it lies outside, "
    "and cannot be decided otherwise. ± is the standard error over seeds."
)


def _claims_table(study: Study, judged: Mapping[str, Verdict]) -> PageTable:
    rows = []
    for claim in study.claims:
        verdict = judged[claim.name]
        here = (
            "-"
            if verdict.values == 0
            else f"{format_estimate(Estimate(verdict.effect, verdict.error))} (n = {verdict.values})"
        )
        rows.append((claim.sentence, claim.reported, claim.quantity, verdict.rule, here, f"**{verdict.word}**"))
    return PageTable("", ("claim", "the paper", "measured here", "holds if", "result", "verdict"), rows)


def _provenance(results: Results) -> str:
    made, seconds = results.made_by, sum(cell["seconds"] for cell in results.times.values())
    lines = [
        f"Scale: {results.scale}, {_number(results.seeds, 'seed')}. {_number(len(results.cells), 'cell')}, "
        f"{seconds / 60:.0f} minutes in all. {made['machine']}; posteriax {made['posteriax']}, "
        f"commit {made['commit']}, JAX {made['jax']}."
    ]
    if made["command"]:
        lines.append(f"```sh\n{made['command']}\n```")
    return "\n\n".join(lines)


def _settings(settings: Mapping[str, Json]) -> str:
    return markdown(PageTable("", ("setting", "value"), [(name, str(value)) for name, value in settings.items()]))


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _draw(study: Study, results: Results, folder: Path) -> None:
    plt = pyplot()
    backend = plt.get_backend()
    plt.switch_backend("Agg")  # no screen is needed
    try:
        for name, draw in study.figures.items():
            figure = draw(results)
            figure.savefig(folder / f"{name}.png", dpi=DPI)
            plt.close(figure)
    finally:
        plt.switch_backend(backend)
