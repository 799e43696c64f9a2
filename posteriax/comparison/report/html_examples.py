"""The examples of a report as HTML: the most confident predictions of each posterior, and its confident errors."""

import math
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from posteriax.comparison.chart_summaries import Example
from posteriax.comparison.comparison import Comparison
from posteriax.comparison.report.chart_data import is_regression
from posteriax.comparison.report.pictures import as_image, picture_uris

FEATURES = 8  # shown of an example that is not a picture


def example_cards(comparison: Comparison) -> str:
    """For each posterior, a card with its examples of the main test set: pictures, or tables of features.

    >>> from posteriax.comparison.chart_summaries import ChartSummary
    >>> chart = ChartSummary(surest=(Example(3, np.zeros(2), 1, 1, 0.99),))
    >>> sets, charts = {"test": {"MAP": {}}}, {"test": {"MAP": chart}}
    >>> "<b>yes</b> 99.0&nbsp;%" in example_cards(Comparison(sets, charts=charts, class_names=("no", "yes")))
    True
    """
    charts = comparison.charts.get(comparison.main, {})
    shown = [example for chart in charts.values() for example in (*chart.surest_wrong, *chart.surest)]
    images = [(e.index, image) for e in shown if (image := as_image(e.x)) is not None]
    uris = picture_uris([image for _, image in images])
    pictures = {index: uri for (index, _), uri in zip(images, uris, strict=True)}
    numbers = is_regression(comparison)
    titles = (
        ("Largest errors, relative to their uncertainty", "Most certain")
        if numbers
        else ("Confident, but wrong", "Most confident, and right")
    )
    cards = []
    for method, own in enumerate(comparison.rows):
        chart = charts.get(own)
        if chart is None or not (chart.surest_wrong or chart.surest):
            continue
        rows = ""
        for title, examples in zip(titles, (chart.surest_wrong, chart.surest), strict=True):
            words = [_words(e, comparison.class_names, numbers) for e in examples]
            rows += f"<h4>{title}</h4>{_gallery(examples, words, pictures)}"
        swatch = f'<span class="swatch" data-method="{method}"></span>'
        cards.append(f'<article class="card" data-method="{method}"><h3>{swatch}{escape(own)}</h3>{rows}</article>')
    return "".join(cards)


def _words(example: Example, class_names: tuple[str, ...] | None, numbers: bool) -> tuple[str, str]:
    """What was predicted, and what is true; empty if they are the same."""
    if numbers:
        spread = example.certainty
        return f"<b>{_number(example.predicted, spread)}</b> ±&nbsp;{spread:.2g}", _number(example.true, spread)
    label, true = (escape(_label(value, class_names)) for value in (example.predicted, example.true))
    return f"<b>{label}</b> {_percent(example.certainty)}", "" if example.predicted == example.true else true


def _number(value: float, spread: float) -> str:
    """As many digits as its uncertainty warrants.

    >>> _number(10000000.3123, 0.52), _number(0.12345, 0.05)
    ('10000000.31', '0.123')
    """
    if not (math.isfinite(spread) and spread > 0):
        return f"{value:.3g}"
    return f"{value:.{max(0, 1 - math.floor(math.log10(spread)))}f}"


def _gallery(examples: Sequence[Example], words: list[tuple[str, str]], pictures: Mapping[int, str]) -> str:
    if not examples:
        return '<p class="note">None.</p>'
    if not all(example.index in pictures for example in examples):
        return _feature_table(examples, words)
    figures = ""
    for example, (said, true) in zip(examples, words, strict=True):
        name, caption = f"test example {example.index}", said + (f"<br>actually {true}" if true else "")
        image = f'<img src="{pictures[example.index]}" alt="{name}">'
        figures += f'<figure title="{name}">{image}<figcaption>{caption}</figcaption></figure>'
    return f'<div class="examples">{figures}</div>'


def _feature_table(examples: Sequence[Example], words: list[tuple[str, str]]) -> str:
    values = [np.asarray(example.x).ravel() for example in examples]
    titles = ["predicted", "actual", *(f"x{i + 1}" for i in range(min(FEATURES, len(values[0]))))]
    body = ""
    for (said, true), features in zip(words, values, strict=True):
        cells = [said, true or "the same", *map(_value, features[:FEATURES])]
        body += f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
    head = "".join(f'<th scope="col">{title}</th>' for title in titles)
    more = len(values[0]) - FEATURES
    note = f'<p class="note">and {more:,} more features</p>' if more > 0 else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="features" tabindex="0" role="region" aria-label="Features">{table}</div>{note}'


def _percent(certainty: float) -> str:
    """Never rounded up to 100 %, which would hide how confident it was.

    >>> _percent(0.87), _percent(0.9999), _percent(1.0)
    ('87.0&nbsp;%', '&gt;&nbsp;99.9&nbsp;%', '100&nbsp;%')
    """
    if certainty >= 0.9995:
        return "100&nbsp;%" if certainty == 1 else "&gt;&nbsp;99.9&nbsp;%"
    return f"{100 * certainty:.1f}&nbsp;%"


def _label(value: float, class_names: tuple[str, ...] | None) -> str:
    label = int(value)
    return class_names[label] if class_names and 0 <= label < len(class_names) else str(label)


def _value(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, (float, np.floating)) else escape(str(value))
