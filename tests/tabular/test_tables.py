"""Tables and arrays from files: what is inferred from them, and what is said about bad ones."""

import json
import re
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from posteriax.tabular.columns import Category, Number
from posteriax.tabular.data_files import read_npz, read_table
from posteriax.tabular.description import preparation_from_plain, preparation_to_plain, target_from_plain
from posteriax.tabular.folds import prepare_folds
from posteriax.tabular.messages import TableError
from posteriax.tabular.preparation import TablePreparation, compare_with_training
from posteriax.tabular.splitting import DataSettings
from posteriax.tabular.table import Table
from posteriax.tabular.targets import Classes, Quantity, infer_task, make_target

pytestmark = pytest.mark.quick


@pytest.fixture
def write(tmp_path):
    def file(content, name="data.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return file


def prepare(table, target, **settings):
    """In one split: few rows would be tested in folds."""
    return prepare_folds(table, DataSettings(target=target, **{"folds": 1} | settings))[0]


def prepare_images(arrays):
    return prepare_folds(arrays, DataSettings())[0]


def rows(*, header="height,kind,y", row=lambda i: f"{i * i},{'oak' if i % 3 else 'elm'},{i % 2}", count=20):
    return "\n".join([header, *(row(i) for i in range(count))]) + "\n"


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_separator_is_found(write, delimiter):
    table = read_table(write(f'a{delimiter}"b{delimiter} c"\n1{delimiter}"x{delimiter}\ny"\n'))
    assert table.frame.to_dict("list") == {"a": ["1"], f"b{delimiter} c": [f"x{delimiter}\ny"]}


def test_a_byte_order_mark_windows_line_ends_and_blank_lines_do_no_harm(write):
    table = read_table(write(b"\xef\xbb\xbfa,b\r\n1,2\r\n\r\n3,4\r\n\r\n"))
    assert table.numbers("a").tolist() == [1, 3]
    assert [table.location(row) for row in range(2)] == ["line 2", "line 4"]


def test_a_line_break_inside_quotes_counts_as_a_line(write):
    table = read_table(write('a,b\n1,"x\ny"\n\n2,z\n'))
    assert [table.location(row) for row in range(2)] == ["line 3", "line 5"]


def test_what_a_comma_means_depends_on_the_separator_and_on_the_other_values(write):
    assert read_table(write("a;b\n1,5;2\n")).numbers("a").tolist() == [1.5]
    assert read_table(write('a,b\n"1,5",2\n')).numbers("a").tolist() == [1.5]
    assert read_table(write("a;b\n1,234;2\n")).numbers("a").tolist() == [1.234]
    assert read_table(write('a,b\n"1,234",2\n')).numbers("a").tolist() == [1234]
    assert read_table(write('a,b\n"1,234",2\n"1,5",2\n')).numbers("a").tolist() == [1.234, 1.5]
    assert read_table(write("a;b\n1.234;2\n999,5;2\n")).numbers("a").tolist() == [1234, 999.5]


TREES = pd.DataFrame(
    {
        "height": [1.5, None, 3.0],
        "kind": ["oak", "elm", None],
        "planted": pd.to_datetime(["2001-02-03", None, "2004-05-06"]),
        "alive": [True, False, True],
        "rings": [1, 2, 3],
    }
)


def as_excel(path):
    pytest.importorskip("openpyxl")
    TREES.to_excel(path.with_suffix(".xlsx"), index=False)
    return path.with_suffix(".xlsx")


def as_parquet(path):
    pytest.importorskip("pyarrow")
    TREES.to_parquet(path)
    return path


WRITERS = {
    "csv": lambda path: TREES.to_csv(path, index=False) or path,
    "tsv": lambda path: TREES.to_csv(path, index=False, sep="\t") or path,
    "gzip": lambda path: TREES.to_csv(path, index=False, compression="gzip") or path,
    "excel": as_excel,
    "parquet": as_parquet,
}


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
def test_all_formats_of_the_same_table_are_read_alike(tmp_path, writer):
    """Whatever the file is called."""
    table = read_table(writer(tmp_path / "trees"))
    assert table.columns == list(TREES)
    np.testing.assert_array_equal(table.numbers("height"), [1.5, np.nan, 3.0])
    assert table.numbers("rings").tolist() == [1, 2, 3]
    assert table.texts("kind").tolist() == ["oak", "elm", None]
    assert table.texts("planted").tolist() == ["2001-02-03", None, "2004-05-06"]
    assert table.texts("alive").tolist() == ["True", "False", "True"]


@pytest.mark.parametrize(
    ("reader", "content", "package"), [("read_excel", b"PK\x03\x04", "openpyxl"), ("read_parquet", b"PAR1", "pyarrow")]
)
def test_a_format_that_needs_another_package_says_so(write, monkeypatch, reader, content, package):
    def missing(*_, **__):
        raise ImportError(package)

    monkeypatch.setattr(pd, reader, missing)
    with pytest.raises(TableError, match=rf"needs {package}: pip install 'posteriax\[tables\]'"):
        read_table(write(content))


@pytest.mark.parametrize("cell", ["", "NA", "NaN", "?", " na "])
def test_a_missing_number_is_the_training_median_and_is_marked(write, cell):
    text = rows(header="height,y", row=lambda i: f"{cell if 4 < i < 9 else i * i},{i % 2}")
    prepared = prepare(read_table(write(text)), "y")
    (column,) = prepared.preparation.columns_
    x = np.concatenate([prepared.train[0], prepared.test[0]])
    assert column.missing
    assert x.shape == (20, 2)
    marked = x[x[:, 1] == 1]
    assert len(marked) == 4
    np.testing.assert_allclose(marked[:, 0] * column.scale + column.mean, column.median, rtol=1e-5)


def test_statistics_are_those_of_the_training_rows(write):
    prepared = prepare(read_table(write(rows(header="a,y", row=lambda i: f"{i * i},{i * 1.5}", count=50))), "y")
    x, y = prepared.train
    np.testing.assert_allclose([x.mean(), x.std(), y.mean(), y.std()], [0, 1, 0, 1], atol=1e-5)
    assert abs(prepared.test[0].mean()) > 1e-3  # the test rows have other means
    (column,) = prepared.preparation.columns_
    a = column.mean + column.scale * x[:, 0].astype(np.float64)
    assert column.median == pytest.approx(np.median(a), rel=1e-5)


def test_inputs_are_in_the_order_of_the_columns(write):
    """By hand, from the definition: files of the version before rely on it."""
    text = rows(
        header="kind,height,wet,width,y",
        row=lambda i: f"{'oak' if i % 3 else 'elm'},{i * i if i % 4 else ''},{'no' if i % 5 else ''},{i**3},{i % 2}",
    )
    table = read_table(write(text))
    preparation = prepare(table, "y").preparation
    kind, height, wet, width = preparation.columns_
    assert kind == Category("kind", ("elm", "oak"))
    assert wet == Category("wet", ("no", None))
    i = np.arange(20.0)
    heights = np.where(i % 4 == 0, height.median, i * i)
    expected = [
        *(i % 3 == 0, i % 3 != 0),
        *((heights - height.mean) / height.scale, i % 4 == 0),
        *(i % 5 != 0, i % 5 == 0),
        (i**3 - width.mean) / width.scale,
    ]
    np.testing.assert_allclose(preparation.transform(table), np.stack(expected, axis=1), rtol=1e-5, atol=1e-6)


def test_categories_become_one_input_each_and_unseen_ones_none(write):
    prepared = prepare(read_table(write(rows())), "y")
    height, kind = prepared.preparation.columns_
    assert isinstance(height, Number)
    assert kind == Category("kind", ("elm", "oak"))
    new = read_table(write("kind,height\nelm,1\npine,2\n", "new.csv"))
    x = prepared.preparation.transform(new)
    assert x[:, 1:].tolist() == [[1, 0], [0, 0]]
    (note,) = compare_with_training(prepared.preparation, new)
    assert "not seen in training: 'pine' (1 row of 2" in note


def test_of_many_categories_the_rare_ones_share_an_input(write):
    text = rows(header="city,y", row=lambda i: f"city {i % 300 if i < 300 else i % 30},{i % 2}", count=900)
    prepared = prepare(read_table(write(text)), "y")
    (column,) = prepared.preparation.columns_
    assert column.pooled
    assert len(column.categories) == 49
    assert {f"city {i}" for i in range(30)} < set(column.categories)  # the frequent ones
    assert prepared.train[0].shape[1] == 50
    assert (prepared.train[0].sum(axis=1) == 1).all()
    assert any("has 2" in note and "the 49 most frequent" in note for note in prepared.notes)
    new = read_table(write("city,z\nnowhere,1\ncity 1,2\n,3\n", "new.csv"))
    x = prepared.preparation.transform(new)
    assert x[0, -1] == 1
    assert x[1, column.categories.index("city 1")] == 1
    assert not x[2].any()
    unseen, missing = compare_with_training(prepared.preparation, new)
    assert "not seen in training: 'nowhere' (1 row of 3; read as one of the rarer values)" in unseen
    assert "1 missing value, but had none in training" in missing


def test_missing_text_is_a_category_of_its_own(write):
    text = rows(header="kind,y", row=lambda i: f"{('oak', 'elm', '')[i % 3]},{i % 2}", count=30)
    (column,) = prepare(read_table(write(text)), "y").preparation.columns_
    assert column.categories == ("elm", "oak", None)


LEFT_OUT = {
    "free text": (
        rows(row=lambda i: f"{i * i},name {i},{i % 2}"),
        "'kind' is text with 20 different values.*--keep kind",
    ),
    "all missing": (rows(row=lambda i: f"?,{'oak' if i % 3 else 'elm'},{i % 2}"), "'height' has no values"),
    "constant text": (rows(row=lambda i: f"{i * i},oak,{i % 2}"), "'kind' is 'oak' in all training rows"),
    "constant number": (
        rows(row=lambda i: f"7,{'oak' if i % 3 else 'elm'},{i % 2}"),
        "'height' is '7' in all training rows",
    ),
    "row numbers": (
        rows(row=lambda i: f"{i + 1},{'oak' if i % 3 else 'elm'},{i % 2}"),
        "'height' numbers the rows.*--keep height",
    ),
    "an id by name": (
        rows(header="tree_id,kind,y", row=lambda i: f"{7919 * i % 1009},{'oak' if i % 3 else 'elm'},{i % 2}"),
        "'tree_id' numbers the rows or is an ID.*--keep tree_id",
    ),
}


@pytest.mark.parametrize(("content", "note"), LEFT_OUT.values(), ids=LEFT_OUT)
def test_a_column_that_says_nothing_is_left_out_with_a_line(write, content, note):
    prepared = prepare(read_table(write(content)), "y")
    assert len(prepared.preparation.columns_) == 1
    _, used, line = prepared.notes  # first of all that there are few rows
    assert used.startswith("columns used: 1 ")
    assert re.search(note, line)


def test_a_year_is_not_taken_for_a_row_number_and_what_is_can_be_kept(write):
    years = rows(header="year,y", row=lambda i: f"{1990 + i},{i % 2}")
    assert len(prepare(read_table(write(years)), "y").preparation.columns_) == 1
    numbered = read_table(write(rows(header="height,y", row=lambda i: f"{i},{i % 2}")))
    with pytest.raises(TableError, match=r"no usable columns.*numbers the rows.*--keep height"):
        prepare(numbered, "y")
    (column,) = prepare(numbered, "y", keep=["height"]).preparation.columns_
    assert column.name == "height"


def test_a_preparation_of_the_version_before_is_read():
    plain = {
        "columns": [
            {"name": "height", "median": 2.0, "mean": 3.0, "scale": 4.0, "missing": True},
            {"name": "kind", "categories": ["elm", "oak", None]},
        ],
        "target": {"task": "regression", "name": "y", "mean": 0.0, "scale": 1.0},
    }
    table = Table("new.csv", pd.DataFrame({"height": ["7", None], "kind": ["oak", None]}))
    preparation, _ = preparation_from_plain(plain)
    assert preparation.transform(table).tolist() == [[1, 0, 0, 1, 0], [-0.25, 1, 0, 0, 1]]


def test_a_preparation_is_a_step_of_a_pipeline():
    """Of a data frame as people keep it."""
    rng = np.random.default_rng(0)
    height, kind = rng.normal(10, 3, 90), rng.choice(["oak", "elm"], 90)
    frame = pd.DataFrame({"nr": range(90), "height": [f"{value:.2f} m" for value in height], "kind": kind})
    old = np.where(kind == "oak", height > 8, height > 12)
    model = clone(make_pipeline(TablePreparation(keep=["kind"]), LogisticRegression())).fit(frame[:60], old[:60])
    assert list(model[:-1].get_feature_names_out()) == ["height", "kind is elm", "kind is oak"]
    assert model.score(frame[60:], old[60:]) > 0.85
    with pytest.raises(TableError, match="the table lacks the columns 'kind'"):
        model.predict(frame.drop(columns="kind"))
    with pytest.raises(TableError, match=r"no usable columns; column 'nr' numbers the rows"):
        TablePreparation().fit(frame[["nr"]])


POISSON = np.random.default_rng(0).poisson(np.linspace(1, 9, 400))


@pytest.mark.parametrize(
    ("values", "task"),
    [
        (POISSON * 1.0, "counts"),
        (3 * POISSON + np.arange(400) % 3 + 100.0, "regression"),  # not from 0 on
        (np.arange(400) % 30 * 1.0, "regression"),  # from 0 on, but all alike frequent
        (POISSON % 7 * 1.0, "classification"),  # few
        (["yes", "no"] * 10, "classification"),
        (np.arange(30) % 10, "classification"),
        (np.arange(30) % 2 * 1.0, "classification"),
        (np.arange(100), "regression"),
        (np.linspace(0, 1, 30), "regression"),
        (np.array([0.5, 1.5] * 10), "regression"),
    ],
)
def test_the_task_follows_from_the_target(values, task):
    assert infer_task("y", values, None) == task


def test_classes_of_numbers_are_in_their_order_and_have_plain_names(write):
    text = rows(header="a,y", row=lambda i: f"{i * i},{(10, 9, 2)[i % 3]}.0", count=30)
    prepared = prepare(read_table(write(text)), "y")
    assert prepared.target == Classes("y", ("2", "9", "10"))
    assert set(prepared.train[1]) == {0, 1, 2}


@pytest.mark.parametrize(("target", "kind"), [("y", Quantity), ("kind", Classes)])
def test_a_preparation_survives_json(write, target, kind):
    text = rows(row=lambda i: f"{i if i % 4 else ''},{('oak', 'elm')[i % 2]},{i * 0.5}")
    prepared = prepare(read_table(write(text)), target)
    preparation = prepared.preparation
    assert isinstance(prepared.target, kind)
    again, again_target = preparation_from_plain(
        json.loads(json.dumps(preparation_to_plain(preparation, prepared.target)))
    )
    assert (again.columns_, again.ids_, again_target) == (preparation.columns_, preparation.ids_, prepared.target)


BAD = {
    "missing target": (rows().replace("y\n", "z\n", 1), "has no column 'y'.*'height', 'kind', 'z'"),
    "no header": (
        rows(header="1,elm,0").replace("elm", "7").replace("oak", "8"),
        "first line must hold the column names",
    ),
    "nothing of use": (
        rows(row=lambda i: f"?,name {i},{i % 2}"),
        "no usable columns.*'height' has no values.*'kind' is text",
    ),
    "one class": (rows(row=lambda i: f"{i},oak,yes"), "only one class, 'yes'"),
    "a lonely class": (rows(row=lambda i: f"{i},oak,{'abc'[min(i, 2)]}"), "'a', 'b' occur in one row only"),
    "constant number": (rows(row=lambda i: f"{i},oak,1.5"), "only one value, 1.5"),
    "ids for classes": (rows(row=lambda i: f"{i},oak,id{i}"), "20 different values in 20 rows"),
    "two names alike": (rows(header="y,kind,y"), "the column name 'y' occurs more than once"),
    "no rows": ("height,kind,y\n", "but no rows below it"),
    "mixed target": (
        rows(row=lambda i: f"{i},oak,{'none of it' if i == 9 else i}"),
        "'y' holds numbers, but also 'none of it' .line 11.",
    ),
    "no target at all": (rows(row=lambda i: f"{i},oak,"), "the target 'y' has no values"),
    "ragged": (
        rows(row=lambda i: f"{i},oak" if i == 2 else f"{i},oak,1"),
        "line 4 has 2 fields, but the first line has 3",
    ),
    "a title": (
        "Trees of the city\n\n" + rows(),
        "line 3 has 3 fields, but the first line has 1; is the first line a title",
    ),
    "ragged, too long": (
        rows(row=lambda i: f"{i},oak,1,2" if i == 2 else f"{i},oak,1"),
        "line 4 has 4 fields, but the first line has 3",
    ),
    "unclosed quote": (rows().replace("elm", '"elm', 1), "is not CSV"),
    "too few rows": (rows(count=4), "4 rows are too few"),
    "nothing but the target": (rows(header="y", row=lambda i: str(i % 2)), "no usable columns"),
    "empty": ("", "is empty"),
    "blank": ("\n\n", "is empty"),
    "binary": (b"a,y\n\x00\x01,2\n", "binary"),
    "spreadsheet": (b"PK\x03\x04....", "spreadsheet"),
    "old spreadsheet": (b"\xd0\xcf\x11\xe0....", "old .xls format"),
    "broken gzip": (b"\x1f\x8b....", "damaged gzip"),
    "broken parquet": (b"PAR1....", "Parquet"),
}


@pytest.mark.parametrize(("content", "message"), BAD.values(), ids=BAD)
def test_a_bad_table_is_told_what_is_wrong(write, content, message):
    with pytest.raises(TableError, match=message):
        prepare(read_table(write(content)), "y")


def test_columns_can_be_left_out_or_made_categories(write):
    text = rows(row=lambda i: f"{i % 4},name {i},{i % 2}")
    prepared = prepare(read_table(write(text)), "y", drop=["kind"], categories=["height"])
    assert prepared.preparation.columns_ == (Category("height", ("0", "1", "2", "3")),)
    with pytest.raises(TableError, match="no column 'colour'"):
        prepare(read_table(write(text)), "y", drop=["colour"])


def test_arrays_of_a_table_are_prepared_with_their_own_test_set(tmp_path):
    rng = np.random.default_rng(0)
    x, x_test = rng.normal(3, 2, (30, 2)), rng.normal(3, 2, (7, 2))
    x[4, 1] = np.nan
    np.savez(tmp_path / "a.npz", x_train=x, y_train=x[:, 0], x_test=x_test, y_test=x_test[:, 0])
    prepared = prepare(read_npz(tmp_path / "a.npz"), None)
    assert (prepared.train[0].shape, prepared.test[0].shape) == ((30, 3), (7, 3))
    target = prepared.target
    np.testing.assert_allclose(target.mean + target.scale * prepared.test[1], x_test[:, 0], rtol=1e-5)


def test_images_are_fractions_and_survive_json(tmp_path):
    x = np.random.default_rng(0).integers(0, 256, (20, 5, 4, 3), np.uint8)
    np.savez(tmp_path / "a.npz", x=x, y=np.array(["cat", "dog"] * 10))
    prepared = prepare_images(read_npz(tmp_path / "a.npz"))
    preparation, target = prepared.preparation, prepared.target
    assert target == Classes("y", ("cat", "dog"))
    np.testing.assert_allclose(preparation.transform(x), x / 255, rtol=1e-6)
    np.testing.assert_allclose(
        [preparation.mean_, preparation.scale_], [prepared.train[0].mean(), prepared.train[0].std()]
    )
    again, same = preparation_from_plain(json.loads(json.dumps(preparation_to_plain(preparation, target))))
    assert same == target
    assert vars(again) == vars(preparation)


Y = np.arange(12) % 2
BAD_ARRAYS = {
    "axes": ({"x": np.zeros(12), "y": Y}, "x has 1 axes"),
    "five axes": ({"x": np.zeros((12, 2, 2, 2, 2)), "y": Y}, "x has 5 axes"),
    "nan in images": ({"x": np.full((12, 4, 4), np.nan), "y": Y}, "192 values that are not finite"),
    "lengths": ({"x": np.zeros((12, 4, 4)), "y": Y[:5]}, "x has 12 examples, but y has 5"),
    "objects": ({"x": np.array([{}] * 12), "y": Y}, "Python objects"),
    "text": ({"x": np.array([["a", "b"]] * 12), "y": Y}, "x must be an array of numbers"),
    "names": ({"images": np.zeros((12, 4, 4)), "labels": Y}, "has the arrays 'images', 'labels'"),
    "no targets": ({"x": np.zeros((12, 4, 4))}, "no targets"),
    "half a test set": ({"x_train": np.zeros((12, 2)), "y_train": Y, "x_test": np.zeros((3, 2))}, "x_test and y_test"),
    "other test shape": (
        {"x_train": np.zeros((12, 2, 2)), "y_train": Y, "x_test": np.zeros((12, 3, 3)), "y_test": Y},
        "x_test has examples of shape",
    ),
    "channels first": ({"x": np.zeros((12, 3, 32, 32)), "y": Y}, "32 channels"),
    "empty": ({"x": np.zeros((0, 4, 4)), "y": Y[:0]}, "x is empty"),
    "one class": ({"x": np.zeros((12, 4, 4)), "y": np.zeros(12, int)}, "only one class, '0'"),
}


@pytest.mark.parametrize(("arrays", "message"), BAD_ARRAYS.values(), ids=BAD_ARRAYS)
def test_bad_arrays_are_told_what_is_wrong(tmp_path, arrays, message):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(TableError, match=message):
        prepare_images(read_npz(tmp_path / "a.npz"))


@pytest.mark.parametrize("content", [b"", b"no zip at all", b"PK\x03\x04 broken"], ids=["empty", "text", "broken"])
def test_a_file_that_is_no_npz_is_told_so(write, content):
    with pytest.raises(TableError, match=r"empty|not an NPZ file|Python objects"):
        read_npz(write(content, "a.npz"))


@pytest.mark.parametrize(
    ("values", "task", "message"),
    [
        (["low", "high", "middle"], "ordinal", "is text, whose order is unknown"),
        (np.array([1.0, 2.0, 1.0]), "ordinal", "has 2 grades: an ordinal target needs three"),
        (np.array([0.5, 0.2, 1.0]), "fractions", "has the value 1, but fractions lie strictly between 0 and 1"),
        (np.array([0.5, 2.0, 1.0]), "zero-inflated-counts", "has the value 0.5, but counts are whole numbers"),
    ],
)
def test_targets_that_are_not_of_their_kind_are_refused_in_a_line(values, task, message):
    with pytest.raises(TableError, match=message):
        make_target("y", values, task, np.arange(3))


@pytest.mark.parametrize("task", ["ordinal", "overdispersed-counts", "zero-inflated-counts", "fractions"])
def test_kinds_of_targets_are_described_in_a_file_and_read_back(task):
    values = np.array([0.1, 0.5, 0.7]) if task == "fractions" else np.array([1.0, 2.0, 4.0])
    target = make_target("y", values, task, np.arange(3))
    again = target_from_plain(json.loads(json.dumps(asdict(target))))
    assert again == target and again.likelihood() == target.likelihood() and again.outputs == target.outputs
