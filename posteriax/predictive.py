"""Predictive: what a posterior says about new inputs, draw by draw, and everything derived from that.

    p(y | x, D) ~ 1/S sum_s p(y | x, w_s)

The outputs of every draw are kept, so that what the draws agree on can be told from what they do not.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp, xlogy
from jax.scipy.stats import norm

from posteriax.checks import check_targets
from posteriax.likelihoods import Likelihood, Normal


class Predictive(Protocol):
    """Predictions for N examples from S draws."""

    @property
    def outputs(self) -> np.ndarray: ...  # (S, N, ...) the network's outputs for every draw

    @property
    def mean(self) -> np.ndarray: ...

    @property
    def std(self) -> np.ndarray: ...

    def quantile(self, q: Any) -> np.ndarray: ...

    def entropy(self) -> np.ndarray: ...

    def mutual_information(self) -> np.ndarray: ...

    def log_prob(self, y: Any) -> np.ndarray: ...


@dataclass(frozen=True, eq=False)
class ClassPredictive:
    """Predictions of classes.

    >>> import equinox as eqx, jax, posteriax as px
    >>> net = eqx.nn.Linear(3, 2, key=jax.random.key(0))
    >>> predictive = px.ClassPredictive(px.Categorical(), np.zeros((5, 4, 2)))  # 5 draws, 4 examples, 2 classes
    >>> predictive.probs.shape, predictive.entropy().round(3)[0].item()
    ((4, 2), 0.693...)
    """

    likelihood: Likelihood
    outputs: np.ndarray

    @property
    def log_probs_per_draw(self) -> jax.Array:
        """log p(class | x, w_s), (S, N, C)."""
        return jax.vmap(self.likelihood.log_probs)(jnp.asarray(self.outputs))  # type: ignore[attr-defined]

    @property
    def probs(self) -> np.ndarray:
        """p(class | x, D), (N, C): the mean of the draws' probabilities."""
        return np.asarray(jnp.exp(self.log_probs_per_draw).mean(axis=0))

    @property
    def mean(self) -> np.ndarray:
        """The same as `probs`: the mean of the one-hot label."""
        return self.probs

    @property
    def std(self) -> np.ndarray:
        """Standard deviation over draws of every class's probability, (N, C): what the draws disagree about."""
        return np.asarray(jnp.exp(self.log_probs_per_draw).std(axis=0))

    def quantile(self, q: Any) -> np.ndarray:
        """Quantiles over draws of every class's probability, (len(q), N, C), or (N, C) for one q."""
        return np.asarray(jnp.quantile(jnp.exp(self.log_probs_per_draw), jnp.asarray(q), axis=0))

    def entropy(self) -> np.ndarray:
        """Entropy of `probs` in nats, (N,): all of the uncertainty about the label."""
        return np.asarray(_entropy(jnp.asarray(self.probs)))

    def mutual_information(self) -> np.ndarray:
        """Between label and weights, in nats, (N,): the part of the entropy that more data could remove.

        I(y; w | x) = H[mean_s p_s] - mean_s H[p_s]
        """
        per_draw = _entropy(jnp.exp(self.log_probs_per_draw)).mean(axis=0)
        return np.maximum(self.entropy() - np.asarray(per_draw), 0.0)

    def log_prob(self, y: Any) -> np.ndarray:
        """log p(y_i | x_i, D) of every example, (N,): the log of the mean over draws, formed in the log domain."""
        labels = jnp.asarray(self.check(y))
        per_draw = jax.vmap(lambda outputs: self.likelihood.log_prob({}, outputs, labels))(jnp.asarray(self.outputs))
        return np.asarray(_log_mean(per_draw))

    def check(self, y: Any) -> np.ndarray:
        """The labels, checked against the predictions."""
        return _check(self.likelihood, self.outputs, y)


@dataclass(frozen=True, eq=False)
class NormalPredictive:
    """Predictions of real numbers: a mixture of one Gaussian per draw.

    Args:
        likelihood: the noise model.
        outputs: the network's outputs for every draw, (S, N, ...).
        unknowns: the likelihood's own unknowns for every draw.

    >>> import posteriax as px
    >>> predictive = px.NormalPredictive(px.Normal(scale=1.0), np.zeros((5, 4, 1)), {})
    >>> predictive.std[0].item(), predictive.quantile(0.5)[0].round(3).item()
    (1.0, ...0.0)
    """

    likelihood: Normal
    outputs: np.ndarray
    unknowns: dict[str, Any]

    @property
    def moments_per_draw(self) -> tuple[jax.Array, jax.Array]:
        """Mean and noise scale of every draw, (S, N, D)."""
        return jax.vmap(self.likelihood.moments)(self.unknowns, jnp.asarray(self.outputs))

    @property
    def mean(self) -> np.ndarray:
        """E[y | x, D], (N, D)."""
        return np.asarray(self.moments_per_draw[0].mean(axis=0))

    @property
    def std(self) -> np.ndarray:
        """Standard deviation of y, (N, D): noise and disagreement of the draws together.

        Var[y] = mean_s sigma_s^2 + Var_s[mu_s]
        """
        mean, scale = self.moments_per_draw
        return np.asarray(jnp.sqrt(jnp.square(scale).mean(axis=0) + mean.var(axis=0)))

    def quantile(self, q: Any) -> np.ndarray:
        """Quantiles of y, (len(q), N, D), or (N, D) for one q: of the exact mixture, found by bisection."""
        levels = jnp.asarray(q)
        if bool(((levels <= 0) | (levels >= 1)).any()):
            raise ValueError(f"q must lie strictly between 0 and 1, got {q}")
        mean, scale = self.moments_per_draw
        return np.asarray(jax.vmap(lambda level: _mixture_quantile(mean, scale, level))(levels.reshape(-1))).reshape(
            *levels.shape, *mean.shape[1:]
        )

    def entropy(self) -> np.ndarray:
        """Differential entropy of each target's mixture, in nats, (N, D)."""
        return np.asarray(_mixture_entropy(*self.moments_per_draw))

    def mutual_information(self) -> np.ndarray:
        """Between target and weights, in nats, (N, D): the mixture's entropy less the draws' own."""
        own = 0.5 * jnp.log(2 * jnp.pi * jnp.e * jnp.square(self.moments_per_draw[1])).mean(axis=0)
        return np.maximum(self.entropy() - np.asarray(own), 0.0)

    def log_prob(self, y: Any) -> np.ndarray:
        """log p(y_i | x_i, D) of every example, (N,): the log of the mean over draws, formed in the log domain."""
        targets = jnp.asarray(self.check(y))
        per_draw = jax.vmap(lambda u, outputs: self.likelihood.log_prob(u, outputs, targets))(
            self.unknowns, jnp.asarray(self.outputs)
        )
        return np.asarray(_log_mean(per_draw))

    def check(self, y: Any) -> np.ndarray:
        """The targets, checked against the predictions."""
        return _check(self.likelihood, self.outputs, y)


def _check(likelihood: Likelihood, outputs: np.ndarray, y: Any) -> np.ndarray:
    y = check_targets(y)
    if y.ndim == 0 or y.shape[0] != outputs.shape[1]:
        raise ValueError(f"y has shape {y.shape}, but there are predictions for {outputs.shape[1]} examples")
    return likelihood.check(jax.ShapeDtypeStruct(outputs.shape[1:], outputs.dtype), y)


def _entropy(probs: jax.Array) -> jax.Array:
    return -xlogy(probs, probs).sum(axis=-1)


def _log_mean(log_values: jax.Array) -> jax.Array:
    return logsumexp(log_values, axis=0) - jnp.log(log_values.shape[0])


@jax.jit
def _mixture_quantile(mean: jax.Array, scale: jax.Array, level: jax.Array) -> jax.Array:
    components = mean + scale * norm.ppf(level)
    # the mixture's quantile lies between the smallest and the largest of its components'
    low, high = components.min(axis=0), components.max(axis=0)

    def halve(_: Any, bounds: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = bounds
        middle = (low + high) / 2
        below = norm.cdf((middle - mean) / scale).mean(axis=0) < level
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    low, high = jax.lax.fori_loop(0, 40, halve, (low, high))
    return (low + high) / 2


@jax.jit
def _mixture_entropy(mean: jax.Array, scale: jax.Array) -> jax.Array:
    """-E[log p] with Gauss-Hermite nodes at each component; of many draws, 200 spread evenly serve as centres."""
    nodes, weights = np.polynomial.hermite.hermgauss(16)
    centres = np.linspace(0, mean.shape[0] - 1, min(mean.shape[0], 200)).round().astype(int)

    def of_centre(centre: tuple[jax.Array, jax.Array]) -> jax.Array:
        points = centre[0] + np.sqrt(2.0) * centre[1] * nodes.reshape(-1, *[1] * centre[0].ndim)
        log_density = _log_mean(norm.logpdf(points[None], mean[:, None], scale[:, None]))
        return -jnp.tensordot(weights / np.sqrt(np.pi), log_density, axes=1)

    return jax.lax.map(of_centre, (mean[centres], scale[centres])).mean(axis=0)
