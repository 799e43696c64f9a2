"""``posteriax study``, as typed."""

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from posteriax import studies
from posteriax.cli import environment
from posteriax.cli.app import make_app

sys.path.insert(0, str(Path(__file__).parents[1] / "studies"))
from toy_study import STUDY, Settings


@pytest.fixture
def typed(monkeypatch):
    monkeypatch.setitem(studies.STUDIES, "toy", STUDY)
    monkeypatch.setattr(environment, "use_all_cores", lambda: None)  # this process's backend has started
    monkeypatch.setattr(environment, "use_compilation_cache", lambda: None)  # of the user, for all later tests
    runner = CliRunner()
    return lambda *words: runner.invoke(make_app(), ["study", *map(str, words)])


def test_the_list_names_every_study(typed):
    shown = typed("list").output
    assert all(name in shown for name in studies.STUDIES)


def test_a_study_runs_and_its_page_is_drawn_again(typed, tmp_path):
    done = typed("run", "toy", "--scale", "smoke", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    assert "2 claims of the paper: 0 hold" in done.output
    before = {name: (tmp_path / name).read_bytes() for name in ("README.md", "curve.png")}
    for name in before:
        (tmp_path / name).unlink()
    assert typed("report", tmp_path).exit_code == 0
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
    assert "posteriax study run toy --scale smoke" in before["README.md"].decode()


@pytest.mark.slow
def test_several_studies_have_a_front_page(typed, tmp_path):
    typed("run", "toy", "--scale", "smoke", "--out", tmp_path / "a")
    done = typed("report", tmp_path)
    assert done.exit_code == 0 and "(a/README.md)" in (tmp_path / "README.md").read_text()


def test_every_missing_file_is_one_line(typed, tmp_path, monkeypatch):
    monkeypatch.setenv("POSTERIAX_DATA", str(tmp_path))
    monkeypatch.setitem(STUDY.scales, "laptop", Settings(2, 1, data=("uci/concrete", "physionet2012")))
    done = typed("run", "toy", "--out", tmp_path / "out")
    lines = done.stderr.splitlines()
    assert done.exit_code == 2
    assert [line.startswith("error: ") for line in lines] == [True, True]
    assert str(tmp_path) in lines[0] and str(tmp_path) in lines[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "tooy"), "there is no study 'tooy'. Did you mean toy?"),
        (("run", "toy", "--scale", "huge"), "there is no scale 'huge'; there are smoke, laptop, paper"),
        (("report", "nowhere"), "does not exist: run `posteriax study run NAME"),
    ],
)
def test_bad_input_is_one_line(typed, words, message):
    done = typed(*words)
    assert done.exit_code == 2
    assert message in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_damaged_file_of_results_is_one_line(typed, tmp_path):
    (tmp_path / "results.json").write_text(json.dumps({"format": "something"}))
    done = typed("report", tmp_path)
    assert done.exit_code == 2 and "does not hold results of a study" in done.stderr
