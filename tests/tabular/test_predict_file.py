"""``posteriax predict`` on new rows that are not like the training rows. The posterior is hardly trained."""

import csv
import io
import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import posteriax as px
from posteriax.cli import environment
from posteriax.cli.app import make_app
from posteriax.tabular.compare_file import make_problem
from posteriax.tabular.data_files import read_data
from posteriax.tabular.description import VERSION, Description, load_described, path_beside, save_described
from posteriax.tabular.folds import prepare_all_rows
from posteriax.tabular.messages import TableError
from posteriax.tabular.networks import choose_network
from posteriax.tabular.splitting import DataSettings

ROWS = 64


def patients(rows=ROWS, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "patient_id": [f"{7 * i:04d}" for i in range(rows)],
            "age": rng.integers(18, 90, rows),
            "weight": np.where(np.arange(rows) % 8, rng.normal(70, 10, rows).round(1), np.nan),
            "ward": rng.choice(["north", "south"], rows),
            "visits": rng.poisson(rng.uniform(0, 9, rows)),
        }
    )


@pytest.fixture(scope="module")
def posterior(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    patients().to_csv(folder / "patients.csv", index=False)
    prepared = prepare_all_rows(read_data(folder / "patients.csv"), DataSettings(target="visits", task="counts"))
    architecture = choose_network(prepared.train[0].shape[1:], prepared.target.outputs, ROWS)
    fitted = px.fit(make_problem(architecture, prepared.target, 0), prepared.train, px.MAP(), steps=2, key=0)
    save_described(
        fitted, Description("map", architecture, prepared.preparation, prepared.target), folder / "map.posterior"
    )
    return folder / "map.posterior"


@pytest.fixture
def predict(posterior, tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "use_all_cores", lambda: None)  # this process's backend has started
    monkeypatch.setattr(environment, "use_compilation_cache", lambda: None)

    def run(frame, *arguments):
        frame.to_csv(tmp_path / "new.csv", index=False)
        command = ["predict", str(posterior), str(tmp_path / "new.csv"), *arguments]
        done = CliRunner().invoke(make_app(), command)
        return done, list(csv.DictReader(io.StringIO(done.stdout))) if done.exit_code == 0 else None

    return run


@pytest.mark.slow
def test_counts_are_predicted_by_the_posterior_itself_and_scored(predict, posterior):
    frame = patients(8, seed=1)
    done, rows = predict(frame)
    assert done.exit_code == 0, done.output
    loaded, description = load_described(posterior)
    assert loaded.problem.likelihood == description.target.likelihood()
    names = ("age", "weight", "weight is missing", "ward is north", "ward is south")
    assert tuple(description.preparation.get_feature_names_out()) == names
    assert list(rows[0]) == ["patient_id", "mean", "std", "noise std", "model std", "5 %", "95 %"]
    assert [row["patient_id"] for row in rows] == frame.patient_id.tolist()  # leading zeros and all
    means, low, high = (np.array([float(row[name]) for row in rows]) for name in ("mean", "5 %", "95 %"))
    assert (low == np.round(low)).all() and (low <= means).all() and (means <= high).all()
    rmse = np.sqrt(np.mean((means - frame.visits) ** 2))
    assert f"rmse {rmse:.3g}"[:8] in done.stderr
    assert "note" not in done.stderr


def test_columns_may_be_in_another_order_and_others_are_ignored(predict):
    frame = patients(8, seed=2)
    _, rows = predict(frame)
    done, again = predict(frame.assign(colour="red")[["colour", "ward", "visits", "age", "patient_id", "weight"]])
    assert again == rows
    assert "colour" not in done.stderr


def test_columns_are_carried_over_when_asked(predict):
    _, rows = predict(patients(8, seed=3).assign(mean="x", room=["a", "", *"cdefgh"]), "--id", "room", "--id", "mean")
    assert list(rows[0])[:3] == ["room", "mean (from the file)", "patient_id"]
    assert [row["room"] for row in rows] == ["a", "", *"cdefgh"]
    assert rows[0]["mean (from the file)"] == "x"
    _, rows = predict(patients(8, seed=3).drop(columns="patient_id"))
    assert next(iter(rows[0])) == "mean"


NOTES = {
    "an outlier": (
        lambda f: f.assign(age=[1_000_000, *f.age[1:]]),
        "column 'age': 1 of 8 rows lies outside the range of the training rows, 18 to 89; the farthest is 1000000 "
        "(line 2)",
    ),
    "an unknown category": (
        lambda f: f.assign(ward=["east", *f.ward[1:]]),
        "column 'ward' has values that were not seen in training: 'east' (1 row of 8; the column is ignored there)",
    ),
    "a missing column that had missing values": (
        lambda f: f.drop(columns="weight"),
        "new.csv has no column 'weight': treated as missing in all rows",
    ),
    "a missing number": (
        lambda f: f.assign(age=["", *f.age[1:]]),
        "column 'age' has 1 missing value, but had none in training: replaced by the median",
    ),
    "a missing category": (
        lambda f: f.assign(ward=["", *f.ward[1:]]),
        "column 'ward' has 1 missing value, but had none in training: the column is ignored there",
    ),
    "a word for a number": (
        lambda f: f.assign(age=["young", *f.age[1:]]),
        "column 'age' holds numbers, but 'young' (line 2) is not: treated as missing",
    ),
    "infinite": (lambda f: f.assign(weight=[np.inf, *f.weight[1:]]), "column 'weight' has 1 value that is infinite"),
}


@pytest.mark.parametrize(("change", "note"), NOTES.values(), ids=NOTES)
def test_what_is_unlike_the_training_rows_is_noted(predict, change, note):
    done, rows = predict(change(patients(8, seed=4)))
    assert done.exit_code == 0, done.output
    assert len(rows) == 8
    assert all(np.isfinite(float(row["mean"])) for row in rows)
    assert note in done.stderr


def test_values_a_little_outside_the_range_are_no_news(predict):
    done, _ = predict(patients(8, seed=4).assign(age=[92, *patients(8, seed=4).age[1:]]))
    assert "note" not in done.stderr


BAD = {
    "a column that had no missing values": (
        lambda f: f.drop(columns=["age", "ward"]),
        [],
        "lacks the columns 'age', 'ward'",
    ),
    "text throughout": (
        lambda f: f.assign(age="young"),
        [],
        "column 'age' must hold numbers, but has 'young' (line 2)",
    ),
    "no such id": (lambda f: f, ["--id", "room"], "has no column 'room'; its columns are 'patient_id', 'age'"),
    "text as target": (lambda f: f.assign(visits="many"), [], "the target 'visits' must hold numbers, but has 'many'"),
    "no count as target": (
        lambda f: f.assign(visits=-1),
        [],
        "'visits' has the value -1, but counts are whole numbers",
    ),
    "no rows": (lambda f: f[:0], [], "but no rows below it"),
}


@pytest.mark.parametrize(("change", "arguments", "message"), BAD.values(), ids=BAD)
def test_new_rows_that_cannot_be_used_are_one_line(predict, change, arguments, message):
    done, _ = predict(change(patients(8, seed=5)), *arguments)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert message in done.stderr


def test_descriptions_of_earlier_versions_are_read(posterior, tmp_path):
    """Version 2 had the format of dates in a field of numbers, and no ranges, formats of numbers or IDs."""
    plain = json.loads(path_beside(posterior).read_text())
    assert plain["version"] == VERSION
    old = plain["preparation"] | {
        "columns": [
            {name: value for name, value in column.items() if name not in ("low", "high", "form", "parts", "trend")}
            | ({} if "categories" in column else {"dates": None})
            for column in plain["preparation"]["columns"]
        ]
    }
    del old["ids"], old["target"]["form"]
    (tmp_path / "old.posterior").write_bytes(posterior.read_bytes())
    path_beside(tmp_path / "old.posterior").write_text(json.dumps(plain | {"version": 2, "preparation": old}))
    (_, new), (_, found) = load_described(posterior), load_described(tmp_path / "old.posterior")
    table = read_data(posterior.with_name("patients.csv"))
    np.testing.assert_array_equal(found.preparation.transform(table), new.preparation.transform(table))
    assert found.preparation.ids_ == ()
    path_beside(tmp_path / "old.posterior").write_text(json.dumps(plain | {"version": VERSION + 1}))
    with pytest.raises(TableError, match=f"has version {VERSION + 1}, but this posteriax reads versions up to "):
        load_described(tmp_path / "old.posterior")


def test_the_version_is_printed(monkeypatch):
    done = CliRunner().invoke(make_app(), ["--version"])
    assert (done.exit_code, done.output) == (0, f"posteriax {px.__version__}\n")
