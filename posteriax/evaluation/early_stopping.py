"""``px.EarlyStopping``: the stopping rule that knows scores by name."""

from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from posteriax._internal.checks import check_count
from posteriax.evaluation.evaluate import evaluate
from posteriax.metrics.registry import choose
from posteriax.metrics.score import Score
from posteriax.posterior.posterior import Posterior
from posteriax.problem import Problem
from posteriax.run.stopping import StoppingRule


@dataclass(frozen=True, kw_only=True, eq=False)
class EarlyStopping(StoppingRule):
    """The best posterior of a run by a score on held-out data, for ``px.fit(..., stop=px.EarlyStopping(...))``.

    The run ends after `patience` evaluations without improvement, and at its full length otherwise; either way the
    posterior is that of the best evaluation. The trace has the values ("validation_nll") and their steps
    ("validation_step"), and a note that says when it stopped. A checkpoint stores the best state, so that a resumed run
    ends the same, bit for bit.

    For methods that optimise. The members of an ensemble stop together, by the score of their joint predictive: that is
    what the ensemble is for. Samplers and SWAG, whose posterior is collected until the end, are refused.

    Args:
        metric: a score that :func:`px.evaluate` takes, by name, or a :class:`px.metrics.Score`.
        patience: evaluations without improvement after which the run ends.
        every: epochs between evaluations; fractions are fine. The last step is always evaluated.
        validation: held-out data ``(x, y)``.
        fraction: the part of the training data to hold out instead, drawn by the run's key. The posterior is then that
            of the remaining examples: N, and with it the weight of the likelihood against the prior, is theirs.
        draws: draws of the weights to predict with; the same random numbers at every evaluation.

    >>> import equinox as eqx, jax, posteriax as px
    >>> (x, y), _ = px.data.two_moons(train=100)
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical())
    >>> stop = px.EarlyStopping(fraction=0.2, patience=3, every=20)
    >>> posterior = px.fit(problem, (x, y), px.MAP(), epochs=100, key=0, stop=stop)
    >>> posterior.trace["validation_nll"].shape == posterior.trace["validation_step"].shape
    True
    """

    metric: str | Score = "nll"
    draws: int = 32
    score: Score = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("draws", self.draws)
        (score,) = choose([self.metric], None)
        if score.against_reference or score.per_example is None or score.better is None:
            raise ValueError(f"metric {score.name!r} cannot say which of two posteriors is better on held-out data")
        object.__setattr__(self, "score", score)

    @property
    def name(self) -> str:
        return self.score.name

    @property
    def settings(self) -> str:
        return f"{self.name} of {self.draws} draws"

    def check(self, problem: Problem, x: Any, y: Any) -> None:
        shape, latents = problem.output_spec(x).shape, problem.likelihood.latents()
        one_draw = jax.tree.map(lambda leaf: np.asarray(leaf)[None], latents)
        predictive = problem.likelihood.predictive(np.zeros((1, *shape), np.float32), one_draw)
        try:  # on outputs that are all 0
            evaluate(predictive, y, scores=[self.score])
        except (TypeError, ValueError) as error:
            raise ValueError(f"metric {self.name!r} does not suit {problem.likelihood!r}: {error}") from error

    def measure(self, posterior: Posterior, x: Any, y: Any) -> float:
        return evaluate(posterior.predict(x, draws=self.draws), y, scores=[self.score])[self.name]

    def loss(self, value: float) -> float:
        return self.score.loss(value)
