"""``px.stack``: one mixture of several models, or of the chains of one, by how well each predicts rows left out.

    w = argmax over the simplex of  sum_i log sum_k w_k p_k(y_i | x_i, without row i)

Not the probabilities of the models: if none is right, the mixture may be better than the best of them, and if chains
have not mixed, their weights no longer depend on how many ended in which mode (Yao et al. 2018; Yao, Vehtari and
Gelman 2022). The sum is concave in w; the updates are those of EM, which raise it at every step.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree
from scipy.special import logsumexp

from posteriax._internal.checks import check_count, check_data
from posteriax.evaluation.compare import Baseline, Mixture
from posteriax.evaluation.loo import loo
from posteriax.likelihoods.classes import Categorical, ClassPredictive
from posteriax.likelihoods.normal import Normal, NormalPredictive
from posteriax.likelihoods.numbers import InUnits
from posteriax.likelihoods.predictive import Predictive
from posteriax.posterior.draws import DrawsPosterior
from posteriax.posterior.posterior import Posterior

DRAWS = 400  # of the mixture
STEPS, SETTLED = 5000, 1e-10  # of the weights: updates at most, and the gain per row that ends them
NEGLIGIBLE = 1e-4  # a smaller weight is 0

Model = Posterior | Baseline


@dataclass(frozen=True, eq=False)
class Stacked(Mixture):
    """A mixture of models, which `px.compare` takes as a row; prints as a table of weights.

    Args:
        models: by name.
        weights: of each, summing to 1.
        log_scores: of each row and model, (N, models), by which the weights were chosen.
    """

    models: dict[str, Model]
    weights: dict[str, float]
    log_scores: np.ndarray

    def predict(self, x: PyTree, draws: int | None = None, *, key: Any = 0) -> Predictive:
        """Predictions of the mixture.

        Args:
            x: inputs.
            draws: of the mixture, shared out in proportion to the weights; 400 by default.
            key: for random draws.
        """
        used = {name: weight for name, weight in self.weights.items() if weight > 0}
        predictives = [_predict(self.models[name], x, key) for name in used]
        return mix(predictives, list(used.values()), draws or DRAWS)

    @property
    def description(self) -> str:
        """One sentence: of what it is a mixture.

        >>> Stacked({}, {"ensemble": 0.75, "forest": 0.25, "ridge": 0.0}, np.zeros((1, 3))).description
        'A mixture of ensemble (0.75) and forest (0.25), weighted by how well each predicts rows left out.'
        """
        used = [f"{name} ({weight:.2f})" for name, weight in self.weights.items() if weight > 0]
        listed = " and ".join([", ".join(used[:-1]), used[-1]]) if len(used) > 1 else used[0]
        return f"A mixture of {listed}, weighted by how well each predicts rows left out."

    @property
    def log_score(self) -> float:
        """Of the mixture on the rows that its weights were chosen by, nats per row: a little optimistic."""
        return float(logsumexp(self.log_scores + _log(list(self.weights.values())), axis=1).mean())

    def __str__(self) -> str:
        width = max(map(len, [*self.weights, "mixture"]))
        lines = [f"{'':{width}}  weight  log score per row"]
        for (name, weight), score in zip(self.weights.items(), self.log_scores.mean(axis=0), strict=True):
            lines.append(f"{name:{width}}  {weight:6.3f}  {score:.4f}")
        return "\n".join([*lines, f"{'mixture':{width}}          {self.log_score:.4f}"])


def stack(models: Mapping[str, Model] | Posterior, data: PyTree, *, held_out: bool = False) -> Stacked:
    """Weights under which the mixture of several models predicts best.

    Args:
        models: by name; or one posterior of several chains, each of which becomes a model.
        data: ``(x, y)``: the rows that the models were inferred from, which are left out one at a time
            (:func:`px.loo`), or, with `held_out`, rows that none of them has seen.
        held_out: which of the two. Baselines, modes and ensembles have no draws to leave a row out by: they need rows
            that they have not seen.

    >>> import numpy as np, posteriax as px
    >>> x = np.linspace(-1, 1, 40, dtype=np.float32)[:, None]
    >>> linear = lambda w, x: x @ w, np.zeros((1, 1), np.float32)
    >>> constant = lambda w, x: 0 * x + w, np.zeros((1, 1), np.float32)
    >>> fit = lambda net: px.fit(px.Problem(net, px.Normal(scale=0.1)), (x, x), px.HMC(warmup=50), draws=100, key=0)
    >>> stacked = stack({"linear": fit(linear), "constant": fit(constant)}, (x, x))
    >>> stacked.weights["linear"] > 0.95
    True
    """
    if isinstance(models, Posterior):
        models = chains_of(models)
    if not isinstance(models, Mapping) or not models:
        raise TypeError(
            f'stack takes models by name, {{"hmc": posterior, ...}}, or a posterior of chains, got {models!r}'
        )
    x, y = check_data(data)
    scores = np.stack([_log_scores(name, model, x, y, held_out) for name, model in models.items()], axis=1)
    if not np.isfinite(scores).any(axis=1).all():
        raise ValueError("some rows have a probability of 0 under every model")
    weights = stacking_weights(scores)
    named = {str(name): float(weight) for name, weight in zip(models, weights, strict=True)}
    return Stacked({str(name): model for name, model in models.items()}, named, scores)


def chains_of(posterior: Posterior) -> dict[str, Model]:
    """The chains, or members, of a posterior, each as a posterior of its own."""
    if not isinstance(posterior, DrawsPosterior) or posterior.chains < 2:
        raise ValueError(f"stack needs several chains or several models, got {posterior!r}")

    def chain(index: int) -> DrawsPosterior:
        draws = jax.tree.map(lambda leaf: np.asarray(leaf)[index : index + 1], posterior.draws)
        return replace(posterior, draws=draws)

    return {f"chain {index}": chain(index) for index in range(posterior.chains)}


def stacking_weights(log_scores: np.ndarray) -> np.ndarray:
    """The weights of a mixture that maximise its log score, from those of its parts, (rows, models).

    >>> scores = np.log([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9]])  # two rows of three are predicted by the first model
    >>> stacking_weights(scores).round(3).tolist()  # 2/3, stretched by what the other one knows of these rows
    [0.708, 0.292]
    """
    relative = np.exp(log_scores - log_scores.max(axis=1, keepdims=True))
    weights = np.full(log_scores.shape[1], 1 / log_scores.shape[1])
    reached = -np.inf
    for _ in range(STEPS):
        mixture = relative @ weights
        gained, reached = float(np.log(mixture).mean()) - reached, float(np.log(mixture).mean())
        if gained < SETTLED:
            break
        weights = weights * (relative / mixture[:, None]).mean(axis=0)
    weights = np.where(weights < NEGLIGIBLE, 0.0, weights)
    return weights / weights.sum()


def mix(predictives: Sequence[Predictive], weights: Sequence[float], draws: int) -> Predictive:
    """One predictive with draws of several in proportion to their weights."""
    check_count("draws", draws)
    counts = _shares(np.asarray(weights, float), draws)
    chosen = [(predictive, count) for predictive, count in zip(predictives, counts, strict=True) if count]
    if all(isinstance(predictive, ClassPredictive) for predictive, _ in chosen):
        parts = [_take(np.asarray(predictive.log_probs_per_draw), count) for predictive, count in chosen]  # type: ignore[attr-defined]
        return ClassPredictive(Categorical(), np.concatenate(parts))
    if all(isinstance(predictive, NormalPredictive) for predictive, _ in chosen):
        return _mixed_normals([(predictive, count) for predictive, count in chosen])
    first: Any = chosen[0][0]
    if all(getattr(predictive, "likelihood", None) == first.likelihood for predictive, _ in chosen):
        outputs = np.concatenate([_take(predictive.outputs, count) for predictive, count in chosen])  # type: ignore[attr-defined]
        latents = [
            jax.tree.map(lambda leaf, n=count: _take(np.asarray(leaf), n), predictive.latents)  # type: ignore[attr-defined]
            for predictive, count in chosen
        ]
        return first.likelihood.predictive(outputs, jax.tree.map(lambda *leaves: np.concatenate(leaves), *latents))
    kinds = ", ".join(type(predictive).__name__ for predictive, _ in chosen)
    raise TypeError(f"these predictions cannot be mixed, since their noise is of different kinds: {kinds}")


def _mixed_normals(chosen: Sequence[tuple[Any, int]]) -> Predictive:
    """Gaussians of any means and scales, as a network that predicts both would give them."""
    units = chosen[0][0].likelihood.units
    parts = []
    for predictive, count in chosen:
        mean, scale = (np.asarray(moment, np.float64) for moment in predictive.moments_per_draw)
        noise = np.maximum(scale / units.scale - 1e-6, 1e-12)  # the floor of a predicted noise
        raw = np.where(noise > 30, noise, np.log(np.expm1(np.minimum(noise, 30))))  # softplus, inverted
        parts.append(_take(np.concatenate([units.standardise(mean), raw], axis=-1).astype(np.float32), count))
    likelihood = InUnits(Normal(scale="predicted"), units.offset, units.scale)
    return likelihood.predictive(np.concatenate(parts), {})


def _predict(model: Model, x: PyTree, key: Any) -> Predictive:
    return model.predict(x, key=key) if isinstance(model, Posterior) else model.predict(x)


def _log_scores(name: str, model: Model, x: PyTree, y: np.ndarray, held_out: bool) -> np.ndarray:
    if held_out:
        return np.asarray(model.predict(x).log_prob(y), np.float64)
    if not isinstance(model, Posterior):
        raise TypeError(f"{name!r} has no draws to leave a row out by: give rows it has not seen, with held_out=True")
    return loo(model, (x, y)).pointwise


def _shares(weights: np.ndarray, draws: int) -> np.ndarray:
    """Whole numbers in proportion to weights: the largest remainders are rounded up.

    >>> _shares(np.array([0.5, 0.26, 0.24]), 10).tolist()
    [5, 3, 2]
    """
    exact = draws * weights / weights.sum()
    counts = np.floor(exact).astype(int)
    order = np.argsort(-(exact - counts), kind="stable")
    counts[order[: draws - counts.sum()]] += 1
    return counts


def _take(values: np.ndarray, count: int) -> np.ndarray:
    """`count` draws, evenly spaced, or repeated evenly."""
    return values[(np.arange(count) * len(values)) // count]


def _log(weights: Sequence[float]) -> np.ndarray:
    return np.array([math.log(weight) if weight > 0 else -np.inf for weight in weights])
