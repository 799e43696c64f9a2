"""The noise of rank-1 factors: draws from a location and a log scale, and the KL to the prior.

| noise | factor | prior | KL |
| --- | --- | --- | --- |
| normal | location + scale N | N(mean, s^2) | closed form |
| cauchy | location + scale C, within +-10 | Cauchy(mean, s) | closed form |
| log_normal | exp(location + scale N) | LogNormal(log mean, s^2) | closed form |
| half_cauchy | exp(location) + scale abs(C), up to 10 | HalfCauchy(s) | estimated with one draw |
| point | location | none | 0 |
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from posteriax._internal.cpu_tuning import computed_once
from posteriax.families.arrays.noise import standard_normal

LARGEST = 10.0  # without a limit, heavy tails overflow in deep networks


class Noise:
    """The distribution of a factor: a Gaussian, unless a subclass says otherwise.

    Draws for one component have a leading axis of examples. The kernel, shared by all components, is what the noise
    will be multiplied with (see `computed_once`).
    """

    positive: bool = False
    kl_note: str = ""
    unit_entropy: float = 0.5 * math.log(2 * math.pi * math.e)  # at a scale of 1

    def draw(self, key: jax.Array, location: jax.Array, log_scale: Any, examples: int, kernel: jax.Array) -> jax.Array:
        return location + jnp.exp(log_scale) * standard_normal(key, (examples, *location.shape), location.dtype, kernel)

    def centre(self, location: jax.Array, log_scale: Any) -> jax.Array:
        """The mean of a factor, or its median if it has no mean."""
        return location

    def kl(self, key: jax.Array, location: jax.Array, log_scale: Any, prior_mean: Any, prior_scale: Any) -> jax.Array:
        """KL to the prior, summed over the factors."""
        own = dist.Normal(location, jnp.exp(log_scale))
        return dist.kl_divergence(own, dist.Normal(prior_mean, prior_scale)).sum()

    def entropy(self, location: jax.Array, log_scale: jax.Array) -> jax.Array:
        """Summed over the factors."""
        return (log_scale + self.unit_entropy).sum()


class _LogNormal(Noise):
    positive = True

    def draw(self, key: jax.Array, location: jax.Array, log_scale: Any, examples: int, kernel: jax.Array) -> jax.Array:
        return jnp.exp(super().draw(key, location, log_scale, examples, kernel))

    def centre(self, location: jax.Array, log_scale: Any) -> jax.Array:
        return jnp.exp(location + 0.5 * jnp.exp(2 * log_scale))

    def kl(self, key: jax.Array, location: jax.Array, log_scale: Any, prior_mean: Any, prior_scale: Any) -> jax.Array:
        return super().kl(key, location, log_scale, math.log(prior_mean), prior_scale)  # invariant under exp

    def entropy(self, location: jax.Array, log_scale: jax.Array) -> jax.Array:
        return super().entropy(location, log_scale) + location.sum()


class _Cauchy(Noise):
    unit_entropy = math.log(4 * math.pi)

    def draw(self, key: jax.Array, location: jax.Array, log_scale: Any, examples: int, kernel: jax.Array) -> jax.Array:
        noise = _cauchy(key, (examples, *location.shape), location.dtype, kernel)
        return jnp.clip(location + jnp.exp(log_scale) * noise, -LARGEST, LARGEST)

    def kl(self, key: jax.Array, location: jax.Array, log_scale: Any, prior_mean: Any, prior_scale: Any) -> jax.Array:
        # log[((s + s_p)^2 + (m - m_p)^2) / (4 s s_p)], in closed form (Chyzak and Nielsen 2019); the paper estimates it
        scale = jnp.exp(log_scale)
        squares = jnp.square(scale + prior_scale) + jnp.square(location - prior_mean)
        return (jnp.log(squares) - math.log(4 * prior_scale) - log_scale).sum()


class _HalfCauchy(Noise):
    positive = True
    kl_note = "KL estimated with one draw per step (half-Cauchy factors)"
    unit_entropy = math.log(2 * math.pi)

    def draw(self, key: jax.Array, location: jax.Array, log_scale: Any, examples: int, kernel: jax.Array) -> jax.Array:
        noise = jnp.abs(_cauchy(key, (examples, *location.shape), location.dtype, kernel))
        return jnp.minimum(jnp.exp(location) + jnp.exp(log_scale) * noise, LARGEST)

    def centre(self, location: jax.Array, log_scale: Any) -> jax.Array:
        return jnp.exp(location) + jnp.exp(log_scale)

    def kl(self, key: jax.Array, location: jax.Array, log_scale: Any, prior_mean: Any, prior_scale: Any) -> jax.Array:
        # the prior starts at 0: its support must cover that of the posterior for the KL to exist
        noise = jnp.abs(jax.random.cauchy(key, location.shape, location.dtype))
        value = jnp.exp(location) + jnp.exp(log_scale) * noise
        log_q = dist.HalfCauchy(1.0).log_prob(noise) - log_scale
        return (log_q - dist.HalfCauchy(prior_scale).log_prob(value)).sum()


class _Point(Noise):
    """No noise: Rank1 asks for neither its KL nor its entropy."""

    def draw(self, key: jax.Array, location: jax.Array, log_scale: Any, examples: int, kernel: jax.Array) -> jax.Array:
        return location[None]


def _cauchy(key: jax.Array, shape: Any, dtype: Any, kernel: jax.Array) -> jax.Array:
    return computed_once(lambda: jax.random.cauchy(key, shape, dtype), key, unless_nan=kernel)


NOISES: dict[str, Noise] = {
    "normal": Noise(),
    "cauchy": _Cauchy(),
    "log_normal": _LogNormal(),
    "half_cauchy": _HalfCauchy(),
    "point": _Point(),
}
