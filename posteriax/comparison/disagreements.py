"""Where methods disagree most about the same example."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from posteriax.posterior import Predictive

FEW = 8  # examples to keep


@dataclass(frozen=True, eq=False)
class Disagreement:
    """A test example about which methods disagree.

    Args:
        index: its row in the test set.
        x: its inputs, or the first of several arrays.
        true: its label or number.
        predicted: by method, a label or a mean.
        certainty: by method, the probability of the label, or a standard deviation.
    """

    index: int
    x: np.ndarray
    true: float
    predicted: Mapping[str, float] = field(default_factory=dict)
    certainty: Mapping[str, float] = field(default_factory=dict)


def find_disagreements(predictives: Mapping[str, Predictive], x: Any, y: Any) -> tuple[Disagreement, ...]:
    """The examples about which the methods disagree most, by the median distance of their answers from the middle.

    The distance is that of probabilities (summed over classes, plus the share of methods that do not predict the most
    frequent label), or of means. The median, so that one method that is off everywhere does not decide.

    >>> import posteriax as px
    >>> logits = np.zeros((2, 1, 3, 2), np.float32)
    >>> logits[0, 0, 1] = [4.0, -4.0]  # one is sure of the first label of the second example, the other undecided
    >>> two = {name: px.ClassPredictive(px.Categorical(), own) for name, own in zip("ab", logits)}
    >>> find_disagreements(two, np.zeros((3, 1)), np.array([0, 0, 0]))[0].index
    1
    """
    first, *others = predictives.values()
    if not others or (first.point().ndim > 1 and first.point()[0].size > 1):
        return ()
    answers = np.stack([np.asarray(own.mean, np.float64).reshape(len(own.mean), -1) for own in predictives.values()])
    middle = np.median(answers, axis=0)
    apart = np.median(np.abs(answers - middle).sum(axis=2), axis=0)
    if len(answers) < 4:  # of two or three, the median is one of them, at the distance 0
        apart = np.abs(answers - middle).sum(axis=2).mean(axis=0)
    if first.confidence() is not None:
        apart = apart + _minority(np.stack([own.point() for own in predictives.values()]))
    apart = np.where(np.isfinite(apart), apart, -1.0)
    chosen = [int(i) for i in np.argsort(-apart, kind="stable")[:FEW] if apart[i] > 0]
    true = np.asarray(first.check(y) if first.confidence() is not None else first.targets(y)).reshape(len(apart), -1)
    inputs = jax.tree.leaves(x)[0]
    points = {name: own.point().reshape(len(apart), -1)[:, 0] for name, own in predictives.items()}
    sure = {name: _certainty(own) for name, own in predictives.items()}
    return tuple(
        Disagreement(
            i,
            np.asarray(inputs[i]),
            float(true[i, 0]),
            {name: float(values[i]) for name, values in points.items()},
            {name: float(values[i]) for name, values in sure.items()},
        )
        for i in chosen
    )


def _minority(labels: np.ndarray) -> np.ndarray:
    """Of methods' labels, (methods, N), the share that differ from the most frequent one, (N,).

    >>> _minority(np.array([[0, 1], [0, 1], [1, 1]])).round(2).tolist()
    [0.33, 0.0]
    """
    agreeing = (labels[:, None] == labels[None]).sum(axis=1).max(axis=0)
    return 1 - agreeing / len(labels)


def _certainty(predictive: Predictive) -> np.ndarray:
    confidence = predictive.confidence()
    return np.asarray(predictive.std).reshape(len(predictive.std), -1)[:, 0] if confidence is None else confidence
