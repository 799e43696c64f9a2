"""The scale of a noise distribution: fixed, learned with the weights, or predicted by the network."""

import math
from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from posteriax._internal.checks import check_positive
from posteriax.likelihoods.likelihood import LikelihoodLatents, at_least_float32

Scale = float | Literal["learned", "predicted"]
ScalePrior = tuple[float, float]  # of a learned scale: its median, and the standard deviation of its logarithm

# of the logarithm of a learned scale, around that of the targets' standard deviation: 95 % of the prior lies within a
# factor of 360, and a noise of a thousandth of the targets' scale costs 2.7 nats, less than a few examples tell
WIDTH_OF_LEARNED_SCALE = 3.0


def check_scale(scale: Scale) -> None:
    """Raise unless the scale is a positive number, "learned" or "predicted"."""
    if not isinstance(scale, str):
        check_positive("scale", scale)
    elif scale not in ("learned", "predicted"):
        raise ValueError(f'scale must be a positive number, "learned" or "predicted", got {scale!r}')


def check_scale_prior(scale: Scale, scale_prior: object) -> ScalePrior | None:
    """The prior of a learned scale as a pair of numbers; None if it was not given."""
    if scale_prior is None:
        return None
    if scale != "learned":
        raise ValueError(f'scale_prior is the prior of a scale that is "learned", but scale={scale!r}')
    if not isinstance(scale_prior, Sequence) or len(scale_prior) != 2:
        raise ValueError(
            f"scale_prior must be a pair, the median of the scale and the standard deviation of its logarithm, such as "
            f"(0.5, 1.0); got {scale_prior!r}"
        )
    median, width = scale_prior
    check_positive("the median of scale_prior", median)
    check_positive("the width of scale_prior", width)
    return float(median), float(width)


def log_scale_prior(scale_prior: ScalePrior | None) -> dist.Normal:
    """log sigma ~ N(log median, width^2); the median is 1 as long as the scale of the targets is not known."""
    median, width = scale_prior or (1.0, WIDTH_OF_LEARNED_SCALE)
    return dist.Normal(math.log(median), width)


def check_two_outputs(name: str, shape: tuple[int, ...]) -> None:
    """Raise unless the network has two outputs per target, as needed to predict the scale."""
    if len(shape) < 2 or shape[-1] % 2:
        raise ValueError(
            f'{name}(scale="predicted") needs two outputs per target (mean and scale), but the network has outputs of '
            f"shape {shape[1:]} per example"
        )


def location_and_scale(scale: Scale, latents: LikelihoodLatents, outputs: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Location and scale of the noise, both in the shape of the targets."""
    outputs = at_least_float32(outputs)
    if scale == "predicted":
        location, raw = jnp.split(outputs, 2, axis=-1)
        return location, jax.nn.softplus(raw) + 1e-6  # a floor: an exact zero would make the density infinite
    value: Any = jnp.exp(latents["log_scale"]) if scale == "learned" else scale
    return outputs, jnp.broadcast_to(value, outputs.shape)
