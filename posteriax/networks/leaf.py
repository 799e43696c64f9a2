"""Leaf: what priors and families may know about one array of a network.

The input and output axes of a weight are read off the program (`networks/tracing/leaf_axes.py`) once an example of
the data is known. Before that, or if the program does not tell, the library's convention holds: one output axis, the
input axis next to it, and the positions of a convolution in the others.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Axes:
    """The roles of the axes of a leaf. Axes that are not listed count independent copies.

    Args:
        inputs: contracted with the inputs; none for a bias.
        outputs: free axes.
        positions: of a convolution window: contracted too, but not features.
        lookup: whether the inputs select a row instead of being summed over, as in an embedding.

    >>> Leaf("query/kernel", (6, 2, 4), axes=Axes(inputs=(0,), outputs=(1, 2))).fan_in
    6
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    positions: tuple[int, ...] = ()
    lookup: bool = False


@dataclass(frozen=True)
class Leaf:
    """What a prior or a family may know about a leaf.

    Args:
        path: its path in the network.
        shape: its shape.
        out_axis: the output axis by the library's convention.
        axes: the roles of its axes, if known from the program.
    """

    path: str
    shape: tuple[int, ...]
    out_axis: int = -1
    axes: Axes | None = None

    @property
    def is_bias(self) -> bool:
        """Whether it has no inputs: biases, normalisation scales, tokens. (Equinox conv biases have trailing axes.)"""
        if self.axes is not None:
            return not self.axes.inputs
        return len(self.shape) < 2 or "bias" in self.path.rsplit("/", 1)[-1]

    @property
    def known_axes(self) -> Axes:
        """`axes`, or those by convention."""
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
        """The axes of input features (the input channels of a convolution)."""
        return self.known_axes.inputs

    @property
    def out_axes(self) -> tuple[int, ...]:
        """The output axes."""
        return self.known_axes.outputs

    @property
    def fan_in(self) -> int:
        """How many weights are summed into one output; 1 for an embedding, whose rows are looked up."""
        axes = self.known_axes
        return 1 if axes.lookup else math.prod(self.shape[axis] for axis in axes.inputs + axes.positions)

    @property
    def copies(self) -> tuple[int, ...]:
        """The lengths of the leading axes that count independent copies, such as the equal blocks of a deep network."""
        if self.axes is None:
            return ()
        used = {*self.axes.inputs, *self.axes.outputs, *self.axes.positions}
        return self.shape[: min(used, default=0)]

    @property
    def one_copy(self) -> "Leaf":
        """A leaf like one of its copies; itself if it has none.

        >>> stacked = Leaf("blocks/weight", (12, 6, 4), axes=Axes(inputs=(1,), outputs=(2,)))
        >>> stacked.copies, stacked.one_copy.shape, stacked.one_copy.in_axes
        ((12,), (6, 4), (0,))
        """
        first = len(self.copies)
        if self.axes is None or not first:
            return self
        inputs, outputs, positions = (
            tuple(axis - first for axis in axes) for axes in (self.axes.inputs, self.axes.outputs, self.axes.positions)
        )
        return Leaf(self.path, self.shape[first:], self.out_axis, Axes(inputs, outputs, positions, self.axes.lookup))

    @property
    def matrix_shape(self) -> tuple[int, int]:
        """The shape of the leaf as a matrix: inputs by outputs, or outputs by inputs if they come first.

        Axes keep their order. If the outputs are neither the first nor the last axes, the inputs form one side and
        all other axes the other.
        """
        rank, size, axes = len(self.shape), math.prod(self.shape), self.known_axes
        for side in (axes.outputs, axes.inputs):
            count, side_axes = math.prod(self.shape[axis] for axis in side), sorted(side)
            if side_axes == list(range(rank - len(side), rank)):
                return size // count, count
            if side_axes == list(range(len(side))):
                return count, size // count
        return size // self.shape[-1], self.shape[-1]

    @property
    def outputs_axis(self) -> int:
        """The output axis, counted from the front; the first if there are several."""
        return (self.out_axes or (self.out_axis % len(self.shape),))[0]

    @property
    def in_axis(self) -> int:
        """The input axis; the first if there are several."""
        return self.in_axes[0]
