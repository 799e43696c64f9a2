"""Every study that ships runs at its smoke scale, builds at the paper's, and has pages that its stored results give."""

import json
from pathlib import Path

import pytest

from posteriax import studies
from posteriax.studies.verdict import UNDECIDED

RESULTS = Path(__file__).parents[2] / "docs" / "results"


@pytest.mark.parametrize("study", studies.STUDIES.values(), ids=lambda study: study.name)
def test_the_smoke_scale_runs_and_can_be_shown(study, tmp_path):
    results = studies.run_study(study, tmp_path, scale="smoke")
    assert results.complete
    assert {verdict.word for verdict in studies.verdicts(study, results).values()} == {UNDECIDED}
    studies.write_page(study, tmp_path)
    assert all((tmp_path / f"{name}.png").stat().st_size > 1000 for name in study.figures)


@pytest.mark.slow
@pytest.mark.parametrize("study", studies.STUDIES.values(), ids=lambda study: study.name)
def test_the_paper_scale_builds_and_takes_a_step(study, tmp_path):
    assert studies.run_study(study, tmp_path, scale="paper", seeds=1, trial=True).complete


@pytest.mark.parametrize("study", studies.STUDIES.values(), ids=lambda study: study.name)
def test_the_published_page_is_what_its_results_give(study):
    folder = RESULTS / study.name
    results = studies.read_results(folder)
    assert results.complete and results.scale == "laptop"
    from posteriax.studies.page import page

    assert (folder / "README.md").read_text() == page(study, results)
    stored = json.loads((folder / "results.json").read_text())["verdicts"]
    found = studies.verdicts(study, results)
    assert {verdict["claim"]: (verdict["word"], verdict["rule"]) for verdict in stored} == {
        name: (verdict.word, verdict.rule) for name, verdict in found.items()
    }


@pytest.mark.parametrize("study", studies.STUDIES.values(), ids=lambda study: study.name)
def test_claims_are_complete_sentences_with_bounds(study):
    names = [claim.name for claim in study.claims]
    assert len(set(names)) == len(names)
    for claim in study.claims:
        assert claim.above > float("-inf") or claim.below < float("inf")
        assert claim.sentence and claim.paper and claim.quantity
