"""Leaf: what priors and families may know of one array of a network.

Which axes of a weight are its inputs and which its outputs is read off the program (:mod:`posteriax.problem.leaf_axes`)
where an example of the data is known. Otherwise, and where the program does not say, the network's convention holds:
one axis of outputs, the axis of inputs beside it, and the positions of a convolution in the others.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Axes:
    """The parts that the axes of a leaf play. An axis that is not named counts independent copies.

    Args:
        inputs: along these, the leaf is summed with what enters it; none for a bias.
        outputs: these are left over.
        positions: of a convolution's window: summed over as well, but no features.
        lookup: whether the inputs choose one row instead of being summed over, as in an embedding.

    >>> Leaf("query/kernel", (6, 2, 4), axes=Axes(inputs=(0,), outputs=(1, 2))).fan_in
    6
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    positions: tuple[int, ...] = ()
    lookup: bool = False


@dataclass(frozen=True)
class Leaf:
    """What a prior or a family may know of the leaf it is for.

    Args:
        path: where it is in the network.
        shape: its shape.
        out_axis: which axis counts outputs by the network's convention.
        axes: what its axes are, if the program said.
    """

    path: str
    shape: tuple[int, ...]
    out_axis: int = -1
    axes: Axes | None = None

    @property
    def is_bias(self) -> bool:
        """Biases, normalisation scales, tokens: no inputs. (Equinox gives the bias of a convolution trailing axes.)"""
        if self.axes is not None:
            return not self.axes.inputs
        return len(self.shape) < 2 or "bias" in self.path.rsplit("/", 1)[-1]

    @property
    def known_axes(self) -> Axes:
        """`axes`, or those of the convention."""
        if self.axes is not None:
            return self.axes
        if len(self.shape) < 2:
            return Axes((), tuple(range(len(self.shape))))
        outputs = self.out_axis % len(self.shape)
        beside = 1 if outputs == 0 else len(self.shape) - 2
        others = tuple(axis for axis in range(len(self.shape)) if axis not in (outputs, beside))
        return Axes((beside,), (outputs,), others)

    @property
    def in_axes(self) -> tuple[int, ...]:
        """The axes that count input features (the input channels of a convolution)."""
        return self.known_axes.inputs

    @property
    def out_axes(self) -> tuple[int, ...]:
        """The axes that count outputs."""
        return self.known_axes.outputs

    @property
    def fan_in(self) -> int:
        """How many weights are summed into one output: one, where a row is looked up."""
        axes = self.known_axes
        return 1 if axes.lookup else math.prod(self.shape[axis] for axis in axes.inputs + axes.positions)

    @property
    def matrix_shape(self) -> tuple[int, int]:
        """The leaf as a matrix of its inputs by its outputs, or the other way round where outputs come first.

        The axes stay in their order. Where outputs are neither the first nor the last of them, the inputs are; the
        other axes go to the other side.
        """
        rank, size, axes = len(self.shape), math.prod(self.shape), self.known_axes
        for side in (axes.outputs, axes.inputs):
            count, apart = math.prod(self.shape[axis] for axis in side), sorted(side)
            if apart == list(range(rank - len(side), rank)):
                return size // count, count
            if apart == list(range(len(side))):
                return count, size // count
        return size // self.shape[-1], self.shape[-1]

    @property
    def outputs_axis(self) -> int:
        """The axis of outputs, counted from the front; the first, if there are several."""
        return (self.out_axes or (self.out_axis % len(self.shape),))[0]

    @property
    def in_axis(self) -> int:
        """The axis of inputs; the first, if there are several."""
        return self.in_axes[0]
