"""``posteriax export`` and ``distil``, and estimators that predict with what was exported."""

import io
import json
import runpy

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import posteriax as px
from posteriax.cli import environment
from posteriax.cli.app import make_app
from posteriax.sklearn import BayesianMLPClassifier, BayesianMLPRegressor
from posteriax.tabular.compare_file import make_problem
from posteriax.tabular.data_files import read_data
from posteriax.tabular.description import Description, save_described
from posteriax.tabular.folds import prepare_all_rows
from posteriax.tabular.networks import choose_network
from posteriax.tabular.splitting import DataSettings

pytest.importorskip("flatbuffers")
ROWS = 64


def trees():
    rng = np.random.default_rng(0)
    planted = np.datetime64("2000-01-01") + rng.integers(0, 8000, ROWS)
    return pd.DataFrame(
        {
            "girth": np.where(np.arange(ROWS) % 8, rng.normal(70, 10, ROWS).round(1), np.nan),
            "kind": rng.choice(["oak", "elm"], ROWS),
            "planted": planted.astype(str),
            "height": rng.normal(20, 5, ROWS),
        }
    )


@pytest.fixture(scope="module")
def posterior(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    trees().to_csv(folder / "trees.csv", index=False)
    prepared = prepare_all_rows(read_data(folder / "trees.csv"), DataSettings(target="height", task="regression"))
    architecture = choose_network(prepared.train[0].shape[1:], prepared.target.outputs, ROWS)
    problem = make_problem(architecture, prepared.target, 0)
    fitted = px.fit(problem, prepared.train, px.Ensemble(px.MAP(), 2), steps=2, key=0)
    description = Description("ensemble", architecture, prepared.preparation, prepared.target)
    save_described(fitted, description, folder / "ensemble.posterior")
    return folder / "ensemble.posterior"


@pytest.fixture
def command(monkeypatch):
    monkeypatch.setattr(environment, "use_all_cores", lambda: None)  # this process's backend has started
    monkeypatch.setattr(environment, "use_compilation_cache", lambda: None)

    def run(*arguments, code=0):
        done = CliRunner().invoke(make_app(), [str(argument) for argument in arguments])
        assert done.exit_code == code, done.output
        return done.stdout if code == 0 else done.output

    return run


def table(text):
    return pd.read_csv(io.StringIO(text))


def test_predict_says_the_same_with_an_exported_model(posterior, command, tmp_path):
    rows = posterior.with_name("trees.csv")
    said = command("export", posterior, "--out", tmp_path / "trees.stablehlo")
    assert "stablehlo, 2 draws" in said and "trees.stablehlo.json" in said
    before, after = (table(command("predict", model, rows)) for model in (posterior, tmp_path / "trees.stablehlo"))
    assert list(before) == list(after) == ["mean", "std", "noise std", "model std", "5 %", "95 %"]
    np.testing.assert_allclose(after, before, rtol=1e-4)  # columns have five digits


def test_the_preparation_travels_with_a_numpy_model(posterior, command, tmp_path):
    command("export", posterior, "--to", "numpy", "--out", tmp_path / "model")
    prepare = runpy.run_path(str(tmp_path / "model" / "prepare.py"))["prepare"]
    predict = runpy.run_path(str(tmp_path / "model" / "predict.py"))["predict"]
    frame = trees()
    cells = {
        "girth": [None if np.isnan(v) else v for v in frame["girth"]],
        "kind": ["beech", *frame["kind"][1:]],  # a kind that was not there
        "planted": [None, *frame["planted"][1:]],
    }
    results = predict(prepare(cells))
    frame.loc[0, ["kind", "planted"]] = ["beech", None]
    frame.to_csv(tmp_path / "new.csv", index=False)
    expected = table(command("predict", posterior, tmp_path / "new.csv"))
    np.testing.assert_allclose(results["mean"][:, 0], expected["mean"], rtol=1e-4)
    np.testing.assert_allclose(results["std"][:, 0], expected["std"], rtol=1e-4)
    with pytest.raises(ValueError, match="there is no column 'kind'"):
        prepare({"girth": [1.0], "planted": [None]})


def test_errors_are_one_line(posterior, command, tmp_path):
    assert "--to must be" in command("export", posterior, "--to", "pmml", code=2)
    assert "there is no folder" in command("export", posterior, "--out", tmp_path / "no" / "x.stablehlo", code=2)
    command("export", posterior, "--out", tmp_path / "trees.stablehlo")
    assert "is an exported model: only posteriors" in command("export", tmp_path / "trees.stablehlo", code=2)


@pytest.mark.slow
def test_a_distilled_table_is_predicted_and_exported(posterior, command, tmp_path):
    rows, small = posterior.with_name("trees.csv"), tmp_path / "small.posterior"
    said = command("distil", posterior, rows, "--out", small, "--held-out", rows)
    assert "held-out: Wasserstein" in said and "conformal intervals: 90 %" in said
    before, after = (table(command("predict", model, rows)) for model in (posterior, small))
    assert np.abs(after["mean"] - before["mean"]).mean() < 0.3 * before["std"].mean()
    command("export", small, "--out", tmp_path / "small.stablehlo")
    exported = table(command("predict", tmp_path / "small.stablehlo", rows))
    np.testing.assert_allclose(exported, after, rtol=1e-4)
    assert json.loads((tmp_path / "small.stablehlo.json").read_text())["method"] == "ensemble, distilled"


@pytest.mark.parametrize("estimator", [BayesianMLPClassifier, BayesianMLPRegressor])
def test_an_estimator_predicts_with_what_it_exported(estimator, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(50, 7, size=(60, 3))
    y = (X[:, 0] > 50) if estimator is BayesianMLPClassifier else 1000 + X[:, 0]
    model = estimator("map", length={"steps": 20}, random_state=0, hidden_layer_sizes=8).fit(X, y)
    model.export(tmp_path / "model.stablehlo")
    other = model.with_posterior(px.load(tmp_path / "model.stablehlo"))
    ours, theirs = (m.predict_proba(X) if y.dtype == bool else m.predict(X) for m in (model, other))
    np.testing.assert_allclose(theirs, ours, rtol=1e-5, atol=1e-5)
