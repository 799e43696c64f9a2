"""The arrays that metrics take, checked, and the precision that they are computed in.

Shapes are always checked. Values (NaN, labels out of range, logits in place of probabilities) are checked only outside
``jax.jit`` and ``jax.vmap``: inside, they are not known yet.
"""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from posteriax._internal.checks import check_targets
from posteriax.likelihoods.classes import ClassPredictive

Values = np.ndarray | jax.Array  # what metrics return: JAX's inside jax.jit, otherwise NumPy's, numbers included
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
AnyArray = TypeVar("AnyArray", np.ndarray, jax.Array)  # of functions that take and return either kind


def keeps_precision(metric: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """A metric in the precision of its arguments, with NumPy results.

    JAX cuts float64 to float32 unless ``jax_enable_x64`` is set. A target of 1.7e9 (a Unix time) is then known to 128,
    and an error of 3 is 0. So the metric runs with float64 switched on, for itself only. Its results are NumPy arrays
    and numbers: JAX would cut those too at the next operation. If an argument is being traced, as in ``jax.jit``,
    ``jax.vmap`` and ``jax.grad``, its precision is settled already, and the metric is a JAX function like any other.

    >>> @keeps_precision
    ... def spread(values):
    ...     return as_numbers("values", values).max() - as_numbers("values", values).min()
    >>> spread([1.7e9, 1.7e9 + 3]), jax.jit(spread)(np.array([1.7e9, 1.7e9 + 3])).item()
    (np.float64(3.0), 0.0)
    """

    @wraps(metric)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        if not all(map(is_concrete, jax.tree.leaves((args, kwargs)))):
            return metric(*args, **kwargs)
        # concrete arrays inside jax.jit are computed at once, not made part of the program
        with jax.ensure_compile_time_eval(), jax.enable_x64(True):
            return jax.tree.map(lambda array: np.asarray(array)[()], metric(*args, **kwargs))

    return call


def as_numbers(name: str, value: ArrayLike, *, infinite: bool = False) -> jax.Array:
    """Real numbers in their own precision, at least float32: not empty, no NaN, infinite only if that is allowed."""
    array = _array(name, value)
    if isinstance(array, np.ndarray):
        if array.dtype.kind in "biu":
            array = array.astype(np.float64)  # before JAX cuts it to 32 bits
        bad = np.isnan(array) if infinite else ~np.isfinite(array)
        if bad.any():
            index = tuple(int(i) for i in np.argwhere(bad)[0])
            what = "NaN" if infinite else "non-finite"
            raise ValueError(f"{name} has {int(bad.sum())} {what} values, the first at index {index}")
    numbers = jnp.asarray(array)
    return numbers.astype(jnp.promote_types(numbers.dtype, jnp.float32))


def as_probs(name: str, value: ArrayLike) -> jax.Array:
    """Probabilities with a last axis of classes."""
    probs = as_numbers(name, value)
    if probs.ndim == 0:
        raise ValueError(f"{name} must have a last axis of classes, got a number")
    if is_concrete(value):
        values = np.asarray(value).astype(np.float32)
        sums = values.sum(axis=-1)
        # with half precision and many classes the sum may be off by a few thousandths
        if values.min() < -1e-6 or np.abs(sums - 1.0).max() > 0.01:
            row = np.unravel_index(np.abs(sums - 1.0).argmax(), sums.shape)
            raise ValueError(
                f"{name} must be at least 0 and sum to 1 over the last axis, got values from {values.min():.3g} and a "
                f"sum of {sums[row]:.3g} at index {tuple(int(i) for i in row)}. Apply jax.nn.softmax to logits first."
            )
    return probs


def as_labels(y: ArrayLike, classes: int) -> jax.Array:
    """Labels 0 to classes - 1."""
    array = _array("y", y)
    if isinstance(array, np.ndarray):
        if array.dtype.kind not in "biu":
            raise TypeError(f"y must be whole-number labels, got dtype {array.dtype}; use y.astype(int)")
        if array.min() < 0 or array.max() >= classes:
            wrong = array.min() if array.min() < 0 else array.max()
            raise ValueError(f"y has the label {wrong}, but probs has {classes} classes (labels 0 to {classes - 1})")
    return jnp.asarray(array.astype(np.int32))


def as_binary(y: ArrayLike, *, both: bool) -> jax.Array:
    """Booleans, given as such or as 0 and 1: at least one 1 and, if `both`, one 0."""
    array = _array("y", y)
    if isinstance(array, np.ndarray):
        if not np.isin(array, (0, 1)).all():
            raise ValueError(f"y must be 0 or 1, got values from {array.min()} to {array.max()}")
        missing = [label for label, needed in ((1, True), (0, both)) if needed and not (array == label).any()]
        if missing:
            raise ValueError(f"y has no {missing[0]}: the score needs examples {'of both kinds' if both else 'with 1'}")
    return jnp.asarray(array.astype(bool))


def is_concrete(value: object) -> bool:
    """Whether values can be read, which inside ``jax.jit`` and ``jax.vmap`` they cannot."""
    return not isinstance(value, jax.core.Tracer)


def score_classes(score: Callable[[jax.Array, jax.Array], Result], probs: jax.Array, y: ArrayLike) -> Result:
    """A score of (N, C) and (N,): one number, or one per draw if `probs` has an axis of draws before those of `y`."""
    shape = np.shape(y)
    flat = lambda draw: draw.reshape(-1, draw.shape[-1])  # noqa: E731
    if probs.ndim >= 2 and probs.shape[:-1] == shape:
        return score(flat(probs), as_labels(y, probs.shape[-1]).reshape(-1))
    if probs.ndim >= 3 and probs.shape[1:-1] == shape:
        labels = as_labels(y, probs.shape[-1]).reshape(-1)
        return jax.vmap(lambda draw: score(flat(draw), labels))(probs)
    raise ValueError(
        f"probs must have the shape of y and a last axis of classes (and may have a first axis of draws), got probs "
        f"{probs.shape} and y {shape}"
    )


def check_same_shape(**arrays: jax.Array) -> None:
    if len({array.shape for array in arrays.values()}) > 1:
        shapes = [str(array.shape) for array in arrays.values()]
        raise ValueError(f"{_listed(list(arrays))} must have the same shape, got {_listed(shapes)}")


def check_draws(name: str, draws: jax.Array, y: jax.Array) -> None:
    """Draws have an axis before those of `y`."""
    if draws.shape[1:] != y.shape or draws.ndim != y.ndim + 1:
        raise ValueError(f"{name} must have an axis of draws and then the shape of y, got {draws.shape} and {y.shape}")


def as_gaussians(mean: ArrayLike, scale: ArrayLike, y: ArrayLike) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Means and scales as (S, N, ...), one Gaussian being a mixture of one, and y as (N, ...)."""
    if is_concrete(scale) and not (np.asarray(scale) > 0).all():
        raise ValueError(f"scale must be positive, got values from {np.min(scale):.3g}")
    mean, scale, y = as_numbers("mean", mean), as_numbers("scale", scale), as_numbers("y", y)
    mean, scale, y = (array.astype(jnp.result_type(mean, scale, y)) for array in (mean, scale, y))
    if y.ndim == 0:
        raise ValueError("y must have an axis of examples, got a number")
    if mean.shape == y.shape:
        mean = mean[None]
    check_draws("mean", mean, y)
    return mean, scales_like(mean, scale), y


def scales_like(mean: jax.Array, scale: jax.Array) -> jax.Array:
    """Scales in the shape of the means."""
    try:
        return jnp.broadcast_to(scale, mean.shape)
    except ValueError:
        raise ValueError(f"scale must broadcast to the shape of mean, got {scale.shape} and {mean.shape}") from None


def probs_by_example(predictive: ClassPredictive) -> np.ndarray:
    """A predictive's probabilities as (N, C); any axes before the last are examples."""
    probs = predictive.probs
    return probs.reshape(-1, probs.shape[-1])


def labels_by_example(predictive: ClassPredictive, y: ArrayLike) -> np.ndarray:
    """Labels, (N,), as the predictive's own check gives them."""
    return np.asarray(predictive.check(y)).reshape(-1)


def targets_like(mean: np.ndarray, y: ArrayLike) -> np.ndarray:
    """Targets in float64 and in the shape of predicted means; (N,) goes with (N, 1)."""
    targets = np.asarray(check_targets(y), np.float64)
    if targets.ndim == 0 or targets.shape[0] != mean.shape[0] or targets.size != mean.size:
        raise ValueError(f"y has shape {targets.shape}, but the predictions have shape {mean.shape}")
    return targets.reshape(mean.shape)


def fraction_true(holds: jax.Array) -> jax.Array:
    """The fraction of True along the last axis; exactly 1 if all are.

    XLA divides by multiplying with a rounded 1 / N, which makes the mean of 41 ones less than 1.

    >>> fraction_true(jnp.ones(41, bool)).item()
    1.0
    """
    count, size = holds.sum(axis=-1, dtype=jnp.int32), holds.shape[-1]
    return jnp.where(count == size, 1.0, count / size)


def _array(name: str, value: ArrayLike) -> Values:
    """A NumPy array if values can be read, otherwise what was given: real numbers, and not empty."""
    array: Values = value if isinstance(value, jax.core.Tracer) else np.asarray(value)
    if not (array.dtype.kind in "biuf" or jnp.issubdtype(array.dtype, jnp.floating)):
        raise TypeError(f"{name} must be an array of real numbers, got dtype {array.dtype}")
    if array.size == 0:
        raise ValueError(f"{name} is empty: it has the shape {array.shape}")
    return array


def _listed(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"
