"""Priors with a density, independent for every weight."""

import math
from dataclasses import dataclass

import jax.numpy as jnp
import numpyro.distributions as dist

from posteriax._internal.checks import check_fraction, check_positive
from posteriax.networks.leaf import Leaf
from posteriax.priors.prior import Prior


@dataclass(frozen=True)
class Normal(Prior):
    """N(loc, scale^2) on every entry.

    >>> Normal(scale=0.3).distribution(Leaf("w", (2, 3))).variance.item()
    0.09...
    """

    scale: float = 1.0
    loc: float = 0.0

    def __post_init__(self) -> None:
        check_positive("scale", self.scale)

    def distribution(self, leaf: Leaf) -> dist.Distribution:
        return dist.Normal(self.loc, self.scale)


@dataclass(frozen=True)
class HeNormal(Prior):
    """N(0, gain / fan_in) on weights; N(0, bias_scale^2) on leaves without inputs (biases, normalisation scales).

    The fan-in is the number of weights summed into one output, as the program uses the leaf: ``in`` for an attention
    kernel (in, heads, dim), 1 for an embedding, whose rows are looked up. ``px.fit`` reads the program; before that, a
    problem follows the library's convention unless it has an example, ``px.network(net, example=x)``. (He et al. 2015)

    >>> HeNormal().distribution(Leaf("w", (50, 10))).variance.item()
    0.0...
    """

    gain: float = 2.0
    bias_scale: float = 1.0

    def __post_init__(self) -> None:
        check_positive("gain", self.gain)
        check_positive("bias_scale", self.bias_scale)

    def distribution(self, leaf: Leaf) -> dist.Distribution:
        return dist.Normal(0.0, self.bias_scale if leaf.is_bias else math.sqrt(self.gain / leaf.fan_in))


@dataclass(frozen=True)
class Laplace(Prior):
    """Laplace(0, scale): density exp(-|w| / scale) / (2 scale), variance 2 scale^2.

    >>> Laplace(scale=1.0).distribution(Leaf("w", (3,))).variance.item()
    2.0
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        check_positive("scale", self.scale)

    def distribution(self, leaf: Leaf) -> dist.Distribution:
        return dist.Laplace(0.0, self.scale)


@dataclass(frozen=True)
class Logistic(Prior):
    """Logistic(0, scale): variance (pi scale)^2 / 3.

    >>> Logistic(scale=1.0).distribution(Leaf("w", (3,))).variance.item()
    3.28...
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        check_positive("scale", self.scale)

    def distribution(self, leaf: Leaf) -> dist.Distribution:
        return dist.Logistic(0.0, self.scale)


@dataclass(frozen=True)
class StudentT(Prior):
    """Student-t with `df` degrees of freedom and the given scale; the variance is infinite for df <= 2.

    >>> StudentT(df=4.0, scale=1.0).distribution(Leaf("w", (3,))).variance.item()
    2.0
    """

    df: float = 5.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_positive("df", self.df)
        check_positive("scale", self.scale)

    def distribution(self, leaf: Leaf) -> dist.Distribution:
        return dist.StudentT(self.df, 0.0, self.scale)


@dataclass(frozen=True)
class NormalMixture(Prior):
    """weight N(0, scale^2) + (1 - weight) N(0, narrow_scale^2): a wide and a narrow Gaussian.

    >>> NormalMixture(1.0, 0.1, weight=0.5).distribution(Leaf("w", (3,))).variance.item()
    0.50...
    """

    scale: float = 1.0
    narrow_scale: float = 0.1
    weight: float = 0.5

    def __post_init__(self) -> None:
        check_positive("scale", self.scale)
        check_positive("narrow_scale", self.narrow_scale)
        check_fraction("weight", self.weight)

    def distribution(self, leaf: Leaf) -> dist.Distribution:
        weights = dist.Categorical(probs=jnp.array([self.weight, 1.0 - self.weight]))
        return dist.MixtureSameFamily(weights, dist.Normal(0.0, jnp.array([self.scale, self.narrow_scale])))
