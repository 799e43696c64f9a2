"""The report as one self-contained page of tables, charts and pictures.

Tables, text and pictures are written here; charts are drawn in the browser by charts.js and page.js, from the numbers
of chart_data, which the page holds as JSON. No name that a user gives can become code: names are escaped, and the
page's content-security policy allows only its own script and style, by their hashes, and loads nothing.
"""

import base64
import hashlib
import json
import math
import re
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from posteriax.__about__ import __version__
from posteriax.comparison.comparison import Comparison
from posteriax.comparison.report import chart_data
from posteriax.comparison.report.html_examples import example_cards
from posteriax.comparison.report.html_tables import glossary, score_tables
from posteriax.comparison.report.page_colours import colour_rules
from posteriax.comparison.report.wording import explain_marks, summary, warning

DIGITS = 4  # significant digits in charts: finer than a pixel


def write_page(comparison: Comparison, path: str | Path, title: str = "Which posterior to trust") -> None:
    """Write the report of a comparison to a file.

    >>> import tempfile
    >>> from posteriax.metrics import Estimate
    >>> comparison = Comparison({"test": {"MAP": {"nll": Estimate(0.5, 0.01)}}})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_page(comparison, Path(folder) / "report.html")
    ...     (Path(folder) / "report.html").read_text(encoding="utf-8")[:15]
    '<!doctype html>'
    """
    Path(path).write_text(page(comparison, title), encoding="utf-8")


def page(comparison: Comparison, title: str = "Which posterior to trust") -> str:
    """The report of a comparison as the text of a page.

    >>> from posteriax.metrics import Estimate
    >>> "&lt;b&gt;" in page(Comparison({"test": {"<b>": {"nll": Estimate(0.5, 0.01)}}}))
    True
    """
    style = _asset("page.css") + colour_rules(len(comparison.rows))
    script = _asset("charts.js") + _asset("page.js")
    parts = {
        "policy": f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; img-src data:",
        "title": escape(title),
        "summary": _summary(comparison),
        "marks": escape(explain_marks(comparison)),
        "tables": score_tables(comparison),
        "examples": example_cards(comparison),
        "glossary": glossary(comparison),
        "version": escape(__version__),
        "data": as_json(chart_numbers(comparison)),
        "style": style,
        "script": script,
    }
    # in one pass, so that what is filled in is not searched again
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _asset("template.html"))


def chart_numbers(comparison: Comparison) -> dict[str, Any]:
    """The numbers behind all charts of a page.

    >>> from posteriax.metrics import Estimate
    >>> chart_numbers(Comparison({"test": {"MAP": {"nll": Estimate(0.5, 0.01)}}}))["methods"]
    ['MAP']
    """
    numbers = chart_data.is_regression(comparison)
    histograms, distance = chart_data.uncertainties(comparison), chart_data.distances(comparison)
    curves = {column: chart_data.severity(comparison, column) for column in comparison.columns}
    heading = lambda column: comparison.score(column).heading  # noqa: E731
    return {
        "methods": list(comparison.rows),
        "sets": list(comparison.sets),
        "corrupted": [i for i, name in enumerate(comparison.sets) if name in comparison.corruptions],
        "reference": comparison.reference,
        "reliability": chart_data.reliability(comparison),
        "coverage": chart_data.coverage(comparison),
        "severity": [{"name": heading(column), "groups": own} for column, own in curves.items() if own],
        "uncertainty": histograms
        and {
            "label": "standard deviation of the prediction" if numbers else "entropy of the prediction (nats)",
            "inside_name": comparison.main,
            "edges": histograms.edges,
            "inside": histograms.inside,
            "outside": histograms.outside,
        },
        "distance": distance
        and {
            "label": heading(distance[0]),
            "meaning": comparison.score(distance[0]).meaning,
            "lines": distance[1],
            "warning": warning(comparison),
        },
        "attack": chart_data.attacks(comparison),
    }


def as_json(value: Any) -> str:
    """JSON that is safe inside a script element: no angle brackets or ampersands, and null for what is not finite.

    >>> as_json({"a": [1.23456, float("nan")], "b": "</script>"})
    '{"a":[1.235,null],"b":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(_plain(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _plain(value: Any) -> Any:
    if hasattr(value, "_asdict"):  # a named tuple
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        short = float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
        return int(short) if short is not None and short == int(short) else short
    return value


def _summary(comparison: Comparison) -> str:
    first = warning(comparison)
    box = f'<p class="warning" role="alert">{escape(first)}</p>' if first else ""
    return box + "".join(f"<p>{escape(text)}</p>" for text in summary(comparison))


def _asset(name: str) -> str:
    return (files("posteriax.comparison.report") / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
