"""EmpCov: a prior for first-layer weights, aligned with the covariance of the inputs.

    w_unit ~ N(0, C),   C = scale^2 S / mean(diag S) + floor^2 I       S: covariance of the training inputs

The data say nothing about a combination of inputs that is constant in training (a pixel that is always black), so under
an ordinary prior the posterior along it equals the prior, and each draw adds noise once a shift activates it. Here its
weights have standard deviation `floor`. (Izmailov, Nicholson, Lotfi and Wilson 2021)

This is the published form N(0, alpha S + eps I), with alpha = scale^2 / mean(diag S) and eps = floor^2. The published
code adds precisions instead, alpha^-1 S^-1 + I / s^2: each direction then gets the narrower of two variances, and a
constant one a variance around 1e-12, too small for single precision.

S is computed in double precision. The symmetric roots of C and its inverse come from an eigendecomposition in double
precision as well, so that nothing is inverted in single precision:

    whiten(w) = C^-1/2 w,   unwhiten(z) = C^1/2 z,   -log p(w) = |whiten(w)|^2 / 2 + const
"""

import base64
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpy.typing import ArrayLike

from posteriax._internal.checks import check_choice, check_inputs, check_positive
from posteriax._internal.memory import PATCH_VALUES, fitting
from posteriax._internal.running_moments import mean_and_covariance
from posteriax.networks.leaf import Leaf
from posteriax.priors.prior import Prior

LARGEST = 4096  # inputs of one unit: the eigendecomposition takes half a minute, and the result still fits in a file
NARROWEST = 1e-5  # relative to the widest direction; less is lost in single precision


@dataclass(frozen=True, init=False, eq=False)
class EmpCov(Prior):
    """N(0, C) on the incoming weights of each first-layer unit, with C from the covariance of the inputs.

    Give it to the first layer by path; other leaves need another prior. For a convolution the inputs of a unit are
    patches of the kernel's size, at all positions whatever the stride.

    Args:
        x: training inputs as the network gets them, (examples, ...); flattened for a dense layer.
        scale: the root-mean-square standard deviation of a weight, as in ``p.Normal(scale)``, before `floor`.
        floor: the standard deviation in directions in which the inputs do not vary; scale / 100 by default.
        kernel: the kernel size of a convolution, such as (5, 5); None for a dense layer.
        padding: zeros on each side of the images, as in the convolution: a number, or one per axis.
        channels: the channel axis of the images: "last" in Flax, "first" in Equinox.

    >>> import equinox as eqx, jax, posteriax as px
    >>> from posteriax import priors as p
    >>> x = np.random.default_rng(0).normal(size=(100, 3)) * [1.0, 1.0, 0.0]  # the third input is constant
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
        x: ArrayLike,
        scale: float = 1.0,
        floor: float | None = None,
        *,
        kernel: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        channels: Literal["first", "last"] = "last",
    ):
        if kernel is None:
            if padding != 0:
                raise ValueError(f"padding= is for convolutions and needs kernel=; got padding={padding}")
            covariance = input_covariance(x, LARGEST)
        else:
            kernel, covariance = patch_covariance(x, kernel, padding, channels, LARGEST)
        self._settle(covariance, scale, floor, kernel)

    @classmethod
    def from_covariance(
        cls,
        covariance: ArrayLike,
        scale: float = 1.0,
        floor: float | None = None,
        *,
        kernel: Sequence[int] | None = None,
    ) -> "EmpCov":
        """The same prior from a known covariance, for data too large for one array.

        Args:
            covariance: (inputs, inputs); with a `kernel`, of patches flattened with channels last.
            scale, floor, kernel: as above.

        >>> EmpCov.from_covariance([[2.0, 1.0], [1.0, 2.0]], scale=0.5)
        EmpCov(scale=0.5, floor=0.005, kernel=None)
        """
        prior = object.__new__(cls)
        prior._settle(np.array(covariance, np.float64), scale, floor, None if kernel is None else tuple(kernel))
        return prior

    def to_plain(self) -> dict[str, Any]:
        settings = {"scale": self.scale, "floor": self.floor, "kernel": self.kernel and list(self.kernel)}
        return {"kind": self.saved_as, **settings, "covariance": _symmetric_to_text(self.covariance)}

    @classmethod
    def from_settings(cls, **settings: Any) -> "EmpCov":
        return cls.from_covariance(_symmetric_from_text(settings.pop("covariance")), **settings)

    def _settle(
        self, covariance: np.ndarray, scale: float, floor: float | None, kernel: tuple[int, ...] | None
    ) -> None:
        check_positive("scale", scale)
        floor = scale / 100 if floor is None else floor
        check_positive("floor", floor)
        covariance = _check_covariance(covariance, kernel)
        eigenvalues, directions = np.linalg.eigh(covariance / np.diag(covariance).mean())
        if eigenvalues[0] < -1e-6 * eigenvalues[-1]:
            raise ValueError("covariance must not have negative eigenvalues")
        variances = scale**2 * np.maximum(eigenvalues, 0.0) + floor**2
        widest = math.sqrt(variances[-1])
        if floor < NARROWEST * widest:
            raise ValueError(
                f"floor must be at least {NARROWEST:g} of the widest direction's standard deviation {widest:.3g} in "
                f"single precision, got {floor:.3g}: try floor={scale / 100:.3g}"
            )
        settled = {"scale": float(scale), "floor": float(floor), "kernel": kernel}
        for name, value in (settled | dict(covariance=covariance, variances=variances, directions=directions)).items():
            object.__setattr__(self, name, value)

    def distribution(self, leaf: Leaf) -> "CorrelatedNormal":
        if leaf.is_bias:
            raise ValueError(
                f"p.EmpCov is for first-layer weights, but {leaf.path} {leaf.shape} has no inputs. Give "
                f'priors by path, such as {{"**": p.Normal(), "layers/0/weight": p.EmpCov(x)}}'
            )
        inputs, axes = self.covariance.shape[0], leaf.known_axes
        others = [axis for axis in range(len(leaf.shape)) if axis not in axes.inputs + axes.positions]
        if self.kernel is None:
            order = (*others, *sorted(axes.inputs + axes.positions))
            if leaf.fan_in != inputs:
                hint = f"; for a convolution, give kernel={_kernel_size(leaf)}" if len(leaf.shape) > 2 else ""
                raise ValueError(
                    f"p.EmpCov has the covariance of {inputs} inputs, but a unit of {leaf.path} {leaf.shape} has "
                    f"{leaf.fan_in}: use it for the first layer{hint}{_axes_hint(leaf)}"
                )
        else:
            if len(leaf.shape) != len(self.kernel) + 2 or _kernel_size(leaf) != self.kernel or leaf.fan_in != inputs:
                channels = inputs // math.prod(self.kernel)
                raise ValueError(
                    f"p.EmpCov has the covariance of {self.kernel} patches with {channels} channels, but "
                    f"{leaf.path} {leaf.shape} does not match: check kernel= and channels="
                    f'("first" for images (examples, channels, ...), "last" for (examples, ..., channels))'
                )
            order = (*others, *axes.positions, *axes.inputs)
        return CorrelatedNormal(self.variances, self.directions, leaf.shape, order)


def _axes_hint(leaf: Leaf) -> str:
    """What to do if the convention is wrong about which axes of the leaf are inputs."""
    if leaf.axes is not None or len(leaf.shape) < 3:
        return ""
    return ". px.network(net, example=x) reads the input axes off the program"


def _kernel_size(leaf: Leaf) -> tuple[int, ...]:
    return tuple(leaf.shape[axis] for axis in leaf.known_axes.positions)


def _check_covariance(covariance: np.ndarray, kernel: tuple[int, ...] | None) -> np.ndarray:
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
        raise ValueError("x does not vary: all examples are equal, so there is no covariance")
    return (covariance + covariance.T) / 2  # to the last bit


def _symmetric_to_text(matrix: np.ndarray) -> str:
    """The upper triangle as base64 text: exact to the bit, and shorter than decimal digits.

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


class CorrelatedNormal(dist.Distribution):
    """Independent N(0, C) for the incoming weights of each output unit; an event is the whole leaf.

    Args:
        variances: the d eigenvalues of C, all positive.
        directions: its eigenvectors, the columns of a (d, d) matrix.
        shape: of the leaf.
        order: the axes of the leaf: outputs first, then inputs in the order of C.

    >>> prior = CorrelatedNormal(np.array([4.0, 1.0]), np.eye(2), shape=(3, 2), order=(0, 1))
    >>> prior.variance[0].tolist()
    [4.0, 1.0]
    >>> prior.whiten(jnp.ones((3, 2)))[0].tolist()
    [0.5, 1.0]
    """

    pytree_data_fields = ("root", "inverse_root", "marginals")
    pytree_aux_fields = ("order", "half_log_determinant")
    reparametrized_params = ()

    def __init__(self, variances: np.ndarray, directions: np.ndarray, shape: tuple[int, ...], order: tuple[int, ...]):
        scales = np.sqrt(np.asarray(variances, np.float64))
        self.root = (directions * scales) @ directions.T
        self.inverse_root = (directions / scales) @ directions.T
        self.marginals = np.square(directions) @ np.square(scales)
        self.order = order
        self.half_log_determinant = float(np.log(scales).sum())
        super().__init__(event_shape=shape)

    @property
    def support(self) -> dist.constraints.Constraint:
        return dist.constraints.independent(dist.constraints.real, len(self.event_shape))

    def log_prob(self, value: jax.Array) -> jax.Array:
        size = math.prod(self.event_shape)
        constant = size // self.marginals.size * self.half_log_determinant + 0.5 * size * math.log(2 * math.pi)
        axes = tuple(range(-len(self.event_shape), 0))
        return -0.5 * jnp.square(self.whiten(value)).sum(axis=axes) - constant

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        return self.unwhiten(jax.random.normal(key, (*sample_shape, *self.event_shape)))

    @property
    def mean(self) -> jax.Array:
        return jnp.zeros(self.event_shape)

    @property
    def variance(self) -> jax.Array:
        units = math.prod(self.event_shape) // self.marginals.size
        rows = jnp.broadcast_to(self.marginals, (units, self.marginals.size))
        return self._leaf(jnp.asarray(rows, jnp.zeros(()).dtype), ())

    def whiten(self, w: jax.Array) -> jax.Array:
        """C^-1/2 w for each unit: independent standard normals if w is a draw. Leading axes are allowed.

        The root is symmetric, so whiten(noise) is also a momentum with mass C^-1.
        """
        return self._apply(self.inverse_root, w)

    def unwhiten(self, z: jax.Array) -> jax.Array:
        """C^1/2 z for each unit, the inverse of `whiten`."""
        return self._apply(self.root, z)

    def _apply(self, matrix: np.ndarray, leaf: jax.Array) -> jax.Array:
        leading = leaf.shape[: leaf.ndim - len(self.event_shape)]
        axes = (*range(len(leading)), *(len(leading) + axis for axis in self.order))
        dtype = jnp.promote_types(leaf.dtype, jnp.float32)
        rows = leaf.astype(dtype).transpose(axes).reshape(*leading, -1, matrix.shape[0])
        # C spans many orders of magnitude: reduced-precision products on accelerators would lose the small ones
        product = jnp.matmul(rows, jnp.asarray(matrix, dtype), precision=jax.lax.Precision.HIGHEST)
        return self._leaf(product, leading)

    def _leaf(self, rows: jax.Array, leading: tuple[int, ...]) -> jax.Array:
        """The leaf whose units are these rows."""
        ordered = rows.reshape(*leading, *(self.event_shape[axis] for axis in self.order))
        back = np.argsort(self.order) + len(leading)
        return ordered.transpose(*range(len(leading)), *(int(axis) for axis in back))


def input_covariance(x: ArrayLike, largest: int) -> np.ndarray:
    """The covariance of flattened examples, for up to `largest` inputs.

    >>> input_covariance(np.array([[0.0, 1.0], [2.0, 1.0]]), 10).tolist()
    [[2.0, 0.0], [0.0, 0.0]]
    """
    array = _inputs(x)
    inputs = math.prod(array.shape[1:])
    check_inputs_of_unit(inputs, largest)
    return mean_and_covariance(_examples(array, inputs))[1]


def patch_covariance(
    x: ArrayLike, kernel: int | Sequence[int], padding: int | Sequence[int], channels: str, largest: int
) -> tuple[tuple[int, ...], np.ndarray]:
    """The kernel size, and the covariance of all patches of that size, flattened with channels last.

    >>> patch_covariance(np.ones((2, 3, 1)), kernel=1, padding=1, channels="last", largest=10)
    ((1,), array([[0.2666...]]))
    """
    images = _channels_last(_inputs(x), channels)
    kernel = _per_axis("kernel", kernel, images.ndim - 2, least=1)
    pads = _per_axis("padding", padding, images.ndim - 2, least=0)
    check_inputs_of_unit(math.prod(kernel) * images.shape[-1], largest)
    return kernel, mean_and_covariance(_patches(images, kernel, pads))[1]


def check_inputs_of_unit(inputs: int, largest: int) -> None:
    """Raise if a unit has no inputs, or too many for their covariance."""
    if not 1 <= inputs <= largest:
        raise ValueError(
            f"p.EmpCov needs the covariance of all {inputs:,} inputs of a unit, but supports 1 to {largest:,}: use a "
            f"convolution (kernel=...), or inputs with fewer dimensions"
        )


def _inputs(x: ArrayLike) -> np.ndarray:
    array = check_inputs(x)
    if not isinstance(array, np.ndarray):
        raise TypeError(f"x must be one array of inputs, got a {type(x).__name__}: pass the one that enters the leaf")
    if array.shape[0] < 2:
        raise ValueError("x must have at least 2 examples for a covariance, got 1")
    return array


def _channels_last(x: np.ndarray, channels: str) -> np.ndarray:
    check_choice("channels", channels, ("first", "last"))
    if x.ndim < 3:
        raise ValueError(
            f"x must be images with a channel axis, (examples, height, width, channels) or (examples, channels, "
            f"height, width); got shape {x.shape}"
        )
    return np.moveaxis(x, 1, -1) if channels == "first" else x


def _per_axis(name: str, value: int | Sequence[int], axes: int, least: int) -> tuple[int, ...]:
    values = (value,) * axes if isinstance(value, int | np.integer) else tuple(value)
    if len(values) != axes or any(not isinstance(v, int | np.integer) or v < least for v in values):
        raise ValueError(
            f"{name} must be a whole number of at least {least}, or one for each of the {axes} axes of an image, got "
            f"{value!r} (images have an axis of examples and one of channels besides)"
        )
    return tuple(int(v) for v in values)


def _examples(x: np.ndarray, inputs: int) -> Iterator[np.ndarray]:
    """Flattened inputs, a block of rows at a time."""
    rows = fitting(PATCH_VALUES, inputs)
    for start in range(0, len(x), rows):
        yield np.asarray(x[start : start + rows], np.float64).reshape(-1, inputs)


def _patches(images: np.ndarray, kernel: tuple[int, ...], padding: tuple[int, ...]) -> Iterator[np.ndarray]:
    """All patches of the kernel's size, flattened with their channels last, for a block of images at a time."""
    sides = [n + 2 * pad for n, pad in zip(images.shape[1:-1], padding, strict=True)]
    if any(size > side for size, side in zip(kernel, sides, strict=True)):
        raise ValueError(f"kernel {kernel} is larger than the padded images {tuple(sides)}")
    inputs = math.prod(kernel) * images.shape[-1]
    positions = math.prod(side - size + 1 for side, size in zip(sides, kernel, strict=True))
    rows = fitting(PATCH_VALUES, positions * inputs)
    axes = tuple(range(1, 1 + len(kernel)))
    for start in range(0, len(images), rows):
        block = np.asarray(images[start : start + rows], np.float64)
        padded = np.pad(block, ((0, 0), *((pad, pad) for pad in padding), (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, kernel, axis=axes)
        yield np.moveaxis(windows, 1 + len(kernel), -1).reshape(-1, inputs)
