"""Classes one by one, as HTML: who finds them, and what they are confused with.

With classes of unequal size, accuracy hides whether the rare one is ever predicted.
"""

from html import escape

import numpy as np

from posteriax.comparison.chart_summaries import ChartSummary
from posteriax.comparison.comparison import Comparison

MOST_IN_MATRIX = 12
MOST_IN_TABLES = 20
SHADES = (0.03, 0.1, 0.3, 0.6)  # shares of a class's rows from which a cell is darker
COLUMNS = {
    "AUROC ↑": "The chance that a row of the class is given a higher probability of it than a row of another class.",
    "average precision ↑": "The area under the curve of precision against recall; the share of the class by guessing.",
    "found (recall)": "How many of the rows of the class are predicted as it.",
    "right (precision)": "How many of the rows predicted as the class are of it.",
}


def class_tables(comparison: Comparison) -> str:
    """For each class, a table of the methods; the page's script shows one class at a time, first the rarest.

    >>> chart = ChartSummary(confusion=np.array([[8, 0], [2, 0]]), auroc=np.ones(2), average_precision=np.ones(2))
    >>> comparison = Comparison({"test": {"MAP": {}}}, charts={"test": {"MAP": chart}}, class_names=("well", "ill"))
    >>> '<td class="never">0 of 2</td>' in class_tables(comparison)
    True
    """
    charts = _charts(comparison)
    if not charts:
        return ""
    counts = next(iter(charts.values())).confusion.sum(axis=1)
    classes = np.argsort(counts, kind="stable")
    shown = [int(c) for c in classes if counts[c] > 0][:MOST_IN_TABLES]
    return "".join(_class_table(comparison, charts, c, int(counts[c]), int(counts.sum())) for c in shown)


def _class_table(comparison: Comparison, charts: dict[str, ChartSummary], c: int, count: int, total: int) -> str:
    rows = ""
    for name, chart in charts.items():
        method, own = list(comparison.rows).index(name), chart.confusion
        found, predicted = int(own[c, c]), int(own[:, c].sum())
        never = ' class="never"' if not predicted else ""
        ranks = "".join(f"<td>{_number(values, c)}</td>" for values in (chart.auroc, chart.average_precision))
        right = f"{found:,} of {predicted:,}" if predicted else "never predicted"
        rows += (
            f'<tr data-method="{method}"><th scope="row"><span class="swatch" data-method="{method}"></span>'
            f"{escape(name)}</th>{ranks}<td{never}>{found:,} of {count:,}</td><td{never}>{right}</td></tr>"
        )
    heads = "".join(f'<th scope="col" title="{escape(said)}">{title}</th>' for title, said in COLUMNS.items())
    label = escape(label_of(comparison, c))
    caption = f"{label}: {count:,} of {total:,} test rows"
    return (
        f'<div class="scroll" data-class="{label}" tabindex="0" role="region" aria-label="{label}"><table>'
        f'<caption>{caption}</caption><thead><tr><th scope="col">posterior</th>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def confusion_tables(comparison: Comparison) -> str:
    """For each method, its confusion matrix; the page's script shows one at a time. Empty with very many classes."""
    charts = _charts(comparison)
    return "".join(
        _confusion(comparison, list(comparison.rows).index(name), name, chart.confusion)
        for name, chart in charts.items()
        if len(chart.confusion) <= MOST_IN_MATRIX
    )


def _confusion(comparison: Comparison, method: int, name: str, matrix: np.ndarray) -> str:
    labels = [escape(label_of(comparison, c)) for c in range(len(matrix))]
    head = "".join(f'<th scope="col">{label}</th>' for label in labels)
    rows = ""
    for c, label in enumerate(labels):
        shares = matrix[c] / max(1, matrix[c].sum())
        cells = "".join(
            f'<td class="{"hit" if k == c else "miss"}-{_shade(share)}">{count:,}</td>'
            for k, (count, share) in enumerate(zip(matrix[c], shares, strict=True))
        )
        rows += f'<tr><th scope="row">{label}</th>{cells}</tr>'
    return (
        f'<div class="scroll confusion" data-method="{method}" tabindex="0" role="region" aria-label="Confusions of '
        f'{escape(name)}"><table><caption>{escape(name)}</caption><thead><tr><th scope="col">actual ↓ predicted →</th>'
        f"{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def label_of(comparison: Comparison, c: int) -> str:
    """The name of a class, or its number."""
    names = comparison.class_names
    return names[c] if names and c < len(names) else str(c)


def _charts(comparison: Comparison) -> dict[str, ChartSummary]:
    charts = comparison.charts.get(comparison.main, {})
    return {name: charts[name] for name in comparison.rows if name in charts and charts[name].confusion.size}


def _number(values: np.ndarray, c: int) -> str:
    return f"{values[c]:.3f}" if c < len(values) and np.isfinite(values[c]) else ""


def _shade(share: float) -> int:
    """0 to 4, by the share of a class's rows."""
    return int(np.searchsorted(SHADES, share, side="right"))
