"""Dates and times of day as people write them, and what is learned from them.

days since 1970                       a trend
sin and cos of 2 pi t / period        day of week, time of year, time of day: where the rows cover several of them
"""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from posteriax.tabular.messages import MAJORITY

DAYS = {  # formats, with an example; the first that fits is used
    "%d.%m.%Y": "31.1.2024",
    "%m/%d/%Y": "1/31/2024",
    "%d/%m/%Y": "31/1/2024",
    "%Y/%m/%d": "2024/1/31",
    "%d-%m-%Y": "31-1-2024",
    "%m/%d/%y": "1/31/24",
    "%d/%m/%y": "31/1/24",
    "%d.%m.%y": "31.1.24",
    "%d-%b-%Y": "31-Jan-2024",
    "%d-%b-%y": "31-Jan-24",
    "%d %b %Y": "31 Jan 2024",
    "%d %B %Y": "31 January 2024",
    "%b %d, %Y": "Jan 31, 2024",
    "%B %d, %Y": "January 31, 2024",
}
TIMES = {"%H:%M": "14:05", "%H:%M:%S": "14:05:30", "%I:%M %p": "2:05 PM", "%I:%M:%S %p": "2:05:30 PM"}
COMPACT = "%Y%m%d"
DATES = {  # all formats
    "ISO8601": "2024-01-31",
    **DAYS,
    **{f"{day} {time}": f"{DAYS[day]} {TIMES[time]}" for day in DAYS for time in TIMES},
    **TIMES,
    COMPACT: "20240131",
}
ORDER = {"%m/%d": "month/day/year", "%d/%m": "day/month/year"}  # which of two orders was read, for notes

PARTS = ("day of week", "time of year", "time of day")
PERIODS = {"day of week": 7.0, "time of year": 365.2425, "time of day": 1.0}
FEWEST_WEEKS, FEWEST_YEARS = 2, 1  # that rows must cover for a part to be told from the trend
FEWEST_DIGITS = 3  # of a date or time
FEW = 50  # different values on which all formats are tried first
CENTURIES = (19000101, 21001231)


def days_since_1970(texts: pd.Series, form: str) -> np.ndarray:
    """Days as floats, NaN where there is no such date. ISO dates are read in any case.

    >>> days_since_1970(pd.Series(["2/1/1970", "1970-01-03T12:00", "soon"]), "%d/%m/%Y").tolist()
    [1.0, 2.5, nan]
    """
    days = _days(texts, form)
    unread = np.isnan(days) & texts.notna().to_numpy()
    if form != "ISO8601" and unread.any():
        days[unread] = _days(texts[unread], "ISO8601")
    return days


def find_date_format(texts: pd.Series, *, day_first: bool = False) -> str | None:
    """The format that reads the most values, if these are nearly all.

    Args:
        texts: the cells.
        day_first: whether 1/2/2024 is in February, if no value tells.

    >>> find_date_format(pd.Series(["1/2/2024", "13/2/2024"])), find_date_format(pd.Series(["oak", "elm"]))
    ('%d/%m/%Y', None)
    """
    present = texts.dropna()
    different = pd.Series(present.unique())
    if len(different) == 0 or different[:FEW].str.count(r"\d").ge(FEWEST_DIGITS).mean() < 0.5:
        return None  # most text is not a date, and trying all formats takes a while
    promising = [form for form in DATES if _share_read(different[:FEW], form) >= 0.5]
    if day_first:  # stable: other formats stay in their order
        promising.sort(key=lambda form: form.startswith("%m/%d"))
    shares = {form: _share_read(different, form) for form in promising}
    best = max(promising, key=lambda form: shares[form], default=None)
    return best if best is not None and _share_read(present, best) >= MAJORITY else None


def is_ambiguous(texts: pd.Series, form: str) -> bool:
    """Whether days and months could as well be the other way round.

    >>> is_ambiguous(pd.Series(["1/2/2024"]), "%m/%d/%Y"), is_ambiguous(pd.Series(["1/31/2024"]), "%m/%d/%Y")
    (True, False)
    """
    if form[:5] not in ORDER:
        return False
    other = form[3:5] + "/" + form[:2] + form[5:]
    return bool(np.isfinite(_days(texts[np.isfinite(_days(texts, form))], other)).all())


def are_compact_dates(values: np.ndarray) -> bool:
    """Whether numbers such as 20240131 are dates: all of them, and more than a few.

    >>> are_compact_dates(np.array([20240130, 20240131, 20240201, 20240202, 20240203.0]))
    True
    """
    present = np.unique(values[np.isfinite(values)])
    if len(present) < 5 or (present < CENTURIES[0]).any() or (present > CENTURIES[1]).any():
        return False
    integers = (present == np.round(present)).all()
    return bool(integers and np.isfinite(_days(pd.Series(present.astype(np.int64).astype(str)), COMPACT)).all())


def informative_parts(days: np.ndarray) -> tuple[str, ...]:
    """Which parts of the dates can be told from the trend: the rows must cover several weeks, years or hours.

    >>> informative_parts(np.arange(100.0)), informative_parts(np.arange(0, 5, 0.25))
    (('day of week',), ('time of day',))
    """
    present = days[np.isfinite(days)]
    span = np.ptp(present) if len(present) else 0.0
    weekdays, hours = len(np.unique(np.floor(present) % 7)), len(np.unique(np.floor(24 * (present % 1) + 1e-6)))
    months = len(np.unique(np.floor(12 * (present / PERIODS["time of year"] % 1))))
    covered = (
        span >= 7 * FEWEST_WEEKS and weekdays > 1,
        span >= PERIODS["time of year"] * FEWEST_YEARS and months > 2,
        hours > 2,
    )
    return tuple(part for part, is_covered in zip(PARTS, covered, strict=True) if is_covered)


def cycles(days: np.ndarray, parts: Sequence[str]) -> np.ndarray:
    """Sine and cosine of each part, (N, 2 parts); 0 where the date is missing.

    >>> cycles(np.array([0.0, 0.25, np.nan]), ["time of day"]).round(3).tolist()
    [[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]]
    """
    rounding: dict[str, Callable[[np.ndarray], np.ndarray]] = {"day of week": np.floor}
    angles = [2 * np.pi * (rounding.get(part, lambda d: d)(days) / PERIODS[part] % 1) for part in parts]
    waves = [wave(angle) for angle in angles for wave in (np.sin, np.cos)]
    return np.nan_to_num(np.stack(waves, axis=1)) if waves else np.zeros((len(days), 0))


def as_date(days: float) -> str:
    """The day as text.

    >>> as_date(19753.5)
    '2024-01-31'
    """
    return str(np.datetime64(int(np.floor(days)), "D"))


def _share_read(texts: pd.Series, form: str) -> float:
    return float(np.isfinite(_days(texts, form)).mean()) if len(texts) else 0.0


def _days(texts: pd.Series, form: str) -> np.ndarray:
    times = pd.to_datetime(texts, format=form, errors="coerce", utc=True).dt.tz_convert(None)
    # in microseconds: nanoseconds would overflow before 1677
    return (times.to_numpy("datetime64[us]") - np.datetime64(0, "us")) / np.timedelta64(1, "D")
