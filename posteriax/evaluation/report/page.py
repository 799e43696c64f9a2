"""The report as one self-contained page of tables, charts and pictures.

Tables, text and pictures are written here; charts are drawn in the browser by charts.js and panels.js, from the numbers
of chart_data, which the page holds as JSON. No name that a user gives can become code: names are escaped, and the
page's content-security policy allows only its own script and style, by their hashes, and loads nothing.

The colours of posteriors are the figures' palette, made readable on white and on black:

    contrast of two colours = (L1 + 0.05) / (L2 + 0.05),   L: relative luminance, L1 >= L2     (WCAG 2.2)

Lines and points need a contrast of 3 with their background: colours that have less are darkened or lightened to it.
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
from posteriax.evaluation.comparison import Comparison
from posteriax.evaluation.recommend import Recommendation, deciding_column
from posteriax.evaluation.report import chart_data
from posteriax.evaluation.report.context import ReportContext
from posteriax.evaluation.report.html_examples import example_cards
from posteriax.evaluation.report.html_tables import class_tables, confusion_tables, glossary, score_tables
from posteriax.evaluation.report.html_text import account, advice, explain_marks, warning

JSON = dict[str, Any] | list[Any] | str | float | bool | None

EFFECT_CURVES = ("values", "mean", "low", "high", "interval_low", "interval_high", "uncertainty", "observed")
SCRIPTS = ("charts.js", "panels.js", "page.js", "sections.js", "controls.js")  # in this order
MOST_IN_FULL = 6  # rows; of more, charts show some faintly
DIGITS = 4  # significant digits in charts: finer than a pixel
BACKGROUNDS = {"light": "#ffffff", "dark": "#1a1d21"}
ON_PAGES = (  # those of _internal/plot_style.py, on light and on dark pages
    ("#0072b2", "#0072b2"),
    ("#c68900", "#e69f00"),
    ("#009e73", "#009e73"),
    ("#d55e00", "#d55e00"),
    ("#cc79a7", "#cc79a7"),
    ("#4b9dcb", "#56b4e9"),
    ("#9e962c", "#f0e442"),
    ("#000000", "#d5d5d5"),
    ("#882255", "#9e4c75"),
    ("#332288", "#695da8"),
)


def write_page(
    comparison: Comparison,
    path: str | Path,
    title: str = "Which posterior to trust",
    context: ReportContext | None = None,
) -> None:
    """Write the report of a comparison to a file.

    >>> import tempfile
    >>> from posteriax.metrics import Estimate
    >>> comparison = Comparison({"test": {"MAP": {"nll": Estimate(0.5, 0.01)}}})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_page(comparison, Path(folder) / "report.html")
    ...     (Path(folder) / "report.html").read_text(encoding="utf-8")[:15]
    '<!doctype html>'
    """
    Path(path).write_text(page(comparison, title, context), encoding="utf-8")


def page(comparison: Comparison, title: str = "Which posterior to trust", context: ReportContext | None = None) -> str:
    """The report of a comparison as the text of a page.

    >>> from posteriax.metrics import Estimate
    >>> "&lt;b&gt;" in page(Comparison({"test": {"<b>": {"nll": Estimate(0.5, 0.01)}}}))
    True
    """
    style = _asset("page.css") + colour_rules(len(comparison.rows))
    script = "".join(_asset(name) for name in SCRIPTS)
    context = context or ReportContext()
    disagreements, examples = example_cards(comparison, context)
    parts = {
        "policy": f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; img-src data:",
        "title": escape(title),
        "advice": advice(comparison, context),
        "marks": escape(explain_marks(comparison)),
        "tables": score_tables(comparison),
        "disagreements": disagreements,
        "examples": examples,
        "classes": class_tables(comparison),
        "confusions": confusion_tables(comparison),
        "account": account(comparison, context),
        "glossary": glossary(comparison),
        "version": escape(__version__),
        "data": as_json(chart_numbers(comparison, context)),
        "style": style,
        "script": script,
    }
    # in one pass, so that what is filled in is not searched again
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _asset("template.html"))


def chart_numbers(comparison: Comparison, context: ReportContext | None = None) -> dict[str, Any]:
    """The numbers behind all charts of a page.

    >>> from posteriax.metrics import Estimate
    >>> chart_numbers(Comparison({"test": {"MAP": {"nll": Estimate(0.5, 0.01)}}}))["methods"]
    ['MAP']
    """
    numbers = chart_data.is_regression(comparison)
    histograms, distance = chart_data.uncertainties(comparison), chart_data.distances(comparison)
    curves = {column: chart_data.severity(comparison, column) for column in comparison.columns}
    heading = lambda column: comparison.score(column).heading  # noqa: E731
    context, recommended = context or ReportContext(), comparison.recommendation
    names = list(comparison.rows)
    return {
        "methods": names,
        "recommended": names.index(recommended.name) if recommended is not None else 0,
        "prominent": [names.index(name) for name in prominent_rows(comparison, recommended)],
        "errors": chart_data.errors_by_uncertainty(comparison),
        "covered": chart_data.coverage_by_uncertainty(comparison),
        "numbers": numbers,
        "unit": context.unit,
        "effects": effects(comparison, context, recommended),
        "sets": list(comparison.sets),
        "corrupted": [i for i, name in enumerate(comparison.sets) if name in comparison.corruptions],
        "reference": comparison.reference,
        "reliability": chart_data.reliability(comparison),
        "coverage": chart_data.coverage(comparison),
        "severity": [{"name": heading(column), "groups": groups} for column, groups in curves.items() if groups],
        "uncertainty": histograms
        and {
            "label": "standard deviation" if numbers else "entropy (nats)",
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
            "floor": comparison.floor[distance[0]].value if distance[0] in comparison.floor else None,
        },
        "attack": chart_data.attacks(comparison),
    }


def prominent_rows(comparison: Comparison, recommended: Recommendation | None) -> list[str]:
    """The rows that charts show in full: of more than six, the recommended one and its best network, the reference and
    the best baseline.

    >>> from posteriax.metrics import Estimate
    >>> rows = {f"m{k}": {"nll": Estimate(0.1 * k)} for k in range(8)}
    >>> comparison = Comparison({"test": rows}, "m5", baselines={"m6": "", "m7": ""})
    >>> prominent_rows(comparison, comparison.recommendation)
    ['m0', 'm5', 'm6']
    """
    names = list(comparison.rows)
    if len(names) <= MOST_IN_FULL:
        return names
    chosen = {comparison.reference}
    if recommended is not None:
        chosen |= {recommended.name, recommended.posterior}
    column = deciding_column(comparison)
    baselines = [name for name in names if name in comparison.baselines and column in comparison.rows[name]]
    if column is not None and baselines:
        chosen.add(min(baselines, key=lambda name: comparison.score(column).loss(comparison.rows[name][column].value)))
    return [name for name in names if name in chosen]


def effects(
    comparison: Comparison, context: ReportContext, recommended: Recommendation | None
) -> dict[str, Any] | None:
    """The effects of the columns for the recommended posterior; None if they were not computed."""
    if not context.effects:
        return None
    outputs = context.effects[0].mean.shape[1]
    names = comparison.class_names or tuple(f"class {c}" for c in range(max(2, outputs)))
    target = context.target_heading or "prediction"
    numbers = chart_data.is_regression(comparison)
    posterior = (
        recommended.posterior
        if recommended is not None and recommended.posterior is not None
        else next(iter(comparison.rows))
    )
    return {
        "method": list(comparison.rows).index(posterior),
        "outputs": [target] if numbers else [f"probability of {names[-1]}"] if outputs == 1 else list(names[:outputs]),
        "uncertainty": f"standard deviation of {target}" if numbers else "entropy (nats)",
        "columns": [
            {
                "name": effect.feature.heading,
                "levels": list(effect.feature.levels),
                **{key: getattr(effect, key).tolist() for key in EFFECT_CURVES},
            }
            for effect in context.effects
        ],
    }


def as_json(value: object) -> str:
    """JSON that is safe inside a script element: no angle brackets or ampersands, and null for what is not finite.

    >>> as_json({"a": [1.23456, float("nan")], "b": "</script>"})
    '{"a":[1.235,null],"b":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(_plain(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _plain(value: Any) -> JSON:
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


def _asset(name: str) -> str:
    return (files("posteriax.evaluation.report") / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def colour_rules(methods: int) -> str:
    """Style rules that give each posterior its colour, for light and for dark pages.

    >>> print(colour_rules(1))
    .m0 { --method: light-dark(#0072b2, #...); }
    """
    colours = [ON_PAGES[i % len(ON_PAGES)] for i in range(methods)]
    return "".join(f".m{i} {{ --method: light-dark({light}, {dark}); }}\n" for i, (light, dark) in enumerate(colours))
