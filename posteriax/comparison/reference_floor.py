"""The floor of distances to a reference: how far two halves of its own chains are from each other, by chance alone."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import jax

from posteriax.metrics import Estimate, Score


def reference_floor(predictive: Any, scores: Iterable[Score]) -> dict[str, Estimate]:
    """By score, the distance between the predictions of the first half of the draws and those of the second.

    A posterior that was sampled gives all draws of a chain before those of the next, so that these are other chains.
    Empty if the draws were not kept.

    >>> import numpy as np, posteriax as px
    >>> draws = np.random.default_rng(0).normal(size=(40, 200, 3)).astype(np.float32)
    >>> floor = reference_floor(px.ClassPredictive(px.Categorical(), draws), [px.metrics.SCORES["total_variation"]])
    >>> bool(0.01 < floor["total_variation"].value < 0.1)
    True
    """
    outputs = getattr(predictive, "outputs", None)
    if outputs is None or len(outputs) < 2:
        return {}
    middle = len(outputs) // 2

    def half(draws: slice) -> Any:
        latents = jax.tree.map(lambda leaf: leaf[draws], predictive.latents)
        return replace(predictive, outputs=outputs[draws], latents=latents)

    halves = half(slice(0, middle)), half(slice(middle, 2 * middle))
    return {score.name: score.estimate(score.values(*halves)) for score in scores}
