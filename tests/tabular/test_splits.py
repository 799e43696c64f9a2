"""Training and test rows: at random, in folds, by group, by time, from a file of their own."""

import numpy as np
import pandas as pd
import pytest

from posteriax.tabular.data_files import read_data
from posteriax.tabular.folds import join_tests, prepare_folds
from posteriax.tabular.messages import TableError
from posteriax.tabular.splitting import DataSettings, make_splits, split_rows
from posteriax.tabular.table import Table

pytestmark = pytest.mark.quick

RNG = np.random.default_rng(0)


def table(rows=100, **columns):
    cells = {"height": RNG.normal(size=rows).round(4), "age": RNG.normal(size=rows).round(4)} | columns
    return Table("trees.csv", pd.DataFrame(cells, index=pd.RangeIndex(2, rows + 2, name="line")))


def folds_of(data, target="age", **settings):
    return prepare_folds(data, DataSettings(target=target, **settings))


def test_every_class_is_split_alike_and_no_row_is_lost():
    classes = np.repeat([0, 1, 2], [100, 20, 2])
    train, test = split_rows(122, classes, 0.25, seed=0)
    assert sorted([*train, *test]) == list(range(122))
    assert np.bincount(classes[test]).tolist() == [25, 5, 1]
    assert not np.array_equal(test, split_rows(122, classes, 0.25, seed=1)[1])


def test_folds_test_every_row_once_and_every_class_alike():
    classes = np.repeat([0, 1, 2], [60, 30, 10])
    splits = make_splits(100, DataSettings(folds=5), classes=classes)
    assert sorted(np.concatenate([test for _, test in splits])) == list(range(100))
    for train, test in splits:
        assert not set(train) & set(test)
        assert np.bincount(classes[test]).tolist() == [12, 6, 2]


def test_a_class_with_fewer_rows_than_folds_is_in_every_training_set(recwarn):
    classes = np.repeat([0, 1], [97, 3])
    for train, _ in make_splits(100, DataSettings(folds=5), classes=classes):
        assert (classes[train] == 1).sum() >= 2
    assert not recwarn.list


@pytest.mark.parametrize("fraction", [0.1, 0.2, 0.5, 0.8])
def test_groups_are_never_torn_apart_and_the_fraction_is_nearly_kept(fraction):
    groups = RNG.integers(0, 30, 300)
    classes = RNG.integers(0, 3, 300)
    settings = DataSettings(group="patient", test_fraction=fraction)
    ((train, test),) = make_splits(300, settings, classes=classes, groups=groups)
    assert not set(groups[train]) & set(groups[test])
    assert len(train) + len(test) == 300
    assert abs(len(test) / 300 - fraction) < 0.05
    for label in range(3):
        assert abs((classes[test] == label).sum() / (classes == label).sum() - fraction) < 0.15


@pytest.mark.parametrize("stratified", [False, True])
def test_folds_of_groups(stratified):
    groups = RNG.integers(0, 30, 300)
    classes = RNG.integers(0, 2, 300) if stratified else None
    splits = make_splits(300, DataSettings(group="patient", folds=4), classes=classes, groups=groups)
    assert len(splits) == 4
    assert sorted(np.concatenate([test for _, test in splits])) == list(range(300))
    for train, test in splits:
        assert not set(groups[train]) & set(groups[test])


def test_the_test_rows_are_the_latest_and_equal_times_stay_together():
    times = RNG.permutation(np.repeat(np.arange(30), 10))
    ((train, test),) = make_splits(300, DataSettings(time="day"), times=times)
    assert times[train].max() < times[test].min()
    assert len(test) == 60
    most_at_once = np.array([0.0] + [1.0] * 99)  # the only cut there is
    ((train, test),) = make_splits(100, DataSettings(time="day"), times=most_at_once)
    assert (len(train), len(test)) == (1, 99)


def test_folds_in_time_train_on_the_past_only():
    times = RNG.permutation(120)
    splits = make_splits(120, DataSettings(time="day", folds=5), times=times)
    assert [len(test) for _, test in splits] == [20] * 5
    for number, (train, test) in enumerate(splits, start=1):
        assert times[train].max() < times[test].min()
        assert len(train) == 20 * number


@pytest.mark.parametrize(
    ("rows", "folds", "expected"), [(12, None, 5), (59, None, 5), (60, None, 1), (12, 1, 1), (90, 3, 3)]
)
def test_few_rows_are_tested_in_folds_unless_told_otherwise(rows, folds, expected):
    prepared = folds_of(table(rows), folds=folds)
    assert len(prepared) == expected
    notes = "\n".join(prepared[0].notes)
    assert ("tested in 5 folds, each row once; --folds 1" in notes) == (folds is None and rows < 60)
    assert ("small differences between scores mean nothing" in notes) == (rows < 60 or (rows, folds) == (60, None))


def test_the_folds_of_a_table_join_to_the_table(tmp_path):
    data = table(40, kind=np.where(np.arange(40) % 4, "oak", "elm"))
    folds = folds_of(data, folds=4)
    joined = join_tests(folds)
    assert sorted(joined.rows) == list(range(40))
    ages = data.frame["age"].to_numpy()
    np.testing.assert_allclose(joined.y, ages[joined.rows], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(joined.cells["age"], ages[joined.rows])
    np.testing.assert_array_equal(joined.cells.index, joined.rows + 2)
    for fold in folds:  # statistics of each fold are those of its own training rows
        np.testing.assert_allclose(fold.train[0][:, 0].mean(), 0, atol=1e-6)


def test_a_column_that_groups_or_orders_rows_is_no_input_unless_kept():
    data = table(100, patient=np.repeat(np.arange(20), 5), year=np.arange(100) // 4 + 2000)
    (grouped,) = folds_of(data, group="patient")
    assert "patient" not in grouped.preparation.inputs_by_column
    assert grouped.preparation.ids_ == ("patient",)
    assert any("says which rows belong together: not an input. To use it: --keep patient" in n for n in grouped.notes)
    (timed,) = folds_of(data, time="year")
    assert "year" not in timed.preparation.inputs_by_column
    assert "tested on the latest rows, those from 2020 on" in timed.notes
    (kept,) = folds_of(data, time="year", keep=["year"])
    assert "year" in kept.preparation.inputs_by_column


def test_of_a_date_that_orders_the_rows_the_season_stays_and_the_trend_goes():
    days = pd.date_range("2022-01-01", periods=200, freq="5D").strftime("%Y-%m-%d")
    (prepared,) = folds_of(table(200, day=days), time="day")
    (column,) = [column for column in prepared.preparation.columns_ if column.name == "day"]
    assert (column.trend, column.parts) == (False, ("day of week", "time of year"))
    assert len(prepared.preparation.get_feature_names_out()) == prepared.test[0].shape[1] == 1 + 4
    assert np.abs(prepared.test[0][:, 1:]).max() <= 1  # nothing is extrapolated
    assert any(f"those from {days[160]} on" in note for note in prepared.notes)


def test_rows_without_group_or_time_are_left_out_with_a_line():
    groups = np.repeat([f"p{i}" for i in range(20)], 5).astype(object)
    groups[:3] = None
    (prepared,) = folds_of(table(100, patient=groups), group="patient")
    assert len(prepared.train_rows) + len(prepared.test_rows) == 97
    assert any("3 rows left out, since column 'patient' is missing" in note for note in prepared.notes)


@pytest.fixture
def files(tmp_path):
    def write(**frames):
        for name, frame in frames.items():
            frame.to_csv(tmp_path / f"{name}.csv", index=False)
        return [tmp_path / f"{name}.csv" for name in frames]

    return write


def trees(rows, seed):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {"height": rng.normal(size=rows), "kind": rng.choice(["oak", "elm"], rows), "age": rng.normal(size=rows)}
    )


def test_a_test_file_may_have_its_columns_in_another_order_and_more_of_them(files):
    other = trees(30, 1)
    train, test = files(train=trees(80, 0), test=other.assign(extra=1)[["age", "extra", "kind", "height"]])
    (prepared,) = folds_of(read_data(train), test=test)
    assert prepared.train[0].shape == (80, 3)
    np.testing.assert_allclose(prepared.y_test, other.age, rtol=1e-4, atol=1e-6)
    column = prepared.preparation.columns_[0]
    np.testing.assert_allclose(prepared.test[0][:, 0], (other.height - column.mean) / column.scale, rtol=1e-4)
    assert prepared.cells["height"].astype(float).tolist() == pytest.approx(other.height.tolist())
    assert not any("training rows too" in note for note in prepared.notes)


def test_differences_of_a_test_file_are_told(files):
    frame = trees(80, 0)
    odd = trees(30, 1).assign(kind="yew", height=0.1)
    odd.loc[0, "height"], odd.loc[1, "age"] = 1e6, np.nan
    train, test, part = files(train=frame, test=odd, part=frame[:40])
    notes = "\n".join(folds_of(read_data(train), test=test)[0].notes)
    assert "not seen in training: 'yew' (30 rows of 30" in notes
    assert "column 'height': 1 of 30 rows lies outside the range" in notes
    assert (
        "1 row left out, since the target 'age' is missing, infinite or beyond 1e+100 there; the first is line 3"
        in notes
    )
    (leaking,) = folds_of(read_data(train), test=part)
    assert any("40 of 40 rows are training rows too" in note for note in leaking.notes)


BAD_TEST_FILES = {
    "no column": (lambda f: f.drop(columns="height"), "age", "lacks the columns 'height'; its columns are"),
    "no target": (lambda f: f.drop(columns="age"), "age", "has no column 'age'"),
    "empty target": (lambda f: f.assign(age=np.nan), "age", "the target 'age' has no values"),
    "text for numbers": (
        lambda f: f.assign(height="tall"),
        "age",
        "'height' must hold numbers, but has 'tall' .line 2.",
    ),
    "unknown class": (lambda f: f.assign(kind="yew"), "kind", "classes that were not in the training data: 'yew'"),
    "text in the target": (lambda f: f.assign(age="old"), "age", "the target 'age' must hold numbers, but has 'old'"),
}


@pytest.mark.parametrize(("change", "target", "message"), BAD_TEST_FILES.values(), ids=BAD_TEST_FILES)
def test_a_test_file_that_does_not_fit_is_one_line(files, change, target, message):
    train, test = files(train=trees(80, 0), test=change(trees(30, 1)))
    with pytest.raises(TableError, match=message) as found:
        folds_of(read_data(train), target, test=test)
    assert "\n" not in str(found.value)
