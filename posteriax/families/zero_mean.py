"""Variance layers: zero-mean noise with a learned scale.

    w_ij = sigma_ij z_ij,   z ~ N(0, 1),   B(1/2) - 1/2   or   U(0, 1) - 1/2

The scales hold everything the network has learned: single draws predict poorly, their average predicts well.
(Neklyudov et al. 2018)
"""

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from posteriax._internal.checks import check_choice, check_positive
from posteriax.families.family import DiagonalGaussian, Family, Units, Variational
from posteriax.families.normal import Normal
from posteriax.networks.leaf import Leaf
from posteriax.priors.improper import LogUniformPrior


@dataclass(frozen=True)
class ZeroMeanNormal(DiagonalGaussian):
    """A zero-mean Gaussian for every weight; biases and normalisation scales stay mean-field.

    Args:
        smallest: scales start at the magnitudes of the network's weights, but not below this.

    >>> from posteriax import families as q
    >>> q.ZeroMeanNormal()
    ZeroMeanNormal(smallest=0.01)
    """

    smallest: float = 0.01
    has_mean = False

    def __post_init__(self) -> None:
        check_positive("smallest", self.smallest)

    def for_leaf(self, leaf: Leaf) -> DiagonalGaussian:
        return Normal() if leaf.is_bias else self

    def init(self, key: jax.Array, value: jax.Array, leaf: Leaf) -> Variational:
        return {"log_scale": jnp.log(jnp.maximum(jnp.abs(value), self.smallest))}

    def moments(self, variational: Variational) -> tuple[jax.Array, jax.Array]:
        scale = jnp.exp(variational["log_scale"])
        return jnp.zeros_like(scale), scale

    def log_scale(self, variational: Variational) -> jax.Array:
        return variational["log_scale"]

    def kl(self, variational: Variational, prior: dist.Distribution, key: jax.Array) -> jax.Array:
        if isinstance(prior, LogUniformPrior):  # the KL does not depend on the scales
            return jnp.zeros(())
        return super().kl(variational, prior, key)

    def kl_note(self, prior: dist.Distribution) -> str:
        return "" if isinstance(prior, LogUniformPrior) else super().kl_note(prior)


@dataclass(frozen=True)
class ZeroMeanNoise(Family):
    """Zero-mean Bernoulli or uniform noise, one draw per step shared by the batch; biases stay mean-field.

    The entropy of Bernoulli noise does not depend on its size, so its KL omits it, as that of a point does.

    Args:
        noise: "bernoulli", w = size (B(1/2) - 1/2), or "uniform", w = size (U(0, 1) - 1/2).
        smallest: sizes start at twice the magnitudes of the network's weights, but not below this.

    >>> from posteriax import families as q
    >>> q.ZeroMeanNoise("uniform")
    ZeroMeanNoise(noise='uniform', smallest=0.01)
    """

    noise: Literal["bernoulli", "uniform"] = "bernoulli"
    smallest: float = 0.01
    independent = True
    has_mean = False

    def __post_init__(self) -> None:
        check_choice("noise", self.noise, ("bernoulli", "uniform"))
        check_positive("smallest", self.smallest)

    def for_leaf(self, leaf: Leaf) -> Family:
        return Normal() if leaf.is_bias else self

    def init(self, key: jax.Array, value: jax.Array, leaf: Leaf) -> Variational:
        return {"log_size": jnp.log(jnp.maximum(2 * jnp.abs(value), self.smallest))}

    def units(self, variational: Variational) -> Units:
        return Units()  # the Fisher information of a size is not finite: the noise ends there

    def sample(self, variational: Variational, key: jax.Array) -> jax.Array:
        size = jnp.exp(variational["log_size"])
        if self.noise == "uniform":
            return size * (jax.random.uniform(key, size.shape, size.dtype) - 0.5)
        return size * (jax.random.bernoulli(key, 0.5, size.shape).astype(size.dtype) - 0.5)

    def mean(self, variational: Variational) -> jax.Array:
        return jnp.zeros_like(variational["log_size"])

    def variance(self, variational: Variational) -> jax.Array:
        return jnp.exp(2 * variational["log_size"]) / (12 if self.noise == "uniform" else 4)

    def kl(self, variational: Variational, prior: dist.Distribution, key: jax.Array) -> jax.Array:
        if isinstance(prior, LogUniformPrior):
            return jnp.zeros(())
        return -prior.log_prob(self.sample(variational, key)).sum() - self.entropy(variational)

    def entropy(self, variational: Variational) -> jax.Array:
        return variational["log_size"].sum() if self.noise == "uniform" else jnp.zeros(())

    def kl_note(self, prior: dist.Distribution) -> str:
        return "" if isinstance(prior, LogUniformPrior) else "KL estimated with one draw per step"

    def check_prior(self, leaf: Leaf, prior: dist.Distribution) -> None:
        if not isinstance(prior, LogUniformPrior):
            super().check_prior(leaf, prior)
