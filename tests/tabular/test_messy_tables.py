"""Tables as people keep them: each is read as a person would read it, with a line where that was a decision."""

import json
from datetime import date, datetime, timedelta

import numpy as np
import pandas as pd
import pytest

from posteriax.likelihoods import Categorical, Normal, Poisson
from posteriax.tabular.columns import Date, Number
from posteriax.tabular.data_files import Arrays, read_data
from posteriax.tabular.description import preparation_from_plain, preparation_to_plain
from posteriax.tabular.folds import prepare_all_rows, prepare_folds
from posteriax.tabular.messages import TableError
from posteriax.tabular.number_formats import NumberFormat
from posteriax.tabular.splitting import DataSettings
from posteriax.tabular.table import Table
from posteriax.tabular.targets import Classes, Counts, Quantity

pytestmark = pytest.mark.quick

ROWS = 80
HEIGHT = np.random.default_rng(0).normal(10, 3, ROWS).round(3)
KIND = np.where(np.arange(ROWS) % 3, "oak", "elm")
AGE = (4 * HEIGHT + np.random.default_rng(1).normal(0, 2, ROWS)).round(3)


def trees(**columns):
    """A small table, and what makes it messy."""
    return pd.DataFrame({"height": HEIGHT, "kind": KIND, "age": AGE} | columns)


@pytest.fixture
def read(tmp_path):
    def from_csv(frame, encoding="utf-8", **options):
        path = tmp_path / "trees.csv"
        path.write_bytes(frame.to_csv(index=False, **options).encode(encoding))
        return read_data(path)

    return from_csv


def prepare(table, target="age", **settings):
    """One fold, checked for what holds in all of them."""
    prepared, *_ = prepare_folds(table, DataSettings(target=target, **settings))
    assert np.isfinite(prepared.train[0]).all()
    assert np.isfinite(prepared.train[1]).all()
    assert len(prepared.preparation.get_feature_names_out()) == prepared.train[0].shape[1]
    assert list(prepared.preparation.inputs_by_column) == [column.name for column in prepared.preparation.columns_]
    return prepared


def assert_survives_json(prepared):
    preparation, plain = prepared.preparation, preparation_to_plain(prepared.preparation, prepared.target)
    again, target = preparation_from_plain(json.loads(json.dumps(plain)))
    assert (again.columns_, again.ids_, target) == (preparation.columns_, preparation.ids_, prepared.target)


def column_of(prepared, name):
    (column,) = [column for column in prepared.preparation.columns_ if column.name == name]
    return column


def said(prepared, text):
    (note,) = [note for note in prepared.notes if text in note]
    return note


MONEY = np.random.default_rng(2).lognormal(8, 1.5, ROWS).round(2)
WRITTEN = {
    "dollars": (lambda v: f"${v:,.2f}", "amounts of money: '$"),
    "dollars after": (lambda v: f"{v:,.2f} USD", "amounts of money"),
    "euros, as in Germany": (lambda v: f"{v:_.2f} €".replace(".", ",").replace("_", "."), "amounts of money"),
    "kronor, as in Sweden": (lambda v: f"{v:_.2f} kr".replace(".", ",").replace("_", "\u00a0"), "amounts of money"),
    "francs, as in Switzerland": (lambda v: f"CHF {v:_.2f}".replace("_", "\u2019"), "amounts of money"),
    "spaces and commas": (lambda v: f"{v:_.2f}".replace(".", ",").replace("_", " "), "numbers: '"),
    "thousands": (lambda v: f"{v:,.2f}", "numbers: '"),
    "percentages": (lambda v: f"{v}%", "percentages: '"),
    "percentages, spaced": (lambda v: f"{v} %", "percentages: '"),
    "a unit": (lambda v: f"{v} kg", "numbers with the unit 'kg': '"),
    "a compound unit": (lambda v: f"{v}km/h", "numbers with the unit 'km/h': '"),
    "degrees": (lambda v: f"{v} °C", "numbers with the unit '°C': '"),
    "accounting": (lambda v: f"({v:,.2f})", "numbers: '"),
    "a long minus": (lambda v: f"\u2212{v:.2f}", "numbers: '\u2212"),
}


@pytest.mark.parametrize(("form", "note"), WRITTEN.values(), ids=WRITTEN)
def test_numbers_are_read_however_they_are_written(read, form, note):
    texts = [form(v) for v in MONEY]
    sign = -1 if texts[0][0] in "(\u2212" else 1
    table = read(trees(price=[*texts[:-1], ""]))
    prepared = prepare(table)
    said(prepared, f"column 'price' holds {note}")
    column = column_of(prepared, "price")
    np.testing.assert_allclose(table.numbers("price", column.form)[:-1], sign * MONEY[:-1])
    place = prepared.preparation.inputs_by_column["price"].start
    values = column.mean + column.scale * np.float64(prepared.test[0][:, place])
    np.testing.assert_allclose(values, np.append(sign * MONEY[:-1], column.median)[prepared.test_rows], rtol=1e-4)
    assert_survives_json(prepared)


def test_amounts_in_two_currencies_are_not_mixed_up(read):
    prepared = prepare(read(trees(price=[f"{'$€'[i % 2]}{v:.2f}" for i, v in enumerate(MONEY)])))
    assert "'$" in said(prepared, "mixes numbers and text") and "'€" in said(prepared, "mixes numbers and text")
    assert "price" not in prepared.preparation.inputs_by_column


def test_a_bare_number_is_no_percentage():
    for symbol in ("%", "kg"):
        cells = pd.Series([f"36{symbol}", "0.36", "0"])
        np.testing.assert_array_equal(NumberFormat(symbol=symbol).read(cells), [36.0, np.nan, 0.0])


@pytest.mark.parametrize(
    "codes", [["12A", "13B"], ["10k", "2M"], ["1st", "2nd"], ["A4", "A6"], ["3-5", "6-9"], ["1/2", "3/4"]]
)
def test_codes_that_hold_digits_are_text(read, codes):
    column = column_of(prepare(read(trees(code=[codes[i % 2] for i in range(ROWS)]))), "code")
    assert column.categories == tuple(sorted(codes))


FIRST = datetime(2021, 3, 1)
DATES = {
    "iso": ("%Y-%m-%d", "holds dates: used"),
    "iso with time": ("%Y-%m-%dT%H:%M:%S", "holds dates: used"),
    "with a space": ("%Y-%m-%d %H:%M", "holds dates: used"),
    "compact": ("%Y%m%d", "holds dates: used"),
    "compact with time": ("%Y%m%dT%H%M%S", "holds dates: used"),
    "slashes, year first": ("%Y/%m/%d", "holds dates: used"),
    "german": ("%d.%m.%Y", "holds dates: used"),
    "german with time": ("%d.%m.%Y %H:%M", "holds dates: used"),
    "american": ("%m/%d/%Y", "holds dates (month/day/year): used"),
    "american with time": ("%m/%d/%Y %I:%M %p", "holds dates (month/day/year): used"),
    "american, short": ("%m/%d/%y", "holds dates (month/day/year): used"),
    "british": ("%d/%m/%Y", "holds dates (day/month/year): used"),
    "british with time": ("%d/%m/%Y %H:%M:%S", "holds dates (day/month/year): used"),
    "names": ("%d %b %Y", "holds dates: used"),
    "names, american": ("%B %d, %Y", "holds dates: used"),
    "oracle": ("%d-%b-%y", "holds dates: used"),
}


@pytest.mark.parametrize(("form", "note"), DATES.values(), ids=DATES)
def test_dates_become_days_and_their_place_in_week_and_year(read, form, note):
    times = [FIRST + timedelta(hours=131 * i) for i in range(ROWS)]
    texts = [time.strftime(form) if i % 9 else "" for i, time in enumerate(times)]
    prepared = prepare(read(trees(day=texts)))
    timed = "%M" in form
    parts = "day of week, time of year and time of day" if timed else "day of week and time of year"
    said(prepared, f"column 'day' {note} as days since 1970, {parts}")
    column = column_of(prepared, "day")
    assert column.missing
    inputs = prepared.test[0][:, prepared.preparation.inputs_by_column["day"]].astype(np.float64)
    for row, found in zip(prepared.test_rows, inputs, strict=True):
        if row % 9 == 0:
            np.testing.assert_allclose(found[1:], [1.0] + [0.0] * (len(found) - 2))
            continue
        read_time = times[row] if timed else datetime.combine(times[row].date(), datetime.min.time())
        days = (read_time - datetime(1970, 1, 1)) / timedelta(days=1)
        assert column.mean + column.scale * found[0] == pytest.approx(days, abs=1e-3 if "%S" in form else 1 / 1440)
        weekday = 2 * np.pi * ((times[row].weekday() + 4) % 7) / 7  # 1970 began on a Thursday, weekday 3
        np.testing.assert_allclose(found[2:4], [np.sin(weekday), np.cos(weekday)], atol=1e-5)
        season = 2 * np.pi * days / 365.2425
        np.testing.assert_allclose(found[4:6], [np.sin(season), np.cos(season)], atol=1e-4)
        if timed:
            np.testing.assert_allclose(found[6:], [np.sin(2 * np.pi * days), np.cos(2 * np.pi * days)], atol=1e-4)


def test_a_day_above_12_anywhere_settles_the_order_of_day_and_month(read):
    days = [f"{1 + i % 12:02d}/{1 + i % 11:02d}/2024" for i in range(ROWS)]
    assert column_of(prepare(read(trees(day=days))), "day").form == "%m/%d/%Y"
    said(prepare(read(trees(day=days))), "could as well be day/month/year, since no value is above 12")
    assert column_of(prepare(read(trees(day=days), sep=";")), "day").form == "%d/%m/%Y"  # as where commas are decimal
    settled = prepare(read(trees(day=[*days[:-1], "13/01/2024"])))
    assert column_of(settled, "day").form == "%d/%m/%Y"
    assert not any("could as well" in note for note in settled.notes)


def test_dates_that_repeat_are_dates_not_categories(read):
    days = [date(2024, 1, 1 + i % 25).strftime("%d/%m/%Y") for i in range(ROWS)]
    assert isinstance(column_of(prepare(read(trees(day=days))), "day"), Date)


def test_parts_of_a_date_are_used_where_the_rows_cover_several(read):
    hours = [(FIRST + timedelta(minutes=47 * i)).strftime("%H:%M") for i in range(ROWS)]
    clock = column_of(prepare(read(trees(t=hours))), "t")
    assert (clock.parts, clock.trend) == (("time of day",), False)
    few_days = [(FIRST + timedelta(days=i % 5)).isoformat() for i in range(ROWS)]
    assert column_of(prepare(read(trees(day=few_days))), "day").parts == ()


def test_numbers_that_happen_to_have_eight_digits_are_numbers(read):
    numbers = 20240100 + np.arange(ROWS)  # 20240132 is no date
    assert isinstance(column_of(prepare(read(trees(n=np.random.default_rng(0).permutation(numbers)))), "n"), Number)


ODD = {
    "a word among numbers": (
        trees(height=[*map(str, HEIGHT[:-1]), "tall"]),
        "column 'height' holds numbers, but 'tall' (line 81) is not: treated as missing. To use all its values as "
        "categories: --categories height",
    ),
    "words among numbers": (
        trees(height=[*map(str, HEIGHT[:-3]), "tall", "short", "low"]),
        "holds numbers, but 'tall' (line 79) and 2 other values are not: treated as missing",
    ),
    "infinite": (
        trees(height=[np.inf, -np.inf, *HEIGHT[2:]]),
        "has 2 values that are infinite or beyond 1e+100, the first at line 2",
    ),
    "an impossible date": (
        trees(day=["2024-02-30", *((FIRST + timedelta(days=9 * i)).date().isoformat() for i in range(1, ROWS))]),
        "holds dates like 2024-01-31, but '2024-02-30' (line 2) is not: treated as missing",
    ),
    "numbers and text": (
        trees(size=[("S", "M", "38", "40")[i % 4] for i in range(ROWS)]),
        "column 'size' mixes numbers and text, such as '38' (line 4) and 'S' (line 2): treated as text",
    ),
    "missing targets": (
        trees(age=[*AGE[:-8], *[np.nan] * 8]),
        "8 rows left out, since the target 'age' is missing, infinite or beyond 1e+100 there; the first is line 74",
    ),
    "an infinite target": (trees(age=[np.inf, *AGE[1:]]), "1 row left out"),
    "many categories": (
        pd.DataFrame({"city": [f"city {i % 1000}" for i in range(3000)], "age": np.arange(3000) ** 0.5}),
        "different values: the 49 most frequent get an input each, the others share one",
    ),
}


@pytest.mark.parametrize(("frame", "note"), ODD.values(), ids=ODD)
def test_odd_cells_are_treated_sensibly_with_a_line(read, frame, note):
    said(prepare(read(frame)), note)


def test_values_that_cannot_be_used_are_marked_as_missing(read):
    table = read(trees(height=["tall", np.inf, *HEIGHT[2:]]))
    prepared = prepare(table)
    x = prepared.preparation.transform(table)
    column, place = column_of(prepared, "height"), prepared.preparation.inputs_by_column["height"]
    np.testing.assert_allclose(x[:2, place], [[(column.median - column.mean) / column.scale, 1.0]] * 2, rtol=1e-5)
    assert not x[2:, place.start + 1].any()


def test_rows_without_a_target_are_no_rows_of_the_file_that_are_used(read):
    table = read(trees(age=[np.nan, *AGE[1:50], np.nan, *AGE[51:]]))
    prepared = prepare(table)
    rows = np.concatenate([prepared.train_rows, prepared.test_rows])
    assert sorted(rows) == [i for i in range(ROWS) if i not in (0, 50)]
    np.testing.assert_allclose(prepared.y_test, AGE[prepared.test_rows], rtol=1e-5)
    assert prepared.cells.height.astype(float).tolist() == HEIGHT[prepared.test_rows].tolist()
    assert prepared.location(3) == f"line {prepared.test_rows[3] + 2}"
    assert prepared.cells.index[3] == prepared.test_rows[3] + 2


ENCODINGS = {
    "latin-1": ("latin-1", "is not UTF-8 text: read as Windows-1252 ('Föhre' in line 2)"),
    "windows": ("cp1252", "is not UTF-8 text: read as Windows-1252 ('Föhre' in line 2)"),
    "utf-16": ("utf-16", "is UTF-16 text"),
}


@pytest.mark.parametrize(("encoding", "note"), ENCODINGS.values(), ids=ENCODINGS)
def test_other_encodings_are_read(read, encoding, note):
    kinds = np.where(np.arange(ROWS) % 2, "Eiche", "Föhre")
    prepared = prepare(read(trees(kind=kinds), encoding))
    said(prepared, note)
    assert column_of(prepared, "kind").categories == ("Eiche", "Föhre")


def test_a_damaged_character_does_not_spoil_the_others(tmp_path):
    text = trees(kind=np.where(np.arange(ROWS) % 2, "Eiche", "Föhre")).to_csv(index=False).encode()
    (tmp_path / "trees.csv").write_bytes(text.replace("ö".encode(), b"\xc3", 1))
    prepared = prepare(read_data(tmp_path / "trees.csv"))
    said(prepared, "is UTF-8 text with 1 damaged character, the first in line 2")
    assert "Föhre" in column_of(prepared, "kind").categories


def test_columns_that_name_rows_are_left_out_and_remembered(read):
    rng = np.random.default_rng(0)
    frame = trees(
        nr=range(1, ROWS + 1), shuffled=rng.permutation(ROWS), tree_id=rng.permutation(9 * ROWS)[:ROWS] + 5,
        who=[f"tree {i}" for i in range(ROWS)], essay=[f"{i} " + 20 * "word " for i in range(ROWS)],
    )  # fmt: skip
    frame.loc[7, "age"] = np.nan  # a gap in the row numbers
    prepared = prepare(read(frame))
    assert list(prepared.preparation.inputs_by_column) == ["height", "kind"]
    assert prepared.preparation.ids_ == ("nr", "shuffled", "tree_id", "who")  # an essay is no name


TARGETS = {
    "classes": ("kind", {}, Classes("kind", ("elm", "oak")), Categorical()),
    "a quantity": ("age", {}, Quantity, Normal(scale="learned")),
    "told to be counts": ("visits", {"task": "counts"}, Counts, Poisson(base_rate=2.0)),
    "told to be a quantity": ("visits", {"task": "regression"}, Quantity, Normal(scale="learned")),
    "money": ("price", {}, Quantity, Normal(scale="learned")),
}


@pytest.mark.parametrize(("target", "settings", "kind", "likelihood"), TARGETS.values(), ids=TARGETS)
def test_a_target_brings_its_likelihood(read, target, settings, kind, likelihood):
    frame = trees(visits=np.arange(ROWS) % 5, price=[f"${v:,.2f}" for v in MONEY])
    prepared = prepare(read(frame), target, **settings)
    found = prepared.target.likelihood()
    assert type(found) is type(likelihood)
    assert isinstance(prepared.target, kind) if isinstance(kind, type) else prepared.target == kind
    truth = {"visits": frame.visits, "age": AGE, "price": MONEY}.get(target)
    if truth is None:
        truth = (KIND == "oak").astype(int)
    np.testing.assert_allclose(prepared.y_test, np.asarray(truth)[prepared.test_rows], rtol=1e-4, atol=1e-6)
    assert_survives_json(prepared)


def test_a_number_among_classes_is_one_of_them(read):
    prepared = prepare(read(trees(grade=[("A", "B", "7")[i % 3] for i in range(ROWS)])), "grade")
    assert prepared.target.labels == ("7", "A", "B")
    said(prepared, "target 'grade' holds text and numbers, such as '7' (line 4): all are classes")


def test_counts_beyond_32_bits_are_kept():
    assert Counts("atoms", mean=4e9).encode([3e9, 5e9]).tolist() == [3_000_000_000, 5_000_000_000]


def test_counts_are_found_or_offered(read):
    rng = np.random.default_rng(0)
    rates = np.exp(HEIGHT / 5)
    many = prepare(read(trees(visits=np.maximum(rng.poisson(rates), 0) * (np.arange(ROWS) > 3))), "visits")
    assert isinstance(many.target, Counts)
    assert many.target.likelihood() == Poisson(base_rate=many.target.mean)
    assert many.target.mean == pytest.approx(many.train[1].mean())
    said(many, "looks like counts (whole numbers from 0 to")
    visits = np.repeat([0, 1, 2, 3, 4], [25, 27, 17, 8, 3])
    few = prepare(read(trees(visits=visits)), "visits")
    assert isinstance(few.target, Classes)
    said(few, "if they count something, say --task counts")
    once = prepare(read(trees(visits=[*visits[:-1], 9])), "visits")  # a single 9 cannot be a class
    assert isinstance(once.target, Counts)
    large = prepare(read(trees(rides=rng.poisson(rng.gamma(1, 100, ROWS)))), "rides")
    assert isinstance(large.target, Quantity)
    said(large, "if they count something, say --task counts")


BAD = {
    "fractions as counts": ("age", {"task": "counts"}, "has the value .*, but counts are whole numbers from 0 on"),
    "text as counts": ("kind", {"task": "counts"}, "is text, so it cannot be the target of counts"),
    "unknown task": ("age", {"task": "ranking"}, "or times, got 'ranking'"),
    "group is target": ("age", {"group": "age"}, "is the target and cannot group or order the rows"),
    "group and time": ("age", {"group": "kind", "time": "height"}, "--group and --time cannot be combined"),
    "no folds": ("age", {"folds": 0}, "--folds must be a whole number from 1 on, got 0"),
    "too many folds": ("age", {"folds": 81}, "--folds 81 is more than the 80 rows"),
    "folds of a test file": ("age", {"folds": 3, "test": "test.csv"}, "--test FILE gives the test rows"),
    "no such group": ("age", {"group": "patient"}, "has no column 'patient'; its columns are"),
    "more folds than groups": (
        "age",
        {"group": "kind", "folds": 3},
        "needs at least as many groups.*'kind' has 2 groups",
    ),
    "time of text": ("age", {"time": "kind"}, "--time kind: the column must hold dates or numbers, but has 'elm'"),
    "few times": ("age", {"time": "era", "folds": 3}, "--time era: 2 different values are too few for --folds 3"),
    "one time": ("age", {"time": "planet"}, "--time planet: all rows have the same value"),
    "one group": ("age", {"group": "planet"}, "all rows are in one group"),
    "one class to learn": ("old", {"time": "era"}, "all training rows are of one class, 'no'"),
    "a class that comes late": ("late", {"time": "height"}, "leaves no training rows of the class '2': use another"),
    "a grade as text": ("rotten", {"task": "ordinal"}, "holds numbers, but also 'rotten' \\(line 5\\).*remove these$"),
    "an endless count": ("endless", {"task": "counts"}, "the value 1e\\+31, which is too large to count to the last"),
    "negative counts": ("debt", {"task": "overdispersed-counts"}, "has the value -1, but counts are whole numbers"),
    "one count": ("planet", {"task": "zero-inflated-counts"}, "has only one value, 3: there is nothing to learn"),
    "a whole as a fraction": ("whole", {"task": "fractions"}, "has the value 1, but fractions.*or move it inside"),
    "nearly a whole": ("nearly", {"task": "fractions"}, "0.9999999999, which is 1 in float32, but fractions"),
    "percentages": (
        "grade",
        {"task": "fractions"},
        "fractions lie strictly between 0 and 1: divide percentages by 100",
    ),
    "an endless time": ("endless", {"event": "old"}, "1e\\+31: choose a unit that suits the times"),
    "events unknown": ("age", {"event": "blank"}, "the column 'blank' has no values"),
    "a target that groups": ("age,height", {"group": "height"}, "column 'height' is a target and cannot be anything"),
}


@pytest.mark.parametrize(("target", "settings", "message"), BAD.values(), ids=BAD)
def test_what_cannot_be_done_is_one_line(read, target, settings, message):
    era = (np.arange(ROWS) >= 60) * 1
    wrong = {"era": era, "planet": 3, "old": np.where(era, "yes", "no"), "grade": np.arange(ROWS) % 4 + 2, "blank": ""}
    wrong["late"] = np.where(np.sort(HEIGHT)[-4] <= HEIGHT, 2, era)
    wrong |= {name: wrong["grade"].astype(object) for name in ("rotten", "endless", "debt")}
    wrong["rotten"][3], wrong["endless"][3], wrong["debt"][3] = "rotten", "1e31", -1
    wrong |= {name: np.where(era, value, 0.5) for name, value in {"whole": 1.0, "nearly": 1 - 1e-10}.items()}
    with pytest.raises(TableError, match=message) as found:
        prepare_folds(read(trees(**wrong)), DataSettings(target=target, **settings))
    assert "\n" not in str(found.value)


BAD_TESTS = {
    "text": (
        "age,height",
        {},
        {"height": "tall"},
        "the target 'height' must hold numbers, but has 'tall' \\(line 2\\)",
    ),
    "no target": ("age,height", {}, {"height": ""}, "the target 'age, height' has no values"),
    "a new grade": ("grade", {"task": "ordinal"}, {"grade": 9}, "classes that were not in the training data: '9'"),
    "a fraction": ("grade", {"task": "counts"}, {"grade": 0.5}, "has the value 0.5, but counts are whole numbers"),
    "an event unknown": ("age", {"event": "old"}, {"old": ""}, "the target 'age', or 'old', has no values"),
    "a time of 0": ("age", {"event": "old"}, {"age": 0}, "times must be positive, but 'age' has '0' \\(line 2\\)"),
}


@pytest.mark.parametrize(("target", "settings", "wrong", "message"), BAD_TESTS.values(), ids=BAD_TESTS)
def test_wrong_test_rows_are_one_line(read, tmp_path, target, settings, wrong, message):
    frame = trees(grade=np.arange(ROWS) % 4, old=np.where(np.arange(ROWS) % 3, "yes", "no"))
    table, test = read(frame), tmp_path / "test.csv"
    frame.assign(**wrong).to_csv(test, index=False)
    with pytest.raises(TableError, match=message) as found:
        prepare_folds(table, DataSettings(target=target, test=test, **settings))
    assert "\n" not in str(found.value)


def test_arrays_with_gaps_are_prepared_like_tables():
    x = np.random.default_rng(0).normal(size=(70, 3))
    y = x[:, 0] * 2
    x[3, 1], x[4, 1], y[5] = np.nan, np.inf, np.nan
    (prepared,) = prepare_folds(Arrays("a.npz", x, y), DataSettings())
    assert len(prepared.train_rows) + len(prepared.test_rows) == 69
    assert said(prepared, "1 value that is infinite or beyond 1e+100")
    assert said(prepared, "1 row left out")
    assert prepare_all_rows(Arrays("a.npz", x, y), DataSettings()).train[0].shape == (69, 4)


def test_whole_numbers_beyond_the_precision_of_floats_stay_exact(tmp_path):
    pytest.importorskip("pyarrow")
    ids = 2**60 + np.arange(ROWS)
    trees(tree_id=ids).to_parquet(tmp_path / "t.parquet")
    table = read_data(tmp_path / "t.parquet")
    assert table.texts("tree_id").tolist() == list(map(str, ids))


def test_input_names_say_which_column_an_input_belongs_to():
    days = [(FIRST + timedelta(days=i)).date().isoformat() for i in range(ROWS)]
    table = Table("t.csv", trees(day=days, height=[np.nan, *HEIGHT[1:]]).astype({"height": str}))
    preparation = prepare_all_rows(table, DataSettings(target="age")).preparation
    assert tuple(preparation.get_feature_names_out()) == (
        "height", "height is missing", "kind is elm", "kind is oak",
        "day", "day: day of week (sin)", "day: day of week (cos)",
    )  # fmt: skip
    assert preparation.inputs_by_column == {"height": slice(0, 2), "kind": slice(2, 4), "day": slice(4, 7)}
