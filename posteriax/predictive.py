"""Predictive: what a posterior says about new inputs, draw by draw, and everything derived from that.

    p(y | x, D) ~ 1/S sum_s p(y | x, w_s)

The outputs of every draw are kept, so that what the draws agree on can be told from what they do not; or, where that
would be too much, only sums over the draws.
"""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp, xlogy
from jax.scipy.stats import norm

from posteriax.checks import check_targets
from posteriax.likelihoods import Likelihood, Normal

PART_BYTES = 16 * 2**20


class Predictive(Protocol):
    """Predictions for N examples from S draws."""

    @property
    def mean(self) -> np.ndarray: ...

    @property
    def std(self) -> np.ndarray: ...

    def quantile(self, q: Any) -> np.ndarray: ...

    def entropy(self) -> np.ndarray: ...

    def mutual_information(self) -> np.ndarray: ...

    def log_prob(self, y: Any) -> np.ndarray: ...


class ClassSums(NamedTuple):
    """What predictions of classes need to know of any number of draws: sums over them."""

    count: Any
    log_probs: Any  # log sum_s p_s, (N, C)
    squares: Any  # sum_s p_s^2, (N, C)
    entropy: Any  # sum_s H[p_s], (N,)


class NormalSums(NamedTuple):
    """What predictions of real numbers need to know of any number of draws: sums over them, (N, D) each."""

    count: Any
    mean: Any
    mean_squares: Any
    variance: Any
    log_scale: Any


def sum_classes(likelihood: Any, unknowns: Any, outputs: jax.Array) -> ClassSums:
    """The sums of one draw."""
    log_probs = likelihood.log_probs(outputs)
    probs = jnp.exp(log_probs)
    return ClassSums(jnp.ones(()), log_probs, jnp.square(probs), _entropy(probs))


def sum_normals(likelihood: Normal, unknowns: Any, outputs: jax.Array) -> NormalSums:
    """The sums of one draw."""
    mean, scale = likelihood.moments(unknowns, outputs)
    return NormalSums(jnp.ones(()), mean, jnp.square(mean), jnp.square(scale), jnp.log(scale))


def add_sums(a: Any, b: Any) -> Any:
    """The sums of both sets of draws."""
    if isinstance(a, ClassSums):
        return ClassSums(
            a.count + b.count, jnp.logaddexp(a.log_probs, b.log_probs), a.squares + b.squares, a.entropy + b.entropy
        )
    return jax.tree.map(jnp.add, a, b)


class _FromClassSums:
    """What follows from the sums over draws alone."""

    likelihood: Likelihood
    sums: Any  # ClassSums, kept or computed

    @property
    def probs(self) -> np.ndarray:
        """p(class | x, D), (N, C): the mean of the draws' probabilities."""
        return np.asarray(jnp.exp(self.sums.log_probs - jnp.log(self.sums.count)))

    @property
    def mean(self) -> np.ndarray:
        """The same as `probs`: the mean of the one-hot label."""
        return self.probs

    @property
    def std(self) -> np.ndarray:
        """Standard deviation over draws of every class's probability, (N, C): what the draws disagree about."""
        variance = np.asarray(self.sums.squares) / np.asarray(self.sums.count) - np.square(self.probs)
        return np.sqrt(np.maximum(variance, 0.0))

    def entropy(self) -> np.ndarray:
        """Entropy of `probs` in nats, (N,): all of the uncertainty about the label."""
        return np.asarray(_entropy(jnp.asarray(self.probs)))

    def mutual_information(self) -> np.ndarray:
        """Between label and weights, in nats, (N,): the part of the entropy that more data could remove.

        I(y; w | x) = H[mean_s p_s] - mean_s H[p_s]
        """
        return np.maximum(self.entropy() - np.asarray(self.sums.entropy / self.sums.count), 0.0)

    def log_prob(self, y: Any) -> np.ndarray:
        """log p(y_i | x_i, D) of every example, (N,): the log of the mean over draws, formed in the log domain."""
        labels = self.check(y)
        log_probs = np.asarray(self.sums.log_probs - jnp.log(self.sums.count))
        per_label = np.take_along_axis(log_probs, labels[..., None], axis=-1)[..., 0]
        return per_label.reshape(len(labels), -1).sum(axis=1)

    @abstractmethod
    def check(self, y: Any) -> np.ndarray:
        """The labels, checked against the predictions."""


@dataclass(frozen=True, eq=False)
class ClassPredictive(_FromClassSums):
    """Predictions of classes, with the outputs of every draw.

    Args:
        likelihood: what the outputs mean.
        outputs: the network's outputs for every draw, (S, N, ...).

    >>> import posteriax as px
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

    @cached_property
    def sums(self) -> ClassSums:
        return reduce(add_sums, (_class_sums(self.likelihood, part) for part in _parts(self.outputs)))

    def quantile(self, q: Any) -> np.ndarray:
        """Quantiles over draws of every class's probability, (len(q), N, C), or (N, C) for one q."""
        return np.asarray(jnp.quantile(jnp.exp(self.log_probs_per_draw), jnp.asarray(q), axis=0))

    def log_prob(self, y: Any) -> np.ndarray:
        """log p(y_i | x_i, D) of every example, (N,): the log of the mean over draws, formed in the log domain."""
        labels = jnp.asarray(self.check(y))
        each = jax.jit(jax.vmap(lambda outputs: self.likelihood.log_prob({}, outputs, labels)))
        return np.asarray(_log_mean(jnp.concatenate([each(part) for part in _parts(self.outputs)])))

    def check(self, y: Any) -> np.ndarray:
        return _check(self.likelihood, self.outputs.shape[1:], y)


@dataclass(frozen=True, eq=False)
class ReducedClassPredictive(_FromClassSums):
    """Predictions of classes of which only sums over the draws were kept: no quantiles, no single draws.

    With several labels per example (tokens), `log_prob` treats them as independent.
    """

    likelihood: Likelihood
    sums: ClassSums
    output_shape: tuple[int, ...]

    def quantile(self, q: Any) -> np.ndarray:
        raise _needs_draws("quantile")

    def check(self, y: Any) -> np.ndarray:
        return _check(self.likelihood, self.output_shape, y)


class _FromNormalSums:
    """What follows from the sums over draws alone."""

    likelihood: Normal
    sums: Any  # NormalSums, kept or computed

    @property
    def mean(self) -> np.ndarray:
        """E[y | x, D], (N, D)."""
        return np.asarray(self.sums.mean / self.sums.count)

    @property
    def std(self) -> np.ndarray:
        """Standard deviation of y, (N, D): noise and disagreement of the draws together.

        Var[y] = mean_s sigma_s^2 + Var_s[mu_s]
        """
        between = np.asarray(self.sums.mean_squares / self.sums.count) - np.square(self.mean)
        return np.sqrt(np.asarray(self.sums.variance / self.sums.count) + np.maximum(between, 0.0))


@dataclass(frozen=True, eq=False)
class NormalPredictive(_FromNormalSums):
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

    @cached_property
    def moments_per_draw(self) -> tuple[jax.Array, jax.Array]:
        """Mean and noise scale of every draw, (S, N, D)."""
        return jax.vmap(self.likelihood.moments)(self.unknowns, jnp.asarray(self.outputs))

    @cached_property
    def sums(self) -> NormalSums:
        each = jax.vmap(partial(sum_normals, self.likelihood))(self.unknowns, jnp.asarray(self.outputs))
        return jax.tree.map(lambda leaf: leaf.sum(axis=0), each)

    @property
    def std(self) -> np.ndarray:
        """Standard deviation of y, (N, D): noise and disagreement of the draws together.

        Var[y] = mean_s sigma_s^2 + Var_s[mu_s]
        """
        mean, scale = self.moments_per_draw  # the draws are at hand: no difference of large sums
        return np.asarray(jnp.sqrt(jnp.square(scale).mean(axis=0) + mean.var(axis=0)))

    def quantile(self, q: Any) -> np.ndarray:
        """Quantiles of y, (len(q), N, D), or (N, D) for one q: of the exact mixture, found by bisection."""
        levels = jnp.asarray(q)
        if bool(((levels <= 0) | (levels >= 1)).any()):
            raise ValueError(f"q must lie strictly between 0 and 1, got {q}")
        mean, scale = self.moments_per_draw
        # one level after another: all at once would hold a copy of all draws for each
        quantiles = jax.lax.map(lambda level: _mixture_quantile(mean, scale, level), levels.reshape(-1))
        return np.asarray(quantiles).reshape(*levels.shape, *mean.shape[1:])

    def entropy(self) -> np.ndarray:
        """Differential entropy of each target's mixture, in nats, (N, D)."""
        return np.asarray(_mixture_entropy(*self.moments_per_draw))

    def mutual_information(self) -> np.ndarray:
        """Between target and weights, in nats, (N, D): the mixture's entropy less the draws' own."""
        own = 0.5 * np.log(2 * np.pi * np.e) + np.asarray(self.sums.log_scale / self.sums.count)
        return np.maximum(self.entropy() - own, 0.0)

    def log_prob(self, y: Any) -> np.ndarray:
        """log p(y_i | x_i, D) of every example, (N,): the log of the mean over draws, formed in the log domain."""
        targets = jnp.asarray(self.check(y))
        per_draw = jax.vmap(lambda u, outputs: self.likelihood.log_prob(u, outputs, targets))(
            self.unknowns, jnp.asarray(self.outputs)
        )
        return np.asarray(_log_mean(per_draw))

    def check(self, y: Any) -> np.ndarray:
        """The targets, checked against the predictions."""
        return _check(self.likelihood, self.outputs.shape[1:], y)


@dataclass(frozen=True, eq=False)
class ReducedNormalPredictive(_FromNormalSums):
    """Predictions of real numbers of which only mean and variance were kept."""

    likelihood: Normal
    sums: NormalSums
    output_shape: tuple[int, ...]

    def quantile(self, q: Any) -> np.ndarray:
        raise _needs_draws("quantile")

    def entropy(self) -> np.ndarray:
        raise _needs_draws("entropy")

    def mutual_information(self) -> np.ndarray:
        raise _needs_draws("mutual_information")

    def log_prob(self, y: Any) -> np.ndarray:
        raise _needs_draws("log_prob")

    def check(self, y: Any) -> np.ndarray:
        """The targets, checked against the predictions."""
        return _check(self.likelihood, self.output_shape, y)


def _parts(outputs: np.ndarray) -> Iterator[np.ndarray]:
    """The draws in parts of some megabytes: what is derived from all of them should not hold them several times."""
    size = max(1, PART_BYTES // max(outputs[:1].nbytes, 1))
    return (outputs[first : first + size] for first in range(0, len(outputs), size))


@partial(jax.jit, static_argnums=0)
def _class_sums(likelihood: Any, outputs: jax.Array) -> ClassSums:
    log_probs = jax.vmap(likelihood.log_probs)(outputs)
    probs = jnp.exp(log_probs)
    count = jnp.asarray(len(outputs), jnp.float32)
    return ClassSums(count, logsumexp(log_probs, axis=0), jnp.square(probs).sum(axis=0), _entropy(probs).sum(axis=0))


def _needs_draws(what: str) -> ValueError:
    return ValueError(f"{what} needs the outputs of every draw: predict with reduce=False")


def _check(likelihood: Likelihood, shape: tuple[int, ...], y: Any) -> np.ndarray:
    y = check_targets(y)
    if y.ndim == 0 or y.shape[0] != shape[0]:
        raise ValueError(f"y has shape {y.shape}, but there are predictions for {shape[0]} examples")
    return likelihood.check(jax.ShapeDtypeStruct(shape, jnp.float32), y)


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
