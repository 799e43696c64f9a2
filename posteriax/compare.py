"""Compare: several posteriors on the same test set, and how far each is from a reference."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from posteriax.checks import check_data
from posteriax.evaluate import BETTER, Score, distances, scores
from posteriax.posterior import Posterior


@dataclass(frozen=True)
class Comparison:
    """A table: one row per posterior, one column per score. Print it, or take it elsewhere.

    Args:
        rows: scores by column, by the posterior's name.
        reference: the name of the posterior that distances are measured to, if any.

    >>> table = Comparison({"MAP": {"accuracy": Score(0.9, 0.02)}})
    >>> table["MAP"]
    {'accuracy': 0.9}
    >>> print(table.to_markdown())
    |  | accuracy ↑ |
    | --- | ---: |
    | MAP | 0.90 ± 0.02 |
    """

    rows: dict[str, dict[str, Score]]
    reference: str | None = None

    @property
    def columns(self) -> list[str]:
        return list(next(iter(self.rows.values())))

    def __getitem__(self, name: str) -> dict[str, float]:
        return {column: score.value for column, score in self.rows[name].items()}

    def to_markdown(self) -> str:
        """The table in Markdown."""
        lines = [["", *self._titles()], ["---"] + ["---:"] * len(self.columns), *self._cells()]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)

    def to_pandas(self) -> Any:
        """A pandas DataFrame of the values, one row per posterior. Needs pandas."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_pandas needs pandas: pip install pandas") from error
        return pandas.DataFrame({name: self[name] for name in self.rows}).T

    def __rich__(self) -> Any:
        from rich.table import Table

        table = Table(caption=self._caption(), caption_justify="left")
        table.add_column("posterior")
        for title in self._titles():
            table.add_column(title, justify="right")
        for cells in self._cells():
            table.add_row(*cells)
        return table

    def __str__(self) -> str:
        from rich.console import Console

        console = Console(width=200, no_color=True)
        with console.capture() as capture:
            console.print(self)
        return capture.get()

    __repr__ = __str__

    def _caption(self) -> str:
        text = "mean ± standard error over test examples"
        return f"{text}; distances to {self.reference}" if self.reference else text

    def _titles(self) -> list[str]:
        arrows = {"higher": "↑", "lower": "↓"}
        return [f"{column.replace('_', ' ')} {arrows[BETTER[column]]}" for column in self.columns]

    def _cells(self) -> list[list[str]]:
        return [[name, *(format_score(score) for score in row.values())] for name, row in self.rows.items()]


def compare(
    posteriors: Mapping[str, Any], data: Any, *, reference: str | None = None, draws: int | None = None
) -> Comparison:
    """Score several posteriors on one test set.

    Args:
        posteriors: by name; a value may also be a predictive for the same inputs.
        data: the test set ``(x, y)``.
        reference: the name of one of them, usually HMC's: the others' distances to it are added.
        draws: how many draws each prediction averages; see :meth:`Posterior.predict`.

    >>> import equinox as eqx, jax, posteriax as px
    >>> train, test = px.data.two_moons()
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical())
    >>> posterior = px.fit(problem, train, px.MAP(), epochs=1, key=0)
    >>> px.compare({"MAP": posterior}, test).columns
    ['accuracy', 'nll', 'ece', 'brier']
    """
    if not posteriors:
        raise ValueError("posteriors is empty: name at least one")
    if reference is not None and reference not in posteriors:
        raise ValueError(f"reference {reference!r} is none of the posteriors: {', '.join(map(repr, posteriors))}")
    x, y = check_data(data)
    predictives: dict[str, Any] = {
        name: value.predict(x, draws=draws) if isinstance(value, Posterior) else value
        for name, value in posteriors.items()
    }
    rows = {name: scores(predictive, y) for name, predictive in predictives.items()}
    if reference is not None:
        for name, predictive in predictives.items():
            rows[name].update(distances(predictive, predictives[reference]))
    return Comparison(rows, reference)


def format_score(score: Score) -> str:
    """As many digits as the error allows; three where there is no error.

    >>> format_score(Score(0.13241, 0.0042)), format_score(Score(0.9, 0.0)), format_score(Score(0.0123))
    ('0.132 ± 0.004', '0.900 ± 0', '0.012')
    """
    value, error = score
    if not math.isfinite(value):
        return str(value)
    if not math.isfinite(error):
        return f"{value:.3f}"
    if error == 0.0:
        return f"{value:.3f} ± 0"
    digits = max(0, -math.floor(math.log10(error)))
    return f"{value:.{digits}f} ± {error:.{digits}f}"
