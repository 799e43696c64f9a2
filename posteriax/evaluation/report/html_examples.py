"""The examples of a report as HTML: where methods disagree, the most confident predictions, and confident errors."""

import math
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from posteriax.evaluation.chart_summaries import Disagreement, Example
from posteriax.evaluation.comparison import Comparison
from posteriax.evaluation.report.chart_data import is_regression
from posteriax.evaluation.report.context import ReportContext
from posteriax.evaluation.report.html_tables import label_of
from posteriax.evaluation.report.pictures import as_image, picture_uris
from posteriax.evaluation.uncertainty_deciles import is_constant

FEATURES = 8  # shown of an example that is not a picture


def example_cards(comparison: Comparison, context: ReportContext) -> tuple[str, str]:
    """A card of disagreements, and for each posterior one with its examples, of which the page's script shows one.

    >>> from posteriax.evaluation.chart_summaries import ChartSummary
    >>> chart = ChartSummary(surest=(Example(3, np.zeros(2), 1, 1, 0.99),))
    >>> sets, charts = {"test": {"MAP": {}}}, {"test": {"MAP": chart}}
    >>> comparison = Comparison(sets, charts=charts, class_names=("no", "yes"))
    >>> "<b>yes</b> 99.0&nbsp;%" in example_cards(comparison, ReportContext())[1]
    True
    """
    charts = comparison.charts.get(comparison.main, {})
    shown: list[Example | Disagreement] = [
        example for chart in charts.values() for example in (*chart.surest_wrong, *chart.surest)
    ]
    # a table of 64 columns is not a picture
    pictures = _pictures([*comparison.disagreements, *shown]) if context.rows is None else {}
    numbers = is_regression(comparison)
    titles = (
        ("Largest errors, relative to their uncertainty", "Most certain")
        if numbers
        else ("Confident, but wrong", "Most confident, and right")
    )
    cards = []
    for method, name in enumerate(comparison.rows):
        chart = charts.get(name)
        if chart is None or not (chart.surest_wrong or chart.surest):
            continue
        rows = ""
        for title, examples in zip(titles, (chart.surest_wrong, chart.surest), strict=True):
            if numbers and examples is chart.surest and is_constant(chart.entropies):  # none is the most certain
                continue
            words = [_words(comparison, e.predicted, e.certainty, e.true, numbers) for e in examples]
            rows += f"<h4>{title}</h4>{_gallery(examples, words, pictures, context)}"
        swatch = f'<span class="swatch" data-method="{method}"></span>'
        cards.append(
            f'<article class="card wide" data-method="{method}"><h3>{swatch}{escape(name)}</h3>{rows}</article>'
        )
    return _disagreement_card(comparison, context, pictures, numbers), "".join(cards)


def _pictures(examples: Sequence[Example | Disagreement]) -> dict[int, str]:
    """By the index of an example, its picture, if it is one; each only once."""
    images = {e.index: image for e in examples if (image := as_image(e.x)) is not None}
    return dict(zip(images, picture_uris(list(images.values())), strict=True))


def _disagreement_card(
    comparison: Comparison, context: ReportContext, pictures: Mapping[int, str], numbers: bool
) -> str:
    cases = comparison.disagreements
    if not cases:
        return ""
    methods = [name for name in comparison.rows if name in cases[0].predicted]
    columns, cells = _columns(cases, context, pictures)
    heads = [
        "actual",
        *(f'<span class="swatch" data-method="{i}"></span>{escape(n)}' for i, n in _numbered(comparison, methods)),
    ]
    body = ""
    for case, (first, features) in zip(cases, cells, strict=True):
        actual, _ = _words(comparison, case.true, min(case.certainty.values()), case.true, numbers)
        longer = "&gt;&nbsp;" if case.censored else ""
        row = f"{first}<td>{longer}{actual.partition('</b>')[0].removeprefix('<b>')}</td>"
        for name in methods:
            predicted, true = _words(comparison, case.predicted[name], case.certainty[name], case.true, numbers)
            row += f"<td{' class=wrong' if true and not numbers else ''}>{predicted}</td>"
        body += "<tr>" + row + features.replace("<td>", '<td class="feature">') + "</tr>"
    table = _table([*columns[:1], *heads], body, columns[1:])
    return (
        '<article class="card wide" id="disagreements"><h3>Where the methods disagree most</h3>'
        f"{table}{_more_columns(cases[0].x, context, pictures)}</article>"
    )


def _numbered(comparison: Comparison, methods: Sequence[str]) -> list[tuple[int, str]]:
    return [(list(comparison.rows).index(name), name) for name in methods]


def _words(comparison: Comparison, predicted: float, certainty: float, true: float, numbers: bool) -> tuple[str, str]:
    """What was predicted, and what is true; empty if they are the same."""
    if numbers:
        return f"<b>{_number(predicted, certainty)}</b> ±&nbsp;{_number(certainty, certainty)}", _number(
            true, certainty
        )
    label, actual = (escape(label_of(comparison, int(value))) for value in (predicted, true))
    return f"<b>{label}</b> {_percent(certainty)}", "" if predicted == true else actual


def _number(value: float, spread: float) -> str:
    """As many digits as its uncertainty warrants.

    >>> _number(10000000.3123, 0.52), _number(0.12345, 0.05), _number(183.2, 183.2)
    ('10000000.31', '0.123', '183')
    """
    if not (math.isfinite(spread) and spread > 0):
        return f"{value:.3g}"
    return f"{value:.{max(0, 1 - math.floor(math.log10(spread)))}f}"


def _gallery(
    examples: Sequence[Example], words: list[tuple[str, str]], pictures: Mapping[int, str], context: ReportContext
) -> str:
    if not examples:
        return '<p class="note">None.</p>'
    if not all(example.index in pictures for example in examples):
        return _feature_table(examples, words, context)
    figures = ""
    for example, (predicted, true) in zip(examples, words, strict=True):
        name, caption = f"test example {example.index}", predicted + (f"<br>actually {true}" if true else "")
        image = f'<img src="{pictures[example.index]}" alt="{name}">'
        figures += f'<figure title="{name}">{image}<figcaption>{caption}</figcaption></figure>'
    return f'<div class="examples">{figures}</div>'


def _feature_table(examples: Sequence[Example], words: list[tuple[str, str]], context: ReportContext) -> str:
    columns, cells = _columns(examples, context, {})
    body = ""
    for (predicted, true), (first, features) in zip(words, cells, strict=True):
        body += f"<tr>{first}<td>{predicted}</td><td>{true or 'the same'}</td>{features}</tr>"
    return _table([*columns[:1], "predicted", "actual", *columns[1:]], body) + _more_columns(examples[0].x, context, {})


def _table(titles: Sequence[str], body: str, features: Sequence[str] = ()) -> str:
    """A table in a box that scrolls; the columns of `features` come last, and are left out in print."""
    head = "".join(f'<th scope="col">{title}</th>' for title in titles)
    head += "".join(f'<th scope="col" class="feature">{title}</th>' for title in features)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="features" tabindex="0" role="region" aria-label="Examples">{table}</div>'


def _columns(
    examples: Sequence[Example | Disagreement], context: ReportContext, pictures: Mapping[int, str]
) -> tuple[list[str], list[tuple[str, str]]]:
    """The headings (of the first cell, then of features), and by example its first cell and those of its features."""
    if pictures:
        pictured = [f'<td><img src="{pictures[e.index]}" alt="test example {e.index}"></td>' for e in examples]
        return ["example"], [(first, "") for first in pictured]
    rows = context.rows
    if rows is None:
        values = [np.asarray(e.x).ravel()[:FEATURES] for e in examples]
        named = [f"x{i + 1}" for i in range(len(values[0]))]
        cells = [
            (f"<td>{e.index}</td>", "".join(f"<td>{_value(v)}</td>" for v in features))
            for e, features in zip(examples, values, strict=True)
        ]
        return ["test example", *named], cells
    order = _shown_columns(context)
    cells = []
    for e in examples:
        first = e.index if rows.lines is None else rows.lines[e.index]
        features = "".join(f"<td>{escape(_cell(rows.cells[e.index][k]))}</td>" for k in order)
        cells.append((f"<td>{first}</td>", features))
    return ["test row" if rows.lines is None else "line", *(escape(str(rows.columns[k])) for k in order)], cells


def _shown_columns(context: ReportContext) -> list[int]:
    """Which columns to show: those that matter most, if that is known, else the first ones."""
    assert context.rows is not None
    names = [str(name) for name in context.rows.columns]
    headings = [title for effect in context.effects for title in (effect.feature.name, effect.feature.heading)]
    matter = [names.index(title) for title in headings if title in names]
    return list(dict.fromkeys([*matter, *range(len(names))]))[:FEATURES]


def _more_columns(x: np.ndarray, context: ReportContext, pictures: Mapping[int, str]) -> str:
    if pictures:
        return ""
    count = np.size(x) if context.rows is None else len(context.rows.columns)
    word = "features" if context.rows is None else "columns"
    return f'<p class="note">and {count - FEATURES:,} more {word}</p>' if count > FEATURES else ""


def _percent(certainty: float) -> str:
    """Never rounded up to 100 %, which would hide how confident it was.

    >>> _percent(0.87), _percent(0.9999), _percent(1.0)
    ('87.0&nbsp;%', '&gt;&nbsp;99.9&nbsp;%', '100&nbsp;%')
    """
    if certainty >= 0.9995:
        return "100&nbsp;%" if certainty == 1 else "&gt;&nbsp;99.9&nbsp;%"
    return f"{100 * certainty:.1f}&nbsp;%"


def _cell(value: object) -> str:
    return "" if value is None or (isinstance(value, float) and math.isnan(value)) else str(value)


def _value(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, (float, np.floating)) else escape(str(value))
