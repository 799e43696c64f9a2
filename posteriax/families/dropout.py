"""Monte-Carlo dropout: inputs of a leaf are dropped at random, in training and in prediction.

    W' = diag(s) W,   s_i = 0 with probability rate, otherwise 1 / (1 - rate)

The matrix itself is a point estimate under its prior. (Gal and Ghahramani 2016)
"""

import dataclasses
import math
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from posteriax.families.arrays.estimators import EstimatorPlan
from posteriax.families.arrays.factor import FactorArray, along
from posteriax.families.family import Draw, Family, Units, Variational
from posteriax.families.point import Point
from posteriax.networks.leaf import Leaf


@dataclass(frozen=True)
class Dropout(Family):
    """Dropout of the activations that enter a leaf, without a dropout layer; biases are point estimates.

    Convolutions drop whole input channels, embeddings whole words. Masks are drawn per example in training; a draw of
    the posterior is a network with some of its inputs dropped.

    Args:
        rate: the probability that an input is dropped.
        axis: the input axis or axes of the leaf; by default as the program uses it.

    >>> from posteriax import families as q
    >>> {"**": q.Dropout(0.1), "layers/0/*": q.Point()}
    {'**': Dropout(rate=0.1), 'layers/0/*': Point()}
    """

    rate: float = 0.1
    axis: int | tuple[int, ...] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.axis is not None:
            object.__setattr__(self, "axis", (self.axis,) if isinstance(self.axis, int) else tuple(self.axis))
        if not 0.0 <= self.rate < 1.0:
            raise ValueError(f"rate must lie in [0, 1), got {self.rate}")

    def for_leaf(self, leaf: Leaf) -> Family:
        if leaf.is_bias:
            return Point()
        copies = tuple(range(len(leaf.copies)))  # each has masks of its own
        return self if self.axis is not None else dataclasses.replace(self, axis=(*copies, *leaf.in_axes))

    def init(self, key: jax.Array, value: jax.Array, leaf: Leaf) -> Variational:
        return {"value": value}

    def units(self, variational: Variational) -> Units:
        return Units()  # a point has no scale

    @property
    def _axes(self) -> tuple[int, ...]:
        assert isinstance(self.axis, tuple)  # set by for_leaf
        return self.axis

    def _masks(self, value: jax.Array, key: jax.Array, examples: int) -> jax.Array:
        inputs = math.prod(value.shape[axis] for axis in self._axes)
        kept = jax.random.bernoulli(key, 1 - self.rate, (examples, inputs))
        return kept.astype(value.dtype) / (1 - self.rate)

    def array(self, variational: Variational, keys: jax.Array, plan: EstimatorPlan, examples: int) -> Draw:
        if plan.factors == "drawn":
            return self.sample(variational, keys[0])
        masks = self._masks(variational["value"], keys[0], examples if plan.factors == "per example" else 1)
        return FactorArray(variational["value"], (masks,), (self._axes,), plan.factor_axis)

    def sample(self, variational: Variational, key: jax.Array) -> jax.Array:
        value = variational["value"]
        return value * along(self._axes, self._masks(value, key, 1)[0], value.shape)

    def mean(self, variational: Variational) -> jax.Array:
        return variational["value"]

    def kl(self, variational: Variational, prior: dist.Distribution, key: jax.Array) -> jax.Array:
        return -prior.log_prob(variational["value"]).sum()

    def entropy(self, variational: Variational) -> jax.Array:
        return jnp.zeros(())

    def plan_note(self, plan: EstimatorPlan) -> str:
        return plan.note if plan.factors == "drawn" else ""
