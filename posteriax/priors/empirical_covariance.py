"""EmpCov: a prior for first-layer weights that knows how the inputs vary.

    w_unit ~ N(0, C),   C = scale^2 S / mean(diag S) + floor^2 I       S: covariance of the training inputs

The data say nothing about a combination of inputs that is constant in training (a pixel that is always black), so
under an ordinary prior the posterior there is the prior, and every draw adds noise as soon as a shift wakes the
combination up. Here its weights are held at `floor`. (Izmailov et al. 2021b)

This is the published form N(0, alpha S + eps I), with alpha = scale^2 / mean(diag S) and eps = floor^2. The published
code adds up precisions instead, alpha^-1 S^-1 + I / s^2: with that, a direction has the variance of the narrower of
two priors, and a constant one a variance of 1e-12, which single precision cannot follow.
"""

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from posteriax._internal.checks import check_positive
from posteriax.priors.correlated_normal import CorrelatedNormal
from posteriax.priors.input_covariance import check_inputs_of_unit, covariance_of_inputs, covariance_of_patches
from posteriax.priors.leaf import Leaf
from posteriax.priors.prior import Prior

LARGEST = 4096  # inputs of one unit: the eigendecomposition takes half a minute, and a file still holds it
NARROWEST = 1e-5  # of the widest direction: single precision has no room for less


@dataclass(frozen=True, init=False, eq=False)
class EmpCov(Prior):
    """N(0, C) on the incoming weights of every unit of the first layer, C from the covariance of the inputs.

    Give it to the weights that meet the inputs, by path; other leaves have another prior. For a convolution the
    inputs of a unit are the patches of the kernel's size, at all positions whatever the stride.

    Args:
        x: training inputs as the network gets them, (examples, ...); for a dense layer they are flattened.
        scale: the root-mean-square standard deviation of a weight, as in ``p.Normal(scale)``, before `floor`.
        floor: the standard deviation in directions in which the inputs do not vary; scale / 100 if not given.
        kernel: the size of a convolution's kernel, such as (5, 5); none for a dense layer.
        padding: zeros around the images on each side, as in the convolution: a number, or one for each axis.
        channels: where the images have their channels: "last" in Flax, "first" in Equinox.

    >>> import equinox as eqx, jax, posteriax as px
    >>> from posteriax import priors as p
    >>> x = np.random.default_rng(0).normal(size=(100, 3)) * [1.0, 1.0, 0.0]  # the third input is dead
    >>> net = eqx.nn.MLP(3, 2, 8, 1, key=jax.random.key(0))
    >>> prior = {"**": p.Normal(scale=1.0), "layers/0/weight": p.EmpCov(x, scale=1.0)}
    >>> problem = px.Problem(net, px.Categorical(), prior)
    >>> jax.numpy.sqrt(problem.priors.network.layers[0].weight.variance[0]).round(2).tolist()
    [1.2..., 1.1..., 0.0...]
    """

    covariance: np.ndarray = field(repr=False)
    scale: float
    floor: float
    kernel: tuple[int, ...] | None
    variances: np.ndarray = field(repr=False)  # of C, along its directions
    directions: np.ndarray = field(repr=False)

    def __init__(
        self,
        x: Any,
        scale: float = 1.0,
        floor: float | None = None,
        *,
        kernel: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        channels: Literal["first", "last"] = "last",
    ):
        if kernel is None:
            if padding != 0:
                raise ValueError(f"padding is for convolutions, which need kernel= too; got padding={padding}")
            covariance = covariance_of_inputs(x, LARGEST)
        else:
            kernel, covariance = covariance_of_patches(x, kernel, padding, channels, LARGEST)
        self._settle(covariance, scale, floor, kernel)

    @classmethod
    def from_covariance(
        cls, covariance: Any, scale: float = 1.0, floor: float | None = None, *, kernel: Sequence[int] | None = None
    ) -> "EmpCov":
        """The same prior from a covariance that is known already, for data that are too large for one array.

        Args:
            covariance: (inputs, inputs); with a `kernel`, of patches flattened with their channels last.
            scale: as above, like `floor` and `kernel`.

        >>> EmpCov.from_covariance([[2.0, 1.0], [1.0, 2.0]], scale=0.5)
        EmpCov(scale=0.5, floor=0.005, kernel=None)
        """
        prior = object.__new__(cls)
        prior._settle(np.array(covariance, np.float64), scale, floor, None if kernel is None else tuple(kernel))
        return prior

    def to_plain(self) -> dict[str, Any]:
        own = {"scale": self.scale, "floor": self.floor, "kernel": self.kernel and list(self.kernel)}
        return {"kind": self.saved_as, **own, "covariance": _symmetric_to_text(self.covariance)}

    @classmethod
    def from_settings(cls, **settings: Any) -> "EmpCov":
        return cls.from_covariance(_symmetric_from_text(settings.pop("covariance")), **settings)

    def _settle(
        self, covariance: np.ndarray, scale: float, floor: float | None, kernel: tuple[int, ...] | None
    ) -> None:
        check_positive("scale", scale)
        floor = scale / 100 if floor is None else floor
        check_positive("floor", floor)
        covariance = _checked(covariance, kernel)
        eigenvalues, directions = np.linalg.eigh(covariance / np.diag(covariance).mean())
        if eigenvalues[0] < -1e-6 * eigenvalues[-1]:
            raise ValueError("covariance must not have negative eigenvalues: variances cannot be negative")
        variances = scale**2 * np.maximum(eigenvalues, 0.0) + floor**2
        widest = math.sqrt(variances[-1])
        if floor < NARROWEST * widest:
            raise ValueError(
                f"floor must be at least {NARROWEST:g} of the widest direction's standard deviation {widest:.3g} to "
                f"be told apart in single precision, got {floor:.3g}: try floor={scale / 100:.3g}"
            )
        settled = {"scale": float(scale), "floor": float(floor), "kernel": kernel}
        for name, value in (settled | dict(covariance=covariance, variances=variances, directions=directions)).items():
            object.__setattr__(self, name, value)

    def distribution(self, leaf: Leaf) -> CorrelatedNormal:
        if leaf.is_bias:
            raise ValueError(
                f"p.EmpCov is for the weights that meet the inputs, but {leaf.path} {leaf.shape} has no inputs. Give "
                f'priors by path, such as {{"**": p.Normal(), "layers/0/weight": p.EmpCov(x)}}'
            )
        inputs, axes = self.covariance.shape[0], leaf.known_axes
        apart = [axis for axis in range(len(leaf.shape)) if axis not in axes.inputs + axes.positions]
        if self.kernel is None:
            order = (*apart, *sorted(axes.inputs + axes.positions))
            if leaf.fan_in != inputs:
                hint = f"; for a convolution, give kernel={_kernel_of(leaf)}" if len(leaf.shape) > 2 else ""
                raise ValueError(
                    f"p.EmpCov has the covariance of {inputs} inputs, but a unit of {leaf.path} {leaf.shape} has "
                    f"{leaf.fan_in}: it is for the layer that meets x itself{hint}{_read(leaf)}"
                )
        else:
            if len(leaf.shape) != len(self.kernel) + 2 or _kernel_of(leaf) != self.kernel or leaf.fan_in != inputs:
                channels = inputs // math.prod(self.kernel)
                raise ValueError(
                    f"p.EmpCov has the covariance of {self.kernel} patches with {channels} channels, but "
                    f"{leaf.path} {leaf.shape} is no such kernel: check kernel= and channels="
                    f'("first" for images (examples, channels, ...), "last" for (examples, ..., channels))'
                )
            order = (*apart, *axes.positions, *axes.inputs)
        return CorrelatedNormal(self.variances, self.directions, leaf.shape, order)


def _read(leaf: Leaf) -> str:
    if leaf.axes is not None or len(leaf.shape) < 3:
        return ""
    return ". px.network(net, example=x) reads off the program which of the axes are inputs"


def _kernel_of(leaf: Leaf) -> tuple[int, ...]:
    return tuple(leaf.shape[axis] for axis in leaf.known_axes.positions)


def _checked(covariance: np.ndarray, kernel: tuple[int, ...] | None) -> np.ndarray:
    if covariance.ndim != 2 or covariance.shape[0] != covariance.shape[1]:
        raise ValueError(f"covariance must be a square matrix, got shape {covariance.shape}")
    check_inputs_of_unit(covariance.shape[0], LARGEST)
    if kernel is not None and covariance.shape[0] % math.prod(kernel):
        raise ValueError(f"a covariance of {covariance.shape[0]} inputs is not one of patches of {kernel} pixels")
    if not np.isfinite(covariance).all():
        raise ValueError("covariance has non-finite values")
    if not np.allclose(covariance, covariance.T, rtol=1e-5, atol=1e-8 * np.abs(covariance).max()):
        raise ValueError("covariance must be symmetric")
    if not np.diag(covariance).mean() > 0:
        raise ValueError("x does not vary: all examples are equal, so that there is no covariance to build a prior on")
    return (covariance + covariance.T) / 2  # to the last bit


def _symmetric_to_text(matrix: np.ndarray) -> str:
    """The upper triangle's bytes as text: bit-exact, and smaller than digits would be.

    >>> _symmetric_from_text(_symmetric_to_text(np.array([[2.0, 0.1], [0.1, 1.0]]))).tolist()
    [[2.0, 0.1], [0.1, 1.0]]
    """
    triangle = matrix[np.triu_indices(len(matrix))]
    return base64.b64encode(triangle.astype("<f8").tobytes()).decode("ascii")


def _symmetric_from_text(text: str) -> np.ndarray:
    triangle = np.frombuffer(base64.b64decode(text, validate=True), "<f8")
    size = (math.isqrt(8 * len(triangle) + 1) - 1) // 2
    if size * (size + 1) // 2 != len(triangle):
        raise ValueError(f"{len(triangle)} numbers do not fill the triangle of a symmetric matrix")
    matrix = np.zeros((size, size))
    matrix[np.triu_indices(size)] = triangle
    return matrix + np.triu(matrix, 1).T
