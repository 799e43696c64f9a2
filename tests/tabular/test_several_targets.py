"""Tables of several targets: ``posteriax compare --target height,age``."""

import json
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from posteriax.cli import environment
from posteriax.cli.app import make_app
from posteriax.tabular.data_files import read_table
from posteriax.tabular.description import target_from_plain
from posteriax.tabular.folds import known_targets, prepare_folds
from posteriax.tabular.messages import TableError
from posteriax.tabular.splitting import DataSettings
from posteriax.tabular.targets import Quantities


def write_trees(path, *, count=90, seed=0, **columns):
    rng = np.random.default_rng(seed)
    light = rng.uniform(0, 1, count)
    height, age = 10 * light + rng.normal(size=count), 300 - 200 * light + 5 * rng.normal(size=count)
    pd.DataFrame({"light": light, "height": height, "age": age} | columns).round(3).to_csv(path, index=False)
    return path


def test_rows_need_all_targets_and_none_is_an_input(tmp_path):
    path = write_trees(tmp_path / "a.csv")
    frame = pd.read_csv(path)
    frame.loc[3, "age"] = np.nan
    frame.to_csv(path, index=False)
    table = read_table(path)
    (fold,) = prepare_folds(table, DataSettings(target="height, age"))
    assert (fold.train[0].shape, fold.train[1].shape, fold.test[1].shape) == ((71, 1), (71, 2), (18, 2))
    assert 3 not in {*fold.train_rows, *fold.test_rows}
    np.testing.assert_allclose(fold.y_test, frame[["height", "age"]].to_numpy()[fold.test_rows], rtol=1e-5)
    np.testing.assert_allclose(fold.train[1].mean(axis=0), 0, atol=1e-5)
    assert isinstance(fold.target, Quantities)
    assert target_from_plain(json.loads(json.dumps(asdict(fold.target)))) == fold.target
    values, known = known_targets(table, fold.target)
    assert (values.shape, known.sum(), known[3]) == ((89, 2), 89, False)


BAD = {
    "text": ({"age": ["old", "young"] * 45}, {}, "target 'age' is text, but several targets must all be numbers"),
    "constant": ({"age": 1.0}, {}, "target 'age' has only one value in the training rows"),
    "no such column": ({}, {"target": "height,weight"}, "has no column 'weight'"),
    "another task": ({}, {"task": "counts"}, "several targets must be real numbers, but --task counts says otherwise"),
    "also dropped": ({}, {"drop": ["age"]}, "column 'age' is a target and cannot be anything else"),
    "nothing": ({"age": np.nan}, {}, "the target 'age' has no values"),
}


@pytest.mark.parametrize(("columns", "settings", "message"), BAD.values(), ids=BAD)
def test_what_cannot_be_learned_from_is_refused_in_a_line(tmp_path, columns, settings, message):
    path = write_trees(tmp_path / "a.csv", **columns)
    with pytest.raises(TableError, match=message) as error:
        prepare_folds(read_table(path), DataSettings(**({"target": "height,age"} | settings)))
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_several_targets_are_compared_and_predicted(monkeypatch, tmp_path):
    monkeypatch.setattr(environment, "use_all_cores", lambda: None)  # this process's backend has started
    monkeypatch.setattr(environment, "use_compilation_cache", lambda: None)
    data, out = write_trees(tmp_path / "a.csv", count=350), tmp_path / "a.html"
    arguments = ["compare", data, "--target", "height,age", "--methods", "ensemble,laplace", "--out", out]
    done = CliRunner().invoke(make_app(), list(map(str, [*arguments, "--budget", "60s"])))
    assert done.exit_code == 0, done.output
    assert "2 real numbers" in done.stdout and "rmse" in done.stdout
    new = write_trees(tmp_path / "new.csv", count=9, seed=1)
    predicted = CliRunner().invoke(make_app(), ["predict", str(tmp_path / "a_posteriors/ensemble.posterior"), str(new)])
    assert predicted.exit_code == 0, predicted.output
    header, *rows = [line.split(",") for line in predicted.stdout.splitlines()]
    age = np.array([row[header.index("age mean")] for row in rows], float)
    std = np.array([row[header.index("age std")] for row in rows], float)
    assert (np.abs(age - pd.read_csv(new)["age"]) < 5 * std).all() and (std < 20).all()  # of noise 5
