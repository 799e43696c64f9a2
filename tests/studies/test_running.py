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
from posteriax.studies.claims import PaperSetting
from posteriax.studies.judging import FAILS, HOLDS, NOT_RUN, UNDECIDED, estimate, evidence, word_for
from posteriax.studies.page import page
from posteriax.studies.results import CellResult, Results


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
    assert "2 claims of the paper: 1 holds, 1 does not hold" in text and "![Curve](curve.png)" in text
    assert (folder / "curve.png").stat().st_size > 1000
    front = studies.front_page({"toy": (study, studies.read_results(folder))})
    assert "2 claims of the papers: 1 holds" in front and "(toy/README.md)" in front


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


def judge(values, above, below):
    return word_for(evidence(estimate(values), above, below))


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
    assert judge(values, above, below) == word


def test_a_true_null_is_rejected_as_often_as_the_rule_says():
    rng = np.random.default_rng(0)
    words = [judge(rng.normal(size=3), 0.0, np.inf) for _ in range(4000)]
    share = words.count(HOLDS) / len(words)
    assert abs(share - 0.05) < 4 * np.sqrt(0.05 * 0.95 / len(words))


def study_of_numbers(claims, numbers):
    """A study whose results are these numbers by name, one per seed, and claims on them."""
    measures = {name: studies.entry(name) for name in numbers}
    made = [
        studies.Claim(name, name, "-", name, measures[name] if isinstance(measure, str) else measure(measures), **rest)
        for name, measure, rest in claims
    ]
    cells = [
        CellResult({}, seed, {name: values[seed] for name, values in numbers.items()})
        for seed in range(len(next(iter(numbers.values()))))
    ]
    study = replace(STUDY, paper=replace(STUDY.paper, claims=tuple(made)))
    return study, Results("toy", "laptop", len(cells), {}, cells, {}, {}, True)


def test_a_family_of_true_nulls_is_rejected_in_5_per_cent_of_all_studies_at_most():
    rng, names, wrong = np.random.default_rng(1), [f"c{i}" for i in range(8)], 0
    for _ in range(400):
        numbers = {name: rng.normal(size=6).tolist() for name in names}
        study, results = study_of_numbers([(name, name, {"above": 0.0, "family": "all"}) for name in names], numbers)
        wrong += any(verdict.word == HOLDS for verdict in studies.verdicts(study, results).values())
    assert wrong / 400 < 0.05 + 4 * np.sqrt(0.05 * 0.95 / 400)  # without the correction a third


def test_a_claim_of_parts_holds_if_all_do_and_fails_if_one_does():
    numbers = {"up": [1.0, 1.1, 0.9], "down": [-1.0, -1.1, -0.9], "noise": [1.0, -1.0, 0.1]}
    both = lambda *names: lambda m: studies.Parts(lambda results: {name: m[name] for name in names})  # noqa: E731
    combinations = {"up": ("up",), "down": ("up", "down"), "noise": ("up", "noise")}
    claims = [(name, both(*parts), {"above": 0.0}) for name, parts in combinations.items()]
    found = studies.verdicts(*study_of_numbers(claims, numbers))
    assert [found[name].word for name in combinations] == [HOLDS, FAILS, UNDECIDED]
    assert found["down"].effect == pytest.approx(-1.0)  # of the part that is furthest from holding


def test_an_objection_leaves_a_claim_undecided_and_what_was_not_run_says_so():
    reason = lambda m: studies.Conditional(m["up"], lambda results: "chains have not mixed")  # noqa: E731
    nothing = lambda m: studies.Measure(lambda results: {})  # noqa: E731
    claims = [("up", reason, {"above": 0.0}), ("none", nothing, {"above": 0.0})]
    study, results = study_of_numbers(claims, {"up": [1.0, 1.1, 0.9], "none": [0.0] * 3})
    found = studies.verdicts(study, results)
    assert (found["up"].word, found["up"].objection) == (UNDECIDED, "chains have not mixed")
    assert found["none"].word == NOT_RUN


def test_what_a_run_registered_is_compared_with_the_claims_of_today(folder):
    results = studies.read_results(folder)
    assert not studies.revisions(STUDY, results)
    assert "registered when the run started" in page(STUDY, results)
    better, perfect = STUDY.claims
    claims = (replace(better, below=0.5), replace(perfect, name="flawless"))
    revised = replace(STUDY, paper=replace(STUDY.paper, claims=claims))
    found = studies.revisions(revised, results)
    assert (found.added, found.withdrawn, found.changed) == (("flawless",), ("perfect",), {"beats chance": "rule"})
    assert "Revised after this run" in page(revised, results) and "- perfect: withdrawn" in page(revised, results)


def test_results_of_a_time_before_registration_are_compared_by_their_stored_verdicts(folder):
    results = replace(studies.read_results(folder), registered=None)
    better, perfect = STUDY.claims
    other = replace(better, measure=studies.entry("nll", method="mean-field"))
    found = studies.revisions(replace(STUDY, paper=replace(STUDY.paper, claims=(other, perfect))), results)
    assert not found.registered and found.changed == {"beats chance": "statistic"}
    assert "before claims were registered" in page(STUDY, results)


def test_claims_that_change_while_a_run_is_stopped_do_not_change_what_it_registered(tmp_path):
    def run(cell, settings, bench):
        return {"nll": 0.1}

    study = replace(STUDY, run=run)
    studies.run_study(study, tmp_path, scale="smoke", seeds=1)
    later = replace(study, paper=replace(study.paper, claims=study.claims[:1]))
    results = studies.run_study(later, tmp_path, scale="smoke", seeds=2)
    assert [claim["name"] for claim in results.registered["claims"]] == ["beats chance", "perfect"]


def test_claims_and_settings_that_are_new_while_their_cells_wait_are_registered(tmp_path):
    study = study_of_two_methods()
    studies.run_study(study, tmp_path, scale="laptop", only={"method": ["map"]})
    late = [replace(claim, name=f"late {claim.name}") for claim in study.claims[:2]]
    later = replace(study, paper=replace(study.paper, claims=(*study.claims, *late)))
    results = studies.run_study(later, tmp_path, scale="laptop")
    registered = [claim["name"] for claim in results.registered["claims"]]
    assert registered == ["map", "mean-field", "both", "late mean-field"]  # "late map" could be judged already
    assert studies.revisions(later, results).added == ("late map",)


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
    assert {verdict.word for verdict in studies.verdicts(STUDY, results).values()} == {NOT_RUN}
    assert "**Not complete**" in (tmp_path / "README.md").read_text()


def fake_run(cell, settings, bench):
    return {"nll": {"map": 0.1, "mean-field": 0.9}[cell["method"]] + 0.01 * cell.seed}


def study_of_two_methods(**changes):
    """The toy study with a claim about each method, and about both."""
    nll = {name: studies.entry("nll", method=name) for name in ("map", "mean-field")}
    measures = nll | {"both": nll["map"] - nll["mean-field"]}
    claims = [studies.Claim(name, name, "-", "nll", measure, below=0.5) for name, measure in measures.items()]
    paper = replace(STUDY.paper, claims=tuple(claims))
    return replace(STUDY, run=fake_run, paper=paper, tables=lambda results: [], figures={}, **changes)


def words(study, folder):
    return [verdict.word for verdict in studies.verdicts(study, studies.read_results(folder)).values()]


def test_a_run_of_some_cells_decides_the_claims_that_need_no_others(tmp_path):
    study = study_of_two_methods()
    studies.run_study(study, tmp_path, scale="laptop", only={"method": ["m?p"], "seed": ["0"]})
    assert words(study, tmp_path) == [NOT_RUN] * 3  # one seed of two is not all of the claim's cells
    results = studies.run_study(study, tmp_path, scale="laptop", only={"method": ["map"]})
    assert words(study, tmp_path) == [HOLDS, NOT_RUN, NOT_RUN]
    assert not results.complete and "2 of 4 cells have run" in page(study, results)
    with pytest.raises(ValueError, match=r"no cell has .* method: map, mean-field"):
        studies.run_study(study, tmp_path, scale="laptop", only={"method": ["hmc"]})
    studies.run_study(study, tmp_path, scale="laptop")
    assert words(study, tmp_path) == [HOLDS, FAILS, HOLDS]


def test_a_file_of_results_is_enough_to_go_on_from(tmp_path):
    study, whole, copied = study_of_two_methods(), tmp_path / "whole", tmp_path / "copied"
    studies.run_study(study, whole, scale="laptop")
    studies.run_study(study, copied / "first", scale="laptop", only={"method": ["map"]})
    (copied / "then").mkdir()
    (copied / "first" / "results.json").rename(copied / "then" / "results.json")
    studies.run_study(study, copied / "then", scale="laptop")
    assert without_times(copied / "then") == without_times(whole)
    assert (copied / "then" / "registered.json").read_bytes() == (whole / "registered.json").read_bytes()


def test_claims_that_wait_for_cells_are_judged_by_the_earlier_run(tmp_path):
    study = study_of_two_methods()
    before = study_of_two_methods(scales={**STUDY.scales, "laptop": Settings(100, 2)})
    studies.run_study(before, tmp_path / "before", scale="laptop")
    studies.run_study(study, tmp_path / "now", scale="laptop", only={"method": ["map"]})
    (tmp_path / "before" / "results.json").rename(tmp_path / "now" / "earlier.json")
    found = studies.verdicts(study, studies.read_results(tmp_path / "now"))
    assert [(verdict.word, verdict.earlier) for verdict in found.values()] == [
        (HOLDS, False),
        (FAILS, True),
        (HOLDS, True),
    ]
    text = page(study, studies.read_results(tmp_path / "now"))
    assert "**does not hold**, earlier run" in text and "Until then claims are judged" in text


def test_a_claim_that_waits_counts_in_its_family():
    claims = [(name, name, {"above": 0.0, "family": "all"}) for name in ("a", "b")]
    study, results = study_of_numbers(claims, {"a": [1.0, 2.0, 3.5], "b": [1.0, 2.0, 3.5]})  # one-sided p is 0.047
    here = [replace(cell, settings={"method": "map"}) for cell in results.cells]
    waiting = [replace(cell, settings={"method": "vi"}) for cell in results.cells]
    alone, other = study.claims
    alone = replace(alone, measure=studies.entry("a", method="map"))
    other = replace(other, measure=studies.entry("b", method="vi"))
    found = {
        family: studies.verdicts(
            replace(study, paper=replace(study.paper, claims=(alone, replace(other, family=family)))),
            replace(results, cells=here, waiting=waiting, complete=False),
        )
        for family in ("all", "another")
    }
    assert (found["all"]["a"].word, found["another"]["a"].word) == (UNDECIDED, HOLDS)


PAPER = """# A title

Paper: Nobody (2026).

What is done here.

## Findings

It works.

- It surprised us,
all of it.

## Claims

| name | claim | location | the paper | paper's effect | measured here | holds if | measure | kind | family | figure |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
| better | It is. | figure 3 | 1, 2 | 2 from 1 | - | between -0.5 and 0 | `nll("a") - nll("b")` | paper | two | curve |
| small | It is small. | | 0 | | NLL | below 1e-6 | `nll("a")` | sanity | | |

**small.** It is not,
as one sees.

## Figures

**curve.** Figure 3: learning. It falls.

## Settings

| setting | the paper | here |
| --- | --- | --- |
| steps | 100 | `steps` |
"""


METHODS = {"a": "map", "b": "mean-field"}


def read(tmp_path, text):
    (tmp_path / "paper.md").write_text(text)
    return studies.read_paper(tmp_path / "paper.md", {"nll": lambda name: studies.entry("nll", method=METHODS[name])})


def test_claims_are_the_rows_of_a_table(folder, tmp_path):
    paper = read(tmp_path, PAPER)
    assert (paper.title, paper.citation, paper.summary) == ("A title", "Nobody (2026).", "What is done here.")
    better, small = paper.claims
    assert (better.above, better.below, better.reported, better.kind) == (-0.5, 0.0, "figure 3: 1, 2", "paper")
    assert (better.paper_effect, better.null_effect, better.family, better.figure) == (2.0, 1.0, "two", "curve")
    assert (paper.finding, paper.surprises) == ("It works.", ("It surprised us, all of it.",))
    assert (paper.captions["curve"].title, paper.captions["curve"].text) == ("Figure 3: learning", "It falls.")
    assert paper.settings == (PaperSetting("steps", "100", "steps"),)
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
        (("2 from 1", "two"), "the claim 'better' cannot be read: could not convert"),
    ],
)
def test_a_row_that_cannot_be_read_is_named(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        read(tmp_path, PAPER.replace(*change))
