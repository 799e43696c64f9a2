"""Studies run each cell once, survive kills, and are drawn again from their file of results."""

import json
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import toy_study
from toy_study import STUDY, Settings

from posteriax import studies
from posteriax.studies.claims import FAILS, HOLDS, UNDECIDED, judge


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("study")
    studies.run_study(STUDY, out, scale="laptop", command="posteriax study run toy")
    return out


def without_times(path):
    stored = json.loads((path / "results.json").read_text())
    del stored["times"]
    return json.dumps(stored)


def test_verdicts_follow_from_the_results(folder):
    results = studies.read_results(folder)
    found = studies.verdicts(STUDY, results)
    assert results.complete and len(results.cells) == 4
    assert (found["beats chance"].word, found["perfect"].word) == (HOLDS, FAILS)
    stored = json.loads((folder / "results.json").read_text())["verdicts"]
    assert [verdict["word"] for verdict in stored] == [HOLDS, FAILS]


@pytest.mark.slow
def test_a_study_killed_three_times_gives_the_same_bytes(folder, tmp_path):
    command = [sys.executable, toy_study.__file__, tmp_path, "before", "during", "after", "never"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=300)
    assert json.loads(done.stdout) == [signal.SIGKILL] * 3 + [0]
    assert without_times(tmp_path) == without_times(folder)
    assert not (tmp_path / "running").exists()


def test_finished_cells_are_not_run_again(folder):
    def fail(cell, settings, bench):
        raise AssertionError(f"{cell.name} ran again")

    before = (folder / "results.json").read_bytes()
    studies.run_study(replace(STUDY, run=fail), folder, scale="laptop", command="posteriax study run toy")
    assert (folder / "results.json").read_bytes() == before


def test_more_seeds_add_the_missing_cells(tmp_path):
    ran = []

    def run(cell, settings, bench):
        ran.append(cell.name)
        return {"nll": 0.1 * cell.seed}

    study = replace(STUDY, run=run)
    studies.run_study(study, tmp_path, scale="smoke", seeds=1)
    studies.run_study(study, tmp_path, scale="smoke", seeds=2)
    assert ran == ["map, seed 0", "mean-field, seed 0", "map, seed 1", "mean-field, seed 1"]


def test_the_page_is_drawn_from_the_file_alone(folder):
    study = replace(STUDY, run=None, cells=None)
    studies.write_page(study, folder)
    text = (folder / "README.md").read_text()
    assert "2 claims: 1 holds, 1 does not hold" in text and "![curve](curve.png)" in text
    assert (folder / "curve.png").stat().st_size > 1000
    front = studies.front_page({"toy": (study, studies.read_results(folder))})
    assert "1 paper. 2 claims" in front and "(toy/README.md)" in front


@pytest.mark.slow
def test_smoke_and_trial_decide_nothing(tmp_path):
    for name, options in (("smoke", {"scale": "smoke"}), ("trial", {"scale": "paper", "trial": True})):
        results = studies.run_study(STUDY, tmp_path / name, **options)
        assert {verdict.word for verdict in studies.verdicts(STUDY, results).values()} == {UNDECIDED}
    assert results.seeds == 1  # of the trial: more would only repeat it


def test_progress_says_how_much_is_left(tmp_path):
    lines = []
    study = replace(STUDY, run=lambda cell, settings, bench: {"nll": 0.1})
    studies.run_study(study, tmp_path, scale="laptop", report=lines.append)
    assert lines[0] == "cell 1 of 4: map, seed 0"
    assert lines[3].startswith("cell 4 of 4: mean-field, seed 1, about 0 s left")


@pytest.mark.parametrize(
    ("values", "above", "below", "word"),
    [
        ([1.0, 1.1, 0.9], 0.5, np.inf, HOLDS),
        ([1.0, 1.1, 0.9], 1.5, np.inf, FAILS),
        ([1.0, 1.1, 0.9], 0.95, np.inf, UNDECIDED),
        ([0.0, 0.02, -0.02], -0.1, 0.1, HOLDS),  # within noise
        ([1.0], 0.5, np.inf, UNDECIDED),  # one value has no error
        ([], 0.5, np.inf, UNDECIDED),
        ([1.0, np.nan], 0.5, np.inf, UNDECIDED),
    ],
)
def test_the_rule_of_verdicts(values, above, below, word):
    assert judge(values, above, below).word == word


def test_a_true_null_is_rejected_as_often_as_the_rule_says():
    rng = np.random.default_rng(0)
    words = [judge(rng.normal(size=3), 0.0, np.inf).word for _ in range(4000)]
    share = words.count(HOLDS) / len(words)
    assert abs(share - 0.05) < 4 * np.sqrt(0.05 * 0.95 / len(words))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda stored: stored.pop("cells"), "has no 'cells'"),
        (lambda stored: stored.update(seeds="two"), "'seeds' of the file is str"),
        (lambda stored: stored.update(format="something"), "does not hold results of a study"),
        (lambda stored: stored.update(version=99), "has version 99"),
        (lambda stored: stored["cells"][0].pop("result"), "cell 0 has no 'result'"),
    ],
)
def test_a_file_of_results_is_checked_when_read(folder, tmp_path, damage, message):
    stored = json.loads((folder / "results.json").read_text())
    damage(stored)
    (tmp_path / "results.json").write_text(json.dumps(stored))
    with pytest.raises(studies.ResultsError, match=message):
        studies.read_results(tmp_path)


def test_a_folder_of_another_study_is_refused(folder):
    with pytest.raises(studies.ResultsError, match="scale was laptop, is now smoke"):
        studies.run_study(STUDY, folder, scale="smoke")


def test_missing_data_is_said_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("POSTERIAX_DATA", str(tmp_path / "empty"))
    needs = Settings(2, 1, data=("uci/concrete", "physionet2012", "two_moons"))
    study = replace(STUDY, scales={"smoke": needs})
    with pytest.raises(studies.MissingData) as missing:
        studies.run_study(study, tmp_path / "out", scale="smoke")
    assert len(missing.value.messages) == 2
    assert not (tmp_path / "out").exists()


def test_an_unfinished_study_decides_nothing(tmp_path):
    def run(cell, settings, bench):
        if cell.seed == 1:
            raise RuntimeError("the power went out")
        return {"nll": 0.1}

    with pytest.raises(RuntimeError, match="power"):
        studies.run_study(replace(STUDY, run=run), tmp_path, scale="laptop")
    results = studies.write_page(STUDY, tmp_path)
    assert not results.complete
    assert {verdict.word for verdict in studies.verdicts(STUDY, results).values()} == {UNDECIDED}
    assert "**Not complete**" in (tmp_path / "README.md").read_text()


PAPER = """# A title

Paper: Nobody (2026).

What is done here.

## Claims

| name | claim | location | the paper | measured here | holds if | measure | kind |
| --- | --- | --- | --- | --- | --- | --- | --- |
| better | It is better. | figure 3 | 1 and 2 | - | between -0.5 and 0 | `nll("map") - nll("mean-field")` | paper |
| small | It is small. | | 0 | NLL | below 1e-6 | `nll("map")` | sanity |

**small.** It is not,
as one sees.
"""


def read(tmp_path, text):
    (tmp_path / "paper.md").write_text(text)
    return studies.read_paper(tmp_path / "paper.md", {"nll": lambda method: studies.entry("nll", method=method)})


def test_claims_are_the_rows_of_a_table(folder, tmp_path):
    paper = read(tmp_path, PAPER)
    assert (paper.title, paper.citation, paper.summary) == ("A title", "Nobody (2026).", "What is done here.")
    better, small = paper.claims
    assert (better.above, better.below, better.reported, better.kind) == (-0.5, 0.0, "figure 3: 1 and 2", "paper")
    assert (small.below, small.reported, small.kind, small.remark) == (1e-6, "0", "sanity", "It is not, as one sees.")
    results = studies.read_results(folder)
    expected = results.values("nll", method="map") - results.values("nll", method="mean-field")
    np.testing.assert_array_equal(better.measure(results), expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("`nll(", "`loss("), "the claim 'better' cannot be read: name 'loss' is not defined"),
        (("below 1e-6", "under 1e-6"), "the claim 'small' cannot be read: a rule is"),
        (("sanity", "guess"), "the kind must be one of"),
        (("**small.**", "**smaller.**"), "no claim has the name of this remark"),
        (("| location |", "| where |"), "the table of claims has columns"),
    ],
)
def test_a_row_that_cannot_be_read_is_named(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        read(tmp_path, PAPER.replace(*change))
