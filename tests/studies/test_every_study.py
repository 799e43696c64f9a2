"""Every study that ships runs at its smoke scale, builds at the paper's, and has pages that its stored results give."""

from pathlib import Path

import numpy as np
import pytest

from posteriax import studies
from posteriax.studies.front import claims_page, front_page
from posteriax.studies.judging import HOLDS, NOT_RUN, UNDECIDED
from posteriax.studies.page import page

PUBLISHED = Path(__file__).parents[2] / "docs" / "results"
every_study = pytest.mark.parametrize("study", studies.STUDIES.values(), ids=lambda study: study.name)


@pytest.mark.slow  # a minute at least; test_running.py does the same every day for a toy study
@every_study
def test_the_smoke_scale_runs_and_can_be_shown(study, smoke_folder):
    folder = smoke_folder(study.name)
    results = studies.write_page(study, folder)
    assert results.complete
    for claim in study.claims:
        for part, values in claim.values(results).items():
            assert values.ndim == 1 and np.isfinite(values).all(), (claim.name, part)
    assert {verdict.word for verdict in studies.verdicts(study, results).values()} <= {UNDECIDED, NOT_RUN}
    for table in study.tables(results):
        assert table.rows and all(len(row) == len(table.headings) for row in table.rows), table.caption
    assert all((folder / f"{name}.png").stat().st_size > 5000 for name in study.drawable_figures(results))


@pytest.mark.slow
@every_study
def test_the_paper_scale_builds_and_takes_a_step(study, tmp_path):
    assert studies.run_study(study, tmp_path, scale="paper", seeds=1, trial=True).complete


@every_study
def test_cells_and_claims_have_names_of_their_own(study):
    for settings in study.scales.values():
        names = [cell.name for cell in study.cells(settings, settings.seeds)]
        assert len(set(names)) == len(names)
    names = [claim.name for claim in study.claims]
    assert len(set(names)) == len(names)
    for claim in study.claims:
        assert claim.above < claim.below and np.isfinite([claim.above, claim.below]).any()
        assert claim.sentence and claim.paper and claim.quantity
        assert claim.kind != "paper" or claim.location, f"where does the paper say that {claim.sentence}"
        assert claim.figure in ("", *study.figures), claim.name
    assert study.paper.finding and study.paper.captions.keys() == study.figures.keys()


@pytest.mark.parametrize("folder", sorted(PUBLISHED.glob("*/results.json")), ids=lambda path: path.parent.name)
def test_a_published_page_is_what_its_results_give(folder):
    results = studies.read_results(folder.parent)
    study = studies.STUDIES[results.study]
    assert results.scale == "laptop" and (results.complete or results.registered)
    assert (folder.parent / "README.md").read_text() == page(study, results)
    for name, found in studies.verdicts(study, results).items():
        assert found.word != HOLDS or not found.objection, name


def test_the_front_page_is_what_the_published_results_give():
    pages = {}
    for path in sorted(PUBLISHED.glob("*/results.json")):
        results = studies.read_results(path.parent)
        pages[path.parent.name] = studies.STUDIES[results.study], results
    assert (PUBLISHED / "README.md").read_text() == front_page(pages)
    assert (PUBLISHED / "claims.md").read_text() == claims_page(pages)
    count = front_page(pages).split("\n\n")[1].rstrip(".")
    assert count in " ".join((PUBLISHED.parents[1] / "README.md").read_text().split())
