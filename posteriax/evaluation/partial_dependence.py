"""Partial dependence: how predictions and their uncertainty change with one column of a table, on average over rows.

    f_s(v) = 1/N sum_i E[y | x_i with the column set to v, w_s]        w_s: one draw of the weights

The curve is the mean over draws, and its credible band holds 90 % of them: what the posterior does not know about the
effect. The mean predictive interval and uncertainty at v include the noise. (Friedman 2001)

A column may be several inputs of the network, such as one for each category: :class:`Feature` says which.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from posteriax._internal.checks import check_count, check_inputs
from posteriax.evaluation.compare import Baseline
from posteriax.likelihoods.predictive import Predictive
from posteriax.posterior.posterior import Posterior

BAND = (0.05, 0.95)
ROWS_TO_RANK = 20_000  # for all columns together
FEWEST_TO_RANK = 20
DECILES = np.arange(1, 10) / 10


@dataclass(frozen=True)
class Feature:
    """A column of a table, and the inputs of the network that it became.

    Args:
        name: of the column.
        inputs: its positions among the network's inputs.
        offset, scale: of its units: value = offset + scale * input.
        unit: of the values, such as "years".
        levels: of a categorical column: by category, the values of its inputs.
        marks: inputs that mark missing values: 0 while the column varies.

    >>> Feature("age", (0,), offset=40.0, scale=12.0, unit="years").heading
    'age (years)'
    """

    name: str
    inputs: tuple[int, ...]
    offset: float = 0.0
    scale: float = 1.0
    unit: str = ""
    levels: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    marks: tuple[int, ...] = ()

    @property
    def heading(self) -> str:
        """The name, with its unit."""
        return f"{self.name} ({self.unit})" if self.unit else self.name


@dataclass(frozen=True, eq=False)
class PartialDependence:
    """The effect of one column, at k of its values, as :func:`partial_dependence` finds it.

    Args:
        feature: the column.
        values: in its units, (k,); for categories 0 to k - 1.
        mean: the mean prediction, (k, outputs): numbers, probabilities of all classes, or of the second of two.
        low, high: of the credible band of `mean`, (k, outputs).
        interval_low, interval_high: of the mean 90 % interval of a number, (k, outputs); empty for classes.
        uncertainty: the mean predictive standard deviation, or for classes the entropy in nats, (k,).
        influence: by how much predictions change, on average, if the column is shuffled.
        observed: the deciles of the column's values, or the share of each category.
    """

    feature: Feature
    values: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    interval_low: np.ndarray
    interval_high: np.ndarray
    uncertainty: np.ndarray
    influence: float
    observed: np.ndarray


def partial_dependence(
    posterior: Posterior | Baseline,
    x: ArrayLike,
    features: Sequence[Feature] | None = None,
    *,
    most: int = 8,
    points: int = 20,
    rows: int = 100,
    draws: int = 50,
    seed: int = 0,
) -> tuple[PartialDependence, ...]:
    """The effects of the columns that matter most, the largest first.

    Args:
        posterior: or a :class:`px.evaluation.Baseline`, whose bands have no width.
        x: inputs of the rows to average over, such as the test set's, (N, columns).
        features: the columns; by default every input is one.
        most: how many to return.
        points: how many values of a numeric column.
        rows: how many rows to average over, at random if there are more.
        draws: how many draws.
        seed: of the choice of rows, and of the shuffles that rank the columns.

    >>> import jax.numpy as jnp, posteriax as px
    >>> x = np.random.default_rng(0).normal(size=(80, 3)).astype(np.float32)
    >>> net = (lambda params, x: x @ params["w"], {"w": jnp.zeros((3, 1))})
    >>> posterior = px.fit(px.Problem(net, px.Normal()), (x, 2 * x[:, 1]), px.MAP(), steps=500, key=0)
    >>> first, *others = px.evaluation.partial_dependence(posterior, x)
    >>> first.feature.name, first.mean.shape, bool(first.mean[-1] > first.mean[0])
    ('x2', (20, 1), True)
    """
    x = check_inputs(x)
    if not isinstance(x, np.ndarray) or x.ndim != 2:
        raise ValueError(f"x must be a table, (rows, columns), got {getattr(x, 'shape', type(x).__name__)}")
    for name, value in (("most", most), ("points", points), ("rows", rows), ("draws", draws)):
        check_count(name, value)
    if features is None:
        features = [Feature(f"x{i + 1}", (i,)) for i in range(x.shape[1])]
    rng = np.random.default_rng(seed)
    chosen = x[rng.permutation(len(x))[:rows]]
    influences = _influences(posterior, chosen, features, draws, rng)
    order = np.argsort(-influences, kind="stable")[:most]
    grids = [_grid(features[j], x, points) for j in order]
    stacked = [
        _with_column(chosen, features[j], setting)
        for j, (_, grid) in zip(order, grids, strict=True)
        for setting in grid
    ]
    curves = _Curves(posterior.predict(np.concatenate(stacked), draws=draws), len(chosen))
    effects, start = [], 0
    for j, (values, grid) in zip(order, grids, strict=True):
        part = slice(start, start + len(grid))
        start += len(grid)
        effects.append(curves.effect(features[j], values, part, float(influences[j]), _observed(features[j], x, grid)))
    return tuple(effects)


class _Curves:
    """Averages over rows of the predictions for all grid points, one after another."""

    def __init__(self, predictive: Predictive, rows: int):
        over_rows = lambda values: values.reshape(*values.shape[:-2], -1, rows, values.shape[-1]).mean(axis=-2)  # noqa: E731
        per_draw = over_rows(np.asarray(predictive.means_per_draw(), np.float64))  # (draws, grid points, outputs)
        self.mean = per_draw.mean(axis=0)
        self.low, self.high = np.quantile(per_draw, BAND, axis=0)
        is_number = predictive.confidence() is None
        spread = predictive.std if is_number else predictive.entropy()
        self.uncertainty = np.asarray(spread, np.float64).reshape(len(self.mean), -1).mean(axis=1)
        self.intervals = np.zeros((2, len(self.mean), 0))
        if is_number:
            ends = np.stack([np.asarray(end, np.float64) for end in predictive.interval(0.9)])
            self.intervals = over_rows(ends.reshape(2, ends.shape[1], -1))

    def effect(
        self, feature: Feature, values: np.ndarray, part: slice, influence: float, observed: np.ndarray
    ) -> PartialDependence:
        return PartialDependence(
            feature,
            values,
            mean=self.mean[part],
            low=self.low[part],
            high=self.high[part],
            interval_low=self.intervals[0][part],
            interval_high=self.intervals[1][part],
            uncertainty=self.uncertainty[part],
            influence=influence,
            observed=observed,
        )


def _influences(
    posterior: Posterior | Baseline, x: np.ndarray, features: Sequence[Feature], draws: int, rng: np.random.Generator
) -> np.ndarray:
    """The mean absolute change of predictions if a column is shuffled among the rows."""
    few = x[: max(FEWEST_TO_RANK, ROWS_TO_RANK // len(features))]
    shuffled = []
    for feature in features:
        columns = [*feature.inputs, *feature.marks]
        changed = few.copy()
        changed[:, columns] = few[rng.permutation(len(few))][:, columns]
        shuffled.append(changed)
    mean = np.asarray(posterior.predict(np.concatenate([few, *shuffled]), draws=draws).mean, np.float64)
    before, *after = mean.reshape(len(features) + 1, len(few), -1)
    return np.array([np.abs(other - before).mean() for other in after])


def _grid(feature: Feature, x: np.ndarray, points: int) -> tuple[np.ndarray, np.ndarray]:
    """The values to show, in the column's units, and the settings of its inputs, (k, inputs)."""
    if feature.levels:
        settings = np.array(list(feature.levels.values()), np.float64)
        return np.arange(len(settings), dtype=np.float64), settings
    if len(feature.inputs) != 1:
        raise ValueError(f"column {feature.name!r} is {len(feature.inputs)} inputs: give its values in `levels`")
    present = _present(feature, x)
    inputs = np.unique(present)
    if len(inputs) > points:
        inputs = np.unique(np.quantile(present, np.linspace(0.02, 0.98, points)))
    return feature.offset + feature.scale * inputs.astype(np.float64), inputs[:, None]


def _present(feature: Feature, x: np.ndarray) -> np.ndarray:
    """The values of a numeric column's input, without those that are missing."""
    present = (x[:, list(feature.marks)] == 0).all(axis=1)
    return x[present if present.any() else slice(None), feature.inputs[0]]


def _observed(feature: Feature, x: np.ndarray, grid: np.ndarray) -> np.ndarray:
    if not feature.levels:
        return feature.offset + feature.scale * np.quantile(_present(feature, x), DECILES).astype(np.float64)
    inputs = x[:, list(feature.inputs)]
    return np.array([np.isclose(inputs, setting, atol=1e-4).all(axis=1).mean() for setting in grid])


def _with_column(x: np.ndarray, feature: Feature, setting: np.ndarray) -> np.ndarray:
    changed = x.copy()
    changed[:, list(feature.inputs)] = setting
    changed[:, list(feature.marks)] = 0
    return changed
