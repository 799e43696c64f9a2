"""``posteriax compare`` and ``posteriax predict``, from a file to predictions."""

import csv
import io
import json
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from typer.testing import CliRunner

import posteriax as px
from posteriax.cli import environment
from posteriax.cli.app import make_app
from posteriax.evaluation.report.page import page
from posteriax.likelihoods import TargetUnits
from posteriax.tabular import RECIPES, compare_file
from posteriax.tabular.compare_file import CompareSettings, check_methods, make_problem
from posteriax.tabular.data_files import read_data, read_table
from posteriax.tabular.description import VERSION, load_described, preparation_from_plain
from posteriax.tabular.estimators import in_target_units
from posteriax.tabular.folds import prepare_folds
from posteriax.tabular.messages import TableError
from posteriax.tabular.networks import Architecture, choose_network
from posteriax.tabular.predict_file import _columns, as_csv
from posteriax.tabular.targets import Classes, Quantity


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setattr(environment, "use_all_cores", lambda: None)  # this process's backend has started
    monkeypatch.setattr(environment, "use_compilation_cache", lambda: None)
    return lambda *args: CliRunner().invoke(make_app(), list(map(str, args)))


def write_trees(path, *, count=60, seed=0):
    """Height and kind say nearly all about age, and about whether a tree is old."""
    rng = np.random.default_rng(seed)
    lines = ["height,kind,old,age"]
    for _ in range(count):
        height, kind = rng.uniform(1, 30), rng.choice(["oak", "elm"])
        age = 4 * height * (2 if kind == "oak" else 1) + rng.normal(0, 3)
        lines.append(f"{height:.3f},{kind},{'yes' if age > 80 else '<b>no</b>'},{age:.3f}")
    path.write_text("\n".join(lines) + "\n")
    return path


def compare(run, data, target, drop, methods):
    out = data.with_suffix(".html")
    result = run(
        "compare",
        data,
        "--target",
        target,
        "--drop",
        drop,
        "--methods",
        methods,
        "--out",
        out,
        "--quick",
        "--no-baselines",
    )
    assert result.exit_code == 0, result.output
    return result, out, data.with_name(f"{data.stem}_posteriors")


def columns_of(text):
    header, *rows = csv.reader(io.StringIO(text))
    return {name: [row[i] for row in rows] for i, name in enumerate(header)}


def test_classes_are_compared_and_predicted_as_by_the_posterior_itself(run, tmp_path):
    data = write_trees(tmp_path / "trees.csv")
    result, out, folder = compare(run, data, "old", "age", "map,swag")
    assert re.search("^map +(converged|stopped at the budget) ", result.stdout, re.MULTILINE)
    assert "accuracy" in result.stdout
    assert "<b>no</b>" not in out.read_text(encoding="utf-8")  # a class's name is no markup
    new = write_trees(tmp_path / "new.csv", count=7, seed=1)
    done = run("predict", folder / "swag.posterior", new)
    assert done.exit_code == 0, done.output
    found = columns_of(done.stdout)
    # by hand: the posterior's own file, prepared by the JSON beside it
    plain = json.loads((folder / "swag.posterior.json").read_text())
    preparation, target = preparation_from_plain(plain["preparation"])
    net = Architecture(**{**plain["network"], "shape": tuple(plain["network"]["shape"])}).build(3)
    predictive = px.load(folder / "swag.posterior", net).predict(preparation.transform(read_table(new)))
    assert target == Classes("old", ("<b>no</b>", "yes"))
    for i, label in enumerate(target.labels):
        np.testing.assert_allclose(np.array(found[f"probability {label}"], float), predictive.probs[:, i], rtol=1e-5)
    np.testing.assert_allclose(np.array(found["entropy"], float), predictive.entropy(), rtol=1e-5)
    np.testing.assert_allclose(
        np.array(found["mutual information"], float), predictive.mutual_information(), rtol=1e-4, atol=1e-6
    )
    assert found["predicted"] == [target.labels[i] for i in predictive.probs.argmax(axis=1)]
    assert "accuracy" in done.stderr


@pytest.mark.slow
def test_numbers_are_predicted_in_their_own_units(run, tmp_path):
    data = write_trees(tmp_path / "trees.csv")
    _, _, folder = compare(run, data, "age", "old", "map")
    new = write_trees(tmp_path / "new.csv", count=40, seed=1)
    out = tmp_path / "predictions.csv"
    done = run("predict", folder / "map.posterior", new, "--out", out)
    assert done.exit_code == 0, done.output
    found = {name: np.array(cells, float) for name, cells in columns_of(out.read_text()).items()}
    age = read_table(new).numbers("age")
    rmse = np.sqrt(np.mean((found["mean"] - age) ** 2))
    assert rmse < 0.3 * age.std()  # the noise is 3, the spread about 50
    assert f"rmse {rmse:.3g}"[:6] in done.stderr
    # one draw: a Gaussian, whose 5 % quantile is 1.645 standard deviations below its mean
    np.testing.assert_allclose(found["mean"] - 1.6449 * found["std"], found["5 %"], rtol=1e-3)
    np.testing.assert_allclose(found["mean"] + 1.6449 * found["std"], found["95 %"], rtol=1e-3)


@pytest.mark.slow
def test_a_large_mean_costs_no_digits(tmp_path):
    """A target of 1e7 with a spread of 1: in float32 it comes in whole numbers."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, 300)
    y = 1e7 + np.sin(3 * x) + rng.normal(0, 0.3, 300)
    path = tmp_path / "far.csv"
    path.write_text("\n".join(["x,y", *(f"{a:.6f},{b:.6f}" for a, b in zip(x, y, strict=True))]) + "\n")
    (prepared,) = prepare_folds(read_data(path), CompareSettings(target="y"))
    target = prepared.target
    problem = make_problem(choose_network((1,), 1, 240), target, 0)
    plain = px.fit(problem, prepared.train, px.MAP(optax.adam(1e-2)), steps=500, key=0)
    posterior, (x_test, y_test) = in_target_units(plain, target.units), prepared.test
    table = px.compare({"far": posterior}, (x_test, TargetUnits(target.mean, target.scale).restore(y_test)))
    standard = px.compare({"near": plain}, prepared.test)
    for score, per_unit in (("rmse", True), ("crps", True), ("coverage_90", False)):
        scale = target.scale if per_unit else 1.0
        assert table["far"][score] == pytest.approx(scale * standard["near"][score], rel=1e-5)
    assert table["far"]["nll"] == pytest.approx(standard["near"]["nll"] + np.log(target.scale), abs=1e-5)
    assert table["far"]["rmse"] < 0.4  # the noise is 0.3; float32 alone would make it 0.4 and more
    view, own = table.charts["test"]["far"], standard.charts["test"]["near"]
    assert [example.index for example in view.surest_wrong] == [example.index for example in own.surest_wrong]
    written = columns_of(as_csv(_columns(posterior.predict(x_test), target)))
    truth = target.mean + target.scale * plain.predict(x_test).mean[:, 0].astype(np.float64)
    np.testing.assert_allclose(np.array(written["mean"], float), truth, rtol=0, atol=1e-4)
    reduced = posterior.predict(x_test, reduce=True)
    np.testing.assert_allclose(reduced.mean[:, 0], truth, rtol=0, atol=1e-4)
    np.testing.assert_allclose(posterior.predict(x_test).quantile(0.5)[:, 0], truth, rtol=0, atol=1e-4)
    assert f"{truth[view.surest_wrong[0].index]:.2f}" in page(table)


def test_units_scale_mean_noise_and_density():
    target = Quantity("age", mean=50.0, scale=10.0)
    x, y = np.linspace(-1, 1, 20, dtype=np.float32)[:, None], np.linspace(-1, 1, 20, dtype=np.float32)
    problem = make_problem(choose_network((1,), 1, 20), target, 0)
    plain = px.fit(problem, (x, y), px.MAP(), steps=20, key=0)
    standard, scaled = plain.predict(x), in_target_units(plain, target.units).predict(x)
    np.testing.assert_allclose(scaled.mean, 50 + 10 * standard.mean, rtol=1e-5)
    np.testing.assert_allclose(scaled.std, 10 * standard.std, rtol=1e-5)
    np.testing.assert_allclose(scaled.log_prob(50 + 10 * y), standard.log_prob(y) - np.log(10), rtol=1e-4)


class Interrupting:
    """An estimator during whose fit Ctrl-C is pressed."""

    def fit(self, x, y):
        raise KeyboardInterrupt


def test_ctrl_c_keeps_what_is_done(run, tmp_path, monkeypatch):
    real = compare_file.make_estimator
    chosen = lambda name, *rest: Interrupting() if name == "swag" else real(name, *rest)  # noqa: E731
    monkeypatch.setattr(compare_file, "make_estimator", chosen)
    result, out, folder = compare(run, write_trees(tmp_path / "trees.csv"), "old", "age", "map,swag,rank-1")
    assert "swag: interrupted" in result.stdout and "rank-1" not in result.stdout
    assert out.exists() and [path.name for path in folder.glob("*.posterior")] == ["map.posterior"]


@pytest.mark.slow
def test_folds_test_every_row_once_and_leave_a_posterior_of_all_rows(run, tmp_path):
    data = write_trees(tmp_path / "trees.csv", count=45)
    result, out, folder = compare(run, data, "age", "old", "map,mean-field")
    assert "45 rows, each tested once, in 5 folds" in result.stdout
    assert "45 test rows" in result.stdout
    (kept,) = folder.glob("*.posterior")
    assert f"{kept.stem} once more, with all rows" in result.stdout
    assert run("predict", kept, data).exit_code == 0
    assert "line" in out.read_text(encoding="utf-8")


@pytest.mark.slow
def test_images_are_compared_and_predicted(run, tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    x = (rng.uniform(0, 100, (40, 8, 8)) + 100 * y[:, None, None]).astype(np.uint8)
    np.savez(tmp_path / "images.npz", x=x, y=y)
    out = tmp_path / "report.html"
    result = run("compare", tmp_path / "images.npz", "--methods", "map", "--out", out, "--quick", "--no-baselines")
    assert result.exit_code == 0, result.output
    done = run("predict", tmp_path / "report_posteriors" / "map.posterior", tmp_path / "images.npz")
    assert columns_of(done.stdout)["predicted"] == list(map(str, y))


def test_methods_are_chosen_by_name_and_all_are_documented(run):
    assert check_methods(["hmc", " MAP", "hmc"]) == ["hmc", "map"]
    with pytest.raises(TableError, match="unknown method 'magic'; there are map, ensemble"):
        check_methods(["map", "magic"])
    page = (Path(__file__).parents[2] / "docs" / "command_line.md").read_text()
    for name in RECIPES:
        assert f"`{name}`" in page


@pytest.mark.parametrize("shape", [(5, 4), (8, 8, 3), (33, 17, 1), (224, 224, 3)])
def test_the_image_network_takes_images_of_any_size(shape):
    outputs = jax.eval_shape(lambda: choose_network(shape, 4, 50).build(0)(jnp.zeros(shape)))
    assert outputs.shape == (4,)


TREES = "height,kind,y\n" + "".join(f"{i},{'oak' if i % 3 else 'elm'},{i % 2}\n" for i in range(20))
BAD = {
    "no such file": (None, [], "does not exist"),
    "no target named": (TREES, [], "--target COLUMN; columns: 'height', 'kind', 'y'"),
    "no such column": (TREES, ["--target", "age"], "has no column 'age'"),
    "unknown method": (TREES, ["--target", "y", "--methods", "magic"], "unknown method 'magic'"),
    "unknown task": (
        TREES,
        ["--target", "y", "--task", "ranking"],
        "--task must be classification, ordinal, regression, counts",
    ),
    "regression of text": (TREES, ["--target", "kind", "--task", "regression"], "cannot be the target of a regression"),
    "test fraction": (TREES, ["--target", "y", "--test-fraction", "1.5"], "--test-fraction must lie between 0 and 1"),
    "control characters": (TREES.replace("kind", "\x1b[31m", 1), ["--target", "age"], r"'\x1b[31m'"),
}


@pytest.mark.parametrize(("content", "arguments", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_one_line_on_standard_error(run, tmp_path, content, arguments, message):
    data = tmp_path / "trees.csv"
    if content is not None:
        data.write_text(content)
    done = run("compare", data, *arguments, "--out", tmp_path / "report.html")
    assert done.exit_code == 2
    assert done.stdout == ""
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == ([data] if content is not None else [])  # nothing is left behind


def test_a_posterior_without_its_description_or_with_another_is_refused(run, tmp_path):
    data = write_trees(tmp_path / "trees.csv")
    _, _, folder = compare(run, data, "old", "age", "map")
    beside = folder / "map.posterior.json"
    plain = json.loads(beside.read_text())
    beside.write_text(json.dumps(plain | {"posterior": "0" * 64}))
    with pytest.raises(TableError, match="describes a different posterior"):
        load_described(folder / "map.posterior")
    beside.write_text(json.dumps(plain | {"version": 99}))
    with pytest.raises(TableError, match=rf"json has version 99, but this posteriax reads versions up to {VERSION}"):
        load_described(folder / "map.posterior")
    beside.write_text(json.dumps(plain | {"version": 1}))  # of the version before: the same without dates and pooling
    load_described(folder / "map.posterior")
    for damaged in ("{", "[]", json.dumps(plain | {"network": {}}), json.dumps(plain | {"format": "cake"})):
        beside.write_text(damaged)
        with pytest.raises(TableError, match="damaged, or not the description"):
            load_described(folder / "map.posterior")
    beside.unlink()
    done = run("predict", folder / "map.posterior", data)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "map.posterior.json does not exist" in done.stderr
