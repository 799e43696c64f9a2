"""Numbers as people write them: "$5,602.78", "36%", "1 234,5", "12 kg", "(12.50)"."""

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

CURRENCY = r"R\$|[$¢£¥฿₠-⃀]|kr|zł|USD|EUR|GBP|CHF|JPY|CNY|INR|AUD|CAD|NZD|BRL|MXN|SEK|NOK|DKK|PLN|CZK"
UNIT = r"[^\W\d_]{1,6}(?:/[^\W\d_]{1,4})?[²³]?|°[CF]?"
SYMBOL = re.compile(rf"^\(?[+-]? ?(?P<before>{CURRENCY}|%) ?[-+.,0-9]|[0-9.,] ?(?P<after>{CURRENCY}|%|{UNIT})\)?$")
UNUSUAL = str.maketrans({"\u00a0": " ", "\u202f": " ", "\u2009": " ", "\u2212": "-", "\u2019": "'"})  # spaces, minus, '
THOUSANDS = {".": (",", " ", "'"), ",": (".", " ", "'")}  # by the decimal mark
FEW = 200  # different values that are tried in every format


@dataclass(frozen=True)
class NumberFormat:
    """How the numbers of a column are written.

    Args:
        decimal: the decimal mark, "." or ",".
        thousands: what may stand between groups of digits.
        symbol: a currency, which may be left out, or "%" or a unit, which may not: 0.36 and 36% are different numbers.

    >>> NumberFormat(".", ",", "$").read(pd.Series(["$5,602.78", "-$3", "($1.50)", "7", "oak"])).tolist()
    [5602.78, -3.0, -1.5, 7.0, nan]
    """

    decimal: str = "."
    thousands: str = ""
    symbol: str = ""

    def read(self, cells: pd.Series) -> np.ndarray:
        """Text as floats; NaN where it is missing or not a number in this format."""
        if self == PLAIN:
            return pd.to_numeric(cells, errors="coerce").to_numpy(np.float64, na_value=np.nan)
        return cells.astype(object).map(self._number, na_action="ignore").to_numpy(np.float64, na_value=np.nan)

    @property
    def kind(self) -> str:
        """What the numbers are, in a word or two."""
        named = {"": "numbers", "%": "percentages"} | ({self.symbol: "amounts of money"} if self._is_currency else {})
        return named.get(self.symbol, f"numbers with the unit {self.symbol!r}")

    @property
    def _is_currency(self) -> bool:
        return re.fullmatch(CURRENCY, self.symbol) is not None

    def _number(self, cell: str) -> float:
        text = cell.translate(UNUSUAL)
        negative = text.startswith("(") and text.endswith(")")  # as accountants write
        match = self._pattern.fullmatch(text[1:-1] if negative else text)
        bare = match is not None and self.symbol and not match["before"] and not match["after"]
        if match is None or (bare and not self._is_currency):
            return 0.0 if text == "0" else np.nan
        digits = match["digits"].replace(self.thousands, "") if self.thousands else match["digits"]
        value = float(match["sign"] + match["inner"] + digits.replace(self.decimal, "."))
        return -value if negative else value

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        symbol, decimal, thousands = map(re.escape, (self.symbol, self.decimal, self.thousands))
        integer = rf"[0-9]{{1,3}}(?:{thousands}[0-9]{{2,3}})*{thousands}[0-9]{{3}}|[0-9]+" if thousands else "[0-9]+"
        digits = rf"(?:(?:{integer})(?:{decimal}[0-9]*)?|{decimal}[0-9]+)(?:[eE][+-]?[0-9]+)?"
        before, after = rf"(?P<before>{symbol})?", rf"(?P<after>{symbol})?"
        return re.compile(rf"(?P<sign>[+-]?) ?{before} ?(?P<inner>(?<![+-])[+-]?) ?(?P<digits>{digits}) ?{after}")


PLAIN = NumberFormat()
COMMA = NumberFormat(",", ".")  # as spreadsheets in many countries write numbers


def find_format(cells: pd.Series, unread: np.ndarray | None = None, *, decimal_comma: bool = False) -> NumberFormat:
    """The format that reads the most values.

    Args:
        cells: text.
        unread: where there is text that is not a plain number, if that is known.
        decimal_comma: whether "1,234", which may be either, is 1.234 instead of 1234.

    >>> find_format(pd.Series(["1 234,5", "17"]))
    NumberFormat(decimal=',', thousands=' ', symbol='')
    >>> find_format(pd.Series(["36%", "7.5%"])).symbol, find_format(pd.Series(["oak"])) == PLAIN
    ('%', True)
    """
    unread = np.isnan(PLAIN.read(cells)) & cells.notna().to_numpy() if unread is None else unread
    if not unread.any():
        return PLAIN
    odd = pd.Series(cells[unread].unique()[:FEW])
    ordinary = pd.Series(cells[~unread & cells.notna().to_numpy()].unique()[:FEW], dtype=odd.dtype)
    matches = (SYMBOL.search(cell.translate(UNUSUAL)) for cell in odd)
    symbols = Counter(match["before"] or match["after"] for match in matches if match)
    symbol = symbols.most_common(1)[0][0] if symbols else ""
    marks = ",." if decimal_comma else ".,"
    formats = [NumberFormat(decimal, thousands, symbol) for decimal in marks for thousands in THOUSANDS[decimal]]
    counts = {form: int(np.isfinite(form.read(pd.concat([odd, ordinary]))).sum()) for form in formats}
    best = max(formats, key=lambda form: counts[form])  # the first in case of a tie
    return best if counts[best] > len(ordinary) else PLAIN
