"""Variational dropout: noise in proportion to the weight.

    q(w_ij) = N(mu_ij, alpha mu_ij^2),   alpha shared by a layer, by an output, or not at all

Under the log-uniform prior the KL depends on alpha alone and decreases as it grows; after a phase transition the means
no longer matter and the layer is a variance layer. (Kingma et al. 2015, Molchanov et al. 2017, Neklyudov et al. 2018)
"""

import math
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from posteriax._internal.checks import check_choice
from posteriax.families.family import DiagonalGaussian, Units, Variational
from posteriax.families.normal import Normal
from posteriax.networks.leaf import Leaf
from posteriax.priors.improper import TINY, ARDPrior, LogUniformPrior, ard_kl, log_uniform_kl

LARGEST_LOG_ALPHA = 20.0


@dataclass(frozen=True)
class MultiplicativeNormal(DiagonalGaussian):
    """Gaussian noise in proportion to each weight; biases and normalisation scales stay mean-field.

    Args:
        share: which weights share an alpha: those of a "layer", of a "neuron" (one output), or just one "weight".
        log_alpha: initial log alpha; it is kept within +-20.

    >>> from posteriax import families as q, priors as p
    >>> q.MultiplicativeNormal("layer"), p.LogUniform()
    (MultiplicativeNormal(share='layer', log_alpha=-5.0), LogUniform())
    """

    share: Literal["layer", "neuron", "weight"] = "weight"
    log_alpha: float = -5.0

    def __post_init__(self) -> None:
        check_choice("share", self.share, ("layer", "neuron", "weight"))
        if not math.isfinite(self.log_alpha):
            raise ValueError(f"log_alpha must be finite, got {self.log_alpha}")

    def for_leaf(self, leaf: Leaf) -> DiagonalGaussian:
        return Normal() if leaf.is_bias else self

    def init(self, key: jax.Array, value: jax.Array, leaf: Leaf) -> Variational:
        shape = [1] * value.ndim if self.share != "weight" else list(value.shape)
        if self.share == "neuron":
            for axis in leaf.out_axes:
                shape[axis] = value.shape[axis]
        return {"mean": value, "log_alpha": jnp.full(shape, self.log_alpha, value.dtype)}

    def moments(self, variational: Variational) -> tuple[jax.Array, jax.Array]:
        mean = variational["mean"]
        return mean, jnp.exp(0.5 * _clipped(variational)) * jnp.abs(mean)

    def log_scale(self, variational: Variational) -> jax.Array:
        return 0.5 * (_clipped(variational) + jnp.log(jnp.square(variational["mean"]) + TINY))

    def units(self, variational: Variational) -> Units:
        return Units()  # in units of its noise, a mean could not move away from 0

    def kl(self, variational: Variational, prior: dist.Distribution, key: jax.Array) -> jax.Array:
        if not isinstance(prior, LogUniformPrior | ARDPrior):
            return super().kl(variational, prior, key)
        # from alpha itself: exact even if a mean is 0, and computed once per alpha
        log_alpha = _clipped(variational)
        per_weight = log_uniform_kl if isinstance(prior, LogUniformPrior) else ard_kl
        return (variational["mean"].size / log_alpha.size) * per_weight(log_alpha).sum()


def _clipped(variational: Variational) -> jax.Array:
    return jnp.clip(variational["log_alpha"], -LARGEST_LOG_ALPHA, LARGEST_LOG_ALPHA)
