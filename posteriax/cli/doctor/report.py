"""The report on an examination: facts, a table, a verdict."""

from collections.abc import Mapping
from typing import Any

from posteriax._internal.jax_release import FLAG
from posteriax.cli.doctor.examination import Examination, Finding


def print_report(console: Any, facts: Mapping[str, str], found: Examination) -> None:
    """Facts, one line for each program, and the verdict."""
    from rich.markup import escape
    from rich.table import Table

    for name, fact in facts.items():
        console.print(f"{name:<10} {escape(fact)}", highlight=False, soft_wrap=True)
    table = Table(title="Largest error / what rounding explains", title_justify="left")
    table.add_column("program")
    columns = [(f"as {found.compiled_by} compiles", found.findings)]
    if found.plain is not None:
        columns.append(("as JAX compiles by itself", found.plain))
    by_name = [{finding.name: finding for finding in findings} for _, findings in columns]
    for heading, _ in columns:
        table.add_column(heading, justify="right")
    for name in dict.fromkeys(name for findings in by_name for name in findings):
        table.add_row(name, *(describe(findings.get(name)) for findings in by_name))
    console.print(table)
    console.print(verdict(found), highlight=False, soft_wrap=True)


def describe(finding: Finding | None) -> str:
    """
    >>> describe(Finding("sum", 0.031)), describe(Finding("sum", 4e5)), describe(None)
    ('0.031 ok', '4e+05 WRONG', 'not run')
    """
    if finding is None:
        return "not run"
    if finding.crash:
        return f"{finding.crash} WRONG"
    return f"{finding.excess:.2g} {'ok' if finding.correct else 'WRONG'}"


def verdict(found: Examination) -> str:
    """The conclusion, and what to do."""
    advice = "Install a correct release: pip install 'jax==0.10.1' 'jaxlib==0.10.1'."
    wrong, plainly_wrong = names_of_wrong(found.findings), names_of_wrong(found.plain or ())
    by = found.compiled_by
    if wrong:
        return f"WRONG: as {by} compiles here, {wrong}. Do not trust results. {advice}"
    correct = f"CORRECT: as {by} compiles here, {len(found.findings)} programs agree with float64 NumPy to rounding."
    if not plainly_wrong:
        return correct
    return (
        f"{correct}\nWRONG: as JAX compiles by itself, {plainly_wrong}. Importing posteriax switches off the cause; "
        f"for programs that do not import it, set XLA_FLAGS={FLAG} in the environment."
    )


def names_of_wrong(findings: tuple[Finding, ...]) -> str:
    """
    >>> names_of_wrong((Finding("sum", 1e6), Finding("scan", 0.5), Finding("sorting", float("inf"))))
    '2 of 3 programs are wrong (sum; sorting)'
    """
    wrong = [finding.name for finding in findings if not finding.correct]
    return f"{len(wrong)} of {len(findings)} programs are wrong ({'; '.join(wrong)})" if wrong else ""
