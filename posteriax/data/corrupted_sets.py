"""A test set and its corruptions, each generated when it is accessed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from posteriax._internal.checks import check_count, check_data
from posteriax.data.corruptions.corrupt import check_corruption, corrupt
from posteriax.data.corruptions.suite import CORRUPTIONS


class Corruption(NamedTuple):
    """What was done to a test set.

    >>> Corruption("fog", 3).severity
    3
    """

    kind: str
    severity: int


class CorruptedSet(tuple[Any, Any]):
    """A corrupted test set ``(x, y)``: :func:`px.compare` averages such sets by severity.

    :func:`px.corrupted` makes them; make your own for other corruptions. What counts is this type, never the name of a
    test set.

    Args:
        x, y: inputs as the network takes them, and targets.
        kind: the corruption.
        severity: from 1; 0 is the main test set.

    >>> x, y = worse = CorruptedSet(np.zeros((5, 2)), np.zeros(5, int), kind="fog", severity=3)
    >>> worse.corruption, x.shape
    (Corruption(kind='fog', severity=3), (5, 2))
    """

    corruption: Corruption

    def __new__(cls, x: Any, y: Any, *, kind: str, severity: int) -> "CorruptedSet":
        made = super().__new__(cls, (x, y))
        made.corruption = Corruption(str(kind), check_count("severity", severity))
        return made


@dataclass(frozen=True, eq=False)
class Corrupted(Mapping[str, tuple[Any, np.ndarray]]):
    """Test sets by name: "clean", and a :class:`CorruptedSet` "kind severity" for each kind and severity.

    Made by :func:`corrupted`.
    """

    images: np.ndarray
    y: np.ndarray
    kinds: tuple[str, ...]
    severities: tuple[int, ...]
    key: Any
    prepare: Callable[[np.ndarray], Any]
    channels: Literal["first", "last"] = field(default="last")

    def __getitem__(self, name: str) -> tuple[Any, np.ndarray]:
        if name == "clean":
            return self.prepare(self.images), self.y
        kind, _, severity = name.rpartition(" ")
        if kind not in self.kinds or severity not in map(str, self.severities):
            raise KeyError(name)
        x = self.prepare(corrupt(self.images, kind, int(severity), self.key, channels=self.channels))
        return CorruptedSet(x, self.y, kind=kind, severity=int(severity))

    def __iter__(self) -> Iterator[str]:
        yield "clean"
        yield from (f"{kind} {severity}" for kind in self.kinds for severity in self.severities)

    def __len__(self) -> int:
        return 1 + len(self.kinds) * len(self.severities)


def corrupted(
    data: Any,
    kinds: Sequence[str] = CORRUPTIONS,
    severities: Sequence[int] = (1, 2, 3, 4, 5),
    *,
    key: Any = 0,
    prepare: Callable[[np.ndarray], Any] | None = None,
    channels: Literal["first", "last"] = "last",
) -> Corrupted:
    """A test set of images, clean and corrupted, for :func:`px.compare`.

    Args:
        data: ``(images, y)`` with images as :func:`px.corrupt` takes them.
        kinds, severities: which corruptions.
        key: for the random part of corruptions.
        prepare: preprocessing of the images for the network (scaling, flattening); none by default.
        channels: "first" for images (N, channels, height, width).

    >>> import posteriax as px
    >>> _, test = px.data.fashion_small()
    >>> sets = px.corrupted(test, ["contrast"], [1, 5], prepare=lambda images: images.reshape(len(images), -1))
    >>> list(sets), sets["contrast 5"][0].shape
    (['clean', 'contrast 1', 'contrast 5'], (1000, 784))
    """
    images, y = check_data(data)
    sets = Corrupted(images, y, tuple(kinds), tuple(severities), key, prepare or (lambda a: a), channels)
    for kind in sets.kinds:  # a wrong name should fail now, not after minutes of predictions
        for severity in sets.severities:
            check_corruption(kind, severity)
    return sets
