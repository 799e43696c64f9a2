"""Rank-1 posteriors: one shared matrix, with noise on its inputs and outputs.

    W' = W * r s',   q(s) = 1/K sum_k q_k(s),   the same for r;   W is a point estimate under its own prior

One index k applies to the whole network, so the K components form an ensemble that costs little more than one network.
With `noise="point"` it is BatchEnsemble. Each factor has a location and a log scale:

| noise | factor | prior | KL |
| --- | --- | --- | --- |
| normal | location + scale N | N(mean, s^2) | closed form |
| cauchy | location + scale C, within +-10 | Cauchy(mean, s) | closed form |
| log_normal | exp(location + scale N) | LogNormal(log mean, s^2) | closed form |
| half_cauchy | exp(location) + scale abs(C), up to 10 | HalfCauchy(s) | estimated with one draw |
| point | location | none | 0 |

(Dusenberry et al. 2020, Wen et al. 2020)
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.typing import DTypeLike

from posteriax._internal.checks import check_choice, check_count, check_positive
from posteriax.families.arrays.estimators import EstimatorPlan
from posteriax.families.arrays.factor import FactorArray, along
from posteriax.families.arrays.noise import computed_once, standard_normal
from posteriax.families.family import Draw, Family, Units, Variational
from posteriax.networks.leaf import Leaf

Number = float | jax.Array

LARGEST = 10.0  # without a limit, heavy tails overflow in deep networks
VARIANCE_SHAPE, VARIANCE_SCALE = 2.01, 0.101  # of the inverse-gamma prior: a mean of 0.1 for the factors' variance
SIDES = {"input": ("in",), "output": ("out",), "both": ("in", "out")}


@dataclass(frozen=True)
class Rank1(Family):
    """A shared matrix with random factors on inputs and outputs, in K components; each has its own point biases.

    The problem's prior applies to the shared matrix and the biases; the factors have their own. A convolution has
    factors for its input and output channels; if a leaf stacks the matrices of equal blocks, each block has its own.
    With the default estimator each example and component gets its own factors, and the weight matrix is never formed;
    ``estimator="factor"`` draws them once per component and step. A training step costs one network pass per component;
    ``posterior.predict(x, draws=n)`` spreads its n draws evenly over the components.

    ``start="sign"`` makes components most diverse, but under the default prior around +1 each factor that starts at -1
    costs 200 nats: combine it with ``px.VI(kl_schedule=px.methods.LinearKL(epochs=...))`` over most of the training.

    Args:
        components: K.
        noise: distribution of the factors: "normal", "cauchy", "log_normal", "half_cauchy", or "point" for none.
        place: which side has random factors: "input", "output" or "both".
        other: what the other side has: "none", or "point" factors in each component, without noise and prior.
        form: "multiplicative", or "additive": (x + s) W + r.
        likelihood: of a training example: the "average" of the log-likelihoods of the components, or that of their
            "mixture". Predictions always use the mixture.
        start: initial means of the factors: "normal", around 1, or "sign", +1 or -1.
        start_value: the standard deviation around 1, or the probability of +1; 0.1 and 0.5 by default.
        scale: initial scale of the factors.
        prior_mean: of the factors; "tied" keeps it at their posterior means, so that only their scales are penalised.
        prior_scale: of the factors; "learned" trains one per factor, starting from 1; "tied" shares one among the
            factors on the inputs and one among those on the outputs, at the optimum under an inverse-gamma prior of its
            square (empirical Bayes, Wu et al. 2019). Both words need normal noise.

    >>> from posteriax import families as q
    >>> q.Rank1(4, noise="cauchy").components
    4
    """

    components: int = 4
    noise: Literal["normal", "cauchy", "log_normal", "half_cauchy", "point"] = "normal"
    place: Literal["input", "output", "both"] = "both"
    other: Literal["none", "point"] = field(default="none", kw_only=True)
    form: Literal["multiplicative", "additive"] = "multiplicative"
    likelihood: Literal["average", "mixture"] = "average"
    start: Literal["sign", "normal"] = "normal"
    start_value: float | None = None
    scale: float = 0.0316  # sqrt(p / (1 - p)) for a dropout rate p of 0.001
    prior_mean: float | Literal["tied"] = 1.0
    prior_scale: float | Literal["learned", "tied"] = 0.1
    in_axis: int | tuple[int, ...] | None = field(default=None, repr=False)  # by default as the program uses the leaf
    out_axis: int | tuple[int, ...] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_count("components", self.components)
        for name in ("in_axis", "out_axis"):
            axes = getattr(self, name)
            if axes is not None:
                object.__setattr__(self, name, (axes,) if isinstance(axes, int) else tuple(axes))
        check_positive("scale", self.scale)
        self._check_prior()
        check_choice("noise", self.noise, NOISES)
        check_choice("place", self.place, SIDES)
        check_choice("other", self.other, ("none", "point"))
        check_choice("form", self.form, ("multiplicative", "additive"))
        check_choice("likelihood", self.likelihood, ("average", "mixture"))
        check_choice("start", self.start, ("sign", "normal"))
        if self.additive and self._noise.positive:
            raise ValueError(f'form="additive" needs factors of both signs, but noise={self.noise!r} is positive')
        if not 0 <= self._start_value <= (1 if self.start == "sign" else float("inf")):
            raise ValueError(f"start_value must be a probability or a standard deviation, got {self.start_value}")

    def _check_prior(self) -> None:
        words = {"prior_mean": ("tied",), "prior_scale": ("learned", "tied")}
        for name, allowed in words.items():
            value = getattr(self, name)
            if isinstance(value, str):
                if value not in allowed:
                    raise ValueError(f"{name} must be a number or {' or '.join(map(repr, allowed))}, got {value!r}")
                if self.noise != "normal":
                    raise ValueError(f'{name}={value!r} needs noise="normal", got noise={self.noise!r}')
            elif name == "prior_scale" or self.noise in ("log_normal", "half_cauchy"):
                check_positive(name, value)

    @property
    def _start_value(self) -> float:
        return self.start_value if self.start_value is not None else {"sign": 0.5, "normal": 0.1}[self.start]

    @property
    def _noise(self) -> "FactorNoise":
        return NOISES[self.noise]

    @property
    def random(self) -> bool:  # type: ignore[override]
        return self.noise != "point"

    @property
    def additive(self) -> bool:
        return self.form == "additive"

    def for_leaf(self, leaf: Leaf) -> Family:
        if leaf.is_bias:
            return PointPerComponent(self.components, self.likelihood)
        copies = tuple(range(len(leaf.copies)))  # each has factors of its own
        inputs, outputs = (*copies, *leaf.in_axes), (*copies, *leaf.out_axes)
        if self.misfit(leaf):
            return PointPerComponent(self.components, self.likelihood)
        return self if self.in_axis is not None else replace(self, in_axis=inputs, out_axis=outputs)

    def misfit(self, leaf: Leaf) -> str:
        if leaf.is_bias:
            return ""
        if self.place == "output" and not leaf.out_axes:
            return "it has no outputs to scale: a point in each component"
        if self.additive and leaf.known_axes.lookup:
            return "its rows are looked up, so there is no input to add a factor to: a point in each component"
        return ""

    @property
    def _axes_by_side(self) -> dict[str, tuple[int, ...]]:
        both = {"in": self.in_axis, "out": self.out_axis}
        sides = SIDES["both" if self.other == "point" else self.place]
        return {side: both[side] for side in sides if both[side]}  # type: ignore[misc]

    @property
    def _noisy_sides(self) -> tuple[str, ...]:
        return tuple(side for side in self._axes_by_side if self.random and side in SIDES[self.place])

    def _noise_of(self, side: str) -> "FactorNoise":
        return self._noise if side in self._noisy_sides else NOISES["point"]

    @property
    def _axes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(self._axes_by_side.values())

    def init(self, key: jax.Array, value: jax.Array, leaf: Leaf) -> Variational:
        variational = {"kernel": value}
        for i, (side, axes) in enumerate(self._axes_by_side.items()):
            shape = [self.components, math.prod(value.shape[axis] for axis in axes)]
            key_location, key_scale = jax.random.split(jax.random.fold_in(key, i))
            variational[side] = self._start(side, key_location, shape, value.dtype)
            if side in self._noisy_sides:
                spread = 0.1 * jax.random.truncated_normal(key_scale, -2, 2, shape, value.dtype)
                variational[f"log_scale_{side}"] = jnp.log(self.scale) + spread
            if self.prior_scale == "learned" and side in self._noisy_sides:
                variational[f"log_prior_scale_{side}"] = jnp.zeros(shape, value.dtype)
        return variational

    def _start(self, side: str, key: jax.Array, shape: list[int], dtype: DTypeLike) -> jax.Array:
        if self.additive or self._noise_of(side).positive:  # around 0, which is 1 in the log domain
            return 0.1 * jax.random.normal(key, shape, dtype)
        if self.start == "sign":
            return jnp.where(jax.random.bernoulli(key, self._start_value, shape), 1.0, -1.0).astype(dtype)
        return 1 + self._start_value * jax.random.normal(key, shape, dtype)

    def component(self, variational: Variational, index: jax.Array | int) -> Variational:
        return {name: value if name == "kernel" else value[index] for name, value in variational.items()}

    def units(self, variational: Variational) -> Units:
        """Those of the factors; the shared matrix is a point."""
        logs = {side: f"log_scale_{side}" for side in self._noisy_sides}
        learned = [f"log_prior_scale_{side}" for side in self._noisy_sides if self.prior_scale == "learned"]
        means = {side: jnp.exp(variational[log]) for side, log in logs.items()}
        return Units(means, dict.fromkeys([*logs.values(), *learned], 1.0), dict.fromkeys(logs.values(), 2.0))

    def _factors(self, variational: Variational, keys: jax.Array, examples: int) -> tuple[jax.Array, ...]:
        """Factors of one component, (examples, ...)."""
        kernel = variational["kernel"]
        drawn = [
            self._noise_of(side).draw(key, variational[side], variational.get(f"log_scale_{side}"), examples, kernel)  # type: ignore[arg-type]
            for side, key in zip(self._axes_by_side, keys, strict=False)
        ]
        return tuple(jnp.broadcast_to(factor, (examples, *factor.shape[1:])) for factor in drawn)

    def array(self, variational: Variational, keys: jax.Array, plan: EstimatorPlan, examples: int) -> Draw:
        if plan.factors == "drawn":
            return self.sample(variational, keys[0])
        draws = examples if plan.factors == "per example" and self.random else 1
        factors = self._factors(variational, keys, draws)
        return FactorArray(
            variational["kernel"], factors, self._axes, plan.factor_axis, of_component=True, additive=self.additive
        )

    def sample(self, variational: Variational, key: jax.Array) -> Draw:
        drawn = self._factors(variational, jax.random.split(key, 2), 1)
        array = FactorArray(variational["kernel"], drawn, self._axes, None, additive=self.additive)
        return array if self.additive else array.materialise()

    def mean(self, variational: Variational) -> jax.Array:
        if self.additive:
            return variational["kernel"]
        kernel, product = variational["kernel"], jnp.ones(())
        for side, axes in self._axes_by_side.items():
            noise = self._noise_of(side)
            centres = noise.centre(variational[side], variational.get(f"log_scale_{side}"))  # type: ignore[arg-type]
            product = product * jax.vmap(lambda centre, axes=axes: along(axes, centre, kernel.shape))(centres)
        return kernel * product.mean(axis=0)

    def kl(self, variational: Variational, prior: dist.Distribution, key: jax.Array) -> jax.Array:
        kl = -prior.log_prob(variational["kernel"]).sum()
        if not self.random:
            return kl
        for side, side_key in zip(self._noisy_sides, jax.random.split(key, 2), strict=False):
            location, log_scale = variational[side], variational[f"log_scale_{side}"]
            mean: Any = 0.0 if self.additive else self.prior_mean
            mean = location if mean == "tied" else mean
            scale: Any = self.prior_scale
            if scale == "learned":
                scale = jnp.exp(variational[f"log_prior_scale_{side}"])
            elif scale == "tied":
                squares = jnp.square(location - mean) + jnp.exp(2 * log_scale)
                variance = tied_variance(squares)
                kl -= dist.InverseGamma(VARIANCE_SHAPE, VARIANCE_SCALE).log_prob(variance)
                scale = jnp.sqrt(variance)
            # summed over components, not averaged (Dusenberry et al. 2020)
            kl += self._noise.kl(side_key, location, log_scale, mean, scale)
        return kl

    def kl_note(self, prior: dist.Distribution) -> str:
        return self._noise.kl_note if self.random else ""

    def entropy(self, variational: Variational) -> jax.Array:
        entropy = self._noise.entropy
        by_side = (entropy(variational[side], variational[f"log_scale_{side}"]) for side in self._noisy_sides)
        return sum(by_side, jnp.zeros(()))

    def check_plan(self, leaf: Leaf, plan: EstimatorPlan) -> None:
        if self.additive and plan.factors == "drawn":
            why = plan.note or 'estimator="weight" was asked for'
            raise ValueError(
                f'q.Rank1(form="additive") for {leaf.path} cannot be drawn as a weight, but {why}; use '
                f'form="multiplicative" or another estimator'
            )

    def plan_note(self, plan: EstimatorPlan) -> str:
        return plan.note if plan.factors == "drawn" else ""


def tied_variance(squares: jax.Array) -> jax.Array:
    """The optimal prior variance under its inverse-gamma hyperprior, given the expected squares of the factors.

    >>> float(tied_variance(jnp.ones(1000)))
    0.99...
    """
    return (squares.sum() + 2 * VARIANCE_SCALE) / (squares.size + 2 * VARIANCE_SHAPE + 2)


@dataclass(frozen=True)
class PointPerComponent(Family):
    """A point estimate in each component of a mixture, used by Rank1 for biases.

    >>> from posteriax import families as q
    >>> q.PointPerComponent(4).components
    4
    """

    components: int = 4
    likelihood: Literal["average", "mixture"] = "average"
    random = False

    def __post_init__(self) -> None:
        check_count("components", self.components)

    def init(self, key: jax.Array, value: jax.Array, leaf: Leaf) -> Variational:
        return {"value": jnp.stack([value] * self.components)}

    def component(self, variational: Variational, index: jax.Array | int) -> Variational:
        return {"value": variational["value"][index]}

    def sample(self, variational: Variational, key: jax.Array) -> jax.Array:
        return variational["value"]

    def mean(self, variational: Variational) -> jax.Array:
        return variational["value"].mean(axis=0)

    def kl(self, variational: Variational, prior: dist.Distribution, key: jax.Array) -> jax.Array:
        return -prior.log_prob(variational["value"]).sum()

    def entropy(self, variational: Variational) -> jax.Array:
        return jnp.zeros(())


class FactorNoise:
    """The distribution of a factor: a Gaussian, unless a subclass says otherwise.

    Draws for one component have a leading axis of examples. The kernel, shared by all components, is what the noise
    will be multiplied with (see `computed_once`).
    """

    positive: bool = False
    kl_note: str = ""
    unit_entropy: float = 0.5 * math.log(2 * math.pi * math.e)  # at a scale of 1

    def draw(
        self, key: jax.Array, location: jax.Array, log_scale: jax.Array, examples: int, kernel: jax.Array
    ) -> jax.Array:
        return location + jnp.exp(log_scale) * standard_normal(key, (examples, *location.shape), location.dtype, kernel)

    def centre(self, location: jax.Array, log_scale: jax.Array) -> jax.Array:
        """The mean of a factor, or its median if it has no mean."""
        return location

    def kl(
        self, key: jax.Array, location: jax.Array, log_scale: jax.Array, prior_mean: Number, prior_scale: Number
    ) -> jax.Array:
        """KL to the prior, summed over the factors."""
        posterior = dist.Normal(location, jnp.exp(log_scale))
        return dist.kl_divergence(posterior, dist.Normal(prior_mean, prior_scale)).sum()

    def entropy(self, location: jax.Array, log_scale: jax.Array) -> jax.Array:
        """Summed over the factors."""
        return (log_scale + self.unit_entropy).sum()


class _LogNormal(FactorNoise):
    positive = True

    def draw(
        self, key: jax.Array, location: jax.Array, log_scale: jax.Array, examples: int, kernel: jax.Array
    ) -> jax.Array:
        return jnp.exp(super().draw(key, location, log_scale, examples, kernel))

    def centre(self, location: jax.Array, log_scale: jax.Array) -> jax.Array:
        return jnp.exp(location + 0.5 * jnp.exp(2 * log_scale))

    def kl(
        self, key: jax.Array, location: jax.Array, log_scale: jax.Array, prior_mean: Number, prior_scale: Number
    ) -> jax.Array:
        return super().kl(key, location, log_scale, math.log(prior_mean), prior_scale)  # invariant under exp

    def entropy(self, location: jax.Array, log_scale: jax.Array) -> jax.Array:
        return super().entropy(location, log_scale) + location.sum()


class _Cauchy(FactorNoise):
    unit_entropy = math.log(4 * math.pi)

    def draw(
        self, key: jax.Array, location: jax.Array, log_scale: jax.Array, examples: int, kernel: jax.Array
    ) -> jax.Array:
        noise = _cauchy(key, (examples, *location.shape), location.dtype, kernel)
        return jnp.clip(location + jnp.exp(log_scale) * noise, -LARGEST, LARGEST)

    def kl(
        self, key: jax.Array, location: jax.Array, log_scale: jax.Array, prior_mean: Number, prior_scale: Number
    ) -> jax.Array:
        # log[((s + s_p)^2 + (m - m_p)^2) / (4 s s_p)], in closed form (Chyzak and Nielsen 2019); the paper estimates it
        scale = jnp.exp(log_scale)
        squares = jnp.square(scale + prior_scale) + jnp.square(location - prior_mean)
        return (jnp.log(squares) - math.log(4 * prior_scale) - log_scale).sum()


class _HalfCauchy(FactorNoise):
    positive = True
    kl_note = "KL estimated with one draw per step (half-Cauchy factors)"
    unit_entropy = math.log(2 * math.pi)

    def draw(
        self, key: jax.Array, location: jax.Array, log_scale: jax.Array, examples: int, kernel: jax.Array
    ) -> jax.Array:
        noise = jnp.abs(_cauchy(key, (examples, *location.shape), location.dtype, kernel))
        return jnp.minimum(jnp.exp(location) + jnp.exp(log_scale) * noise, LARGEST)

    def centre(self, location: jax.Array, log_scale: jax.Array) -> jax.Array:
        return jnp.exp(location) + jnp.exp(log_scale)

    def kl(
        self, key: jax.Array, location: jax.Array, log_scale: jax.Array, prior_mean: Number, prior_scale: Number
    ) -> jax.Array:
        # the prior starts at 0: its support must cover that of the posterior for the KL to exist
        noise = jnp.abs(jax.random.cauchy(key, location.shape, location.dtype))
        value = jnp.exp(location) + jnp.exp(log_scale) * noise
        log_q = dist.HalfCauchy(1.0).log_prob(noise) - log_scale
        return (log_q - dist.HalfCauchy(prior_scale).log_prob(value)).sum()


class _Point(FactorNoise):
    """No noise: Rank1 asks for neither its KL nor its entropy."""

    def draw(
        self, key: jax.Array, location: jax.Array, log_scale: jax.Array, examples: int, kernel: jax.Array
    ) -> jax.Array:
        return location[None]


def _cauchy(key: jax.Array, shape: tuple[int, ...], dtype: DTypeLike, kernel: jax.Array) -> jax.Array:
    return computed_once(lambda: jax.random.cauchy(key, shape, dtype), key, unless_nan=kernel)


NOISES: dict[str, FactorNoise] = {
    "normal": FactorNoise(),
    "cauchy": _Cauchy(),
    "log_normal": _LogNormal(),
    "half_cauchy": _HalfCauchy(),
    "point": _Point(),
}
