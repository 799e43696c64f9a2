"""``posteriax study``: what the papers claim, run again, with a verdict on each claim."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from posteriax.cli.environment import console

if TYPE_CHECKING:
    from posteriax.studies import Results, Study


def commands() -> typer.Typer:
    """The commands over studies."""
    study = typer.Typer(help="The papers' experiments, with a verdict on each claim.", no_args_is_help=True)
    study.command("list")(list_studies)
    study.command("run")(run)
    study.command("report")(report)
    return study


def list_studies() -> None:
    """All studies, with the number of claims and the data that they need."""
    from rich.table import Table

    from posteriax.studies import STUDIES

    table = Table("study", "what", "claims", "data at laptop scale")
    for study in STUDIES.values():
        table.add_row(study.name, study.title, str(len(study.claims)), ", ".join(study.scales["laptop"].data))
    console().print(table)


def run(
    name: str = typer.Argument(help="A study; `posteriax study list` has the names."),
    scale: str = typer.Option("laptop", help="smoke (a minute, no data), laptop (two hours, real data), paper."),
    seeds: int | None = typer.Option(None, min=1, help="Repetitions; by default those of the scale."),
    out: Path | None = typer.Option(None, help="The folder for the results; by default studies/NAME-SCALE."),
    trial: bool = typer.Option(False, "--trial", help="One step of everything, on made-up data: does it build?"),
    only: list[str] | None = typer.Option(
        None, help="Only cells with this SETTING=PATTERN, such as 'method=rank-1 *'; several of one setting add up."
    ),
) -> None:
    """Run a study, or resume one that was stopped; finished cells are not run again."""
    with one_line_study_errors():
        from posteriax.studies import find_study
        from posteriax.studies.page import write_page
        from posteriax.studies.running import run_study

        study = find_study(name)
        folder = out or Path("studies") / f"{name}-{scale}"
        try:
            results = run_study(
                study,
                folder,
                scale=scale,
                seeds=seeds,
                trial=trial,
                only=_patterns(only or []),
                command=_command(name, scale, seeds),
                report=_say,
            )
        except KeyboardInterrupt:
            print(f"stopped; the same command continues from {folder}", file=sys.stderr)
            raise SystemExit(130) from None
        write_page(study, folder)
        _print_verdicts(study, results)
        console().print(f"Page and figures: {folder}/README.md", highlight=False)


def report(folder: Path = typer.Argument(help="A folder that `study run` wrote, or one that holds several.")) -> None:
    """Draw pages and figures again from the stored results; for several studies, a front page over all of them."""
    with one_line_study_errors():
        from posteriax.studies import find_study
        from posteriax.studies.front import write_front
        from posteriax.studies.page import write_page
        from posteriax.studies.results import read_results

        several = sorted(path.parent for path in folder.glob("*/results.json"))
        if (folder / "results.json").exists() or not several:
            study = find_study(read_results(folder).study)
            _print_verdicts(study, write_page(study, folder))
            return
        pages = {}
        for study_folder in several:
            study = find_study(read_results(study_folder).study)
            pages[study_folder.name] = study, write_page(study, study_folder)
            _print_verdicts(*pages[study_folder.name])
        write_front(pages, folder)
        console().print(f"Front page: {folder}/README.md", highlight=False)


@contextlib.contextmanager
def one_line_study_errors() -> Iterator[None]:
    """Say what is missing or wrong, a line each on standard error, with exit code 2."""
    from posteriax.run.checkpoint import CheckpointError
    from posteriax.studies.results import ResultsError
    from posteriax.studies.running import MissingData

    try:
        yield
    except MissingData as missing:
        messages = missing.messages
    except (ResultsError, CheckpointError, ValueError, OSError, ImportError) as error:
        messages = [str(error)]
    else:
        return
    for message in messages:
        print("error: " + " ".join(message.split()), file=sys.stderr)
    raise SystemExit(2)


def _command(name: str, scale: str, seeds: int | None) -> str:
    return f"posteriax study run {name} --scale {scale}" + (f" --seeds {seeds}" if seeds is not None else "")


def _patterns(only: list[str]) -> dict[str, list[str]]:
    """Patterns by the name of the setting, from "name=pattern"."""
    patterns: dict[str, list[str]] = {}
    for pair in only:
        name, equals, pattern = pair.partition("=")
        if not equals:
            raise ValueError(f"--only is SETTING=PATTERN, such as 'method=map', got {pair!r}")
        patterns.setdefault(name, []).append(pattern)
    return patterns


def _say(line: str) -> None:
    if sys.stderr.isatty():
        print(line, file=sys.stderr, flush=True)


def _print_verdicts(study: "Study", results: "Results") -> None:
    from rich.table import Table

    from posteriax.studies.page import count_verdicts, paper_verdicts, result_in_words
    from posteriax.studies.registration import revisions
    from posteriax.studies.study import verdicts

    judged, revised = verdicts(study, results), revisions(study, results)
    table = Table(
        "claim", "kind", "measured", "holds if", "result", "verdict", title=f"{study.title} ({results.scale})"
    )
    for claim in study.claims:
        verdict = judged[claim.name]
        table.add_row(claim.sentence, claim.kind, claim.quantity, verdict.rule, result_in_words(verdict), verdict.word)
    console().print(table)
    console().print(count_verdicts(paper_verdicts(study, judged)), highlight=False)
    if revised:
        console().print(f"Revised after the run: {revised.summary}.", highlight=False)
    elif revised.registered:
        console().print("Claims and bounds are those that the run registered.", highlight=False)
