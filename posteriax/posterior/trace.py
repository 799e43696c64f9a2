"""Trace: what a run recorded at every step."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Trace(Mapping[str, np.ndarray]):
    """One array per quantity, by name; (steps,) for one member, (members, steps) for several.

    Args:
        arrays: by name.
        notes: what a user should know about how the run was set up, one line each.
        seconds: the run time, compilation included; not saved with a posterior.
        warmup: how many of the first steps were a sampler's warm-up.
        arviz_names: ArviZ's names for the arrays, where they differ; declared by the method.

    >>> trace = Trace({"elbo": np.array([-3.0, -2.0])})
    >>> trace["elbo"].tolist()
    [-3.0, -2.0]
    """

    arrays: dict[str, np.ndarray]
    notes: tuple[str, ...] = ()
    seconds: float = field(default=0.0, compare=False)
    warmup: int = 0
    arviz_names: Mapping[str, str] = field(default_factory=dict)

    @property
    def converged(self) -> bool | None:
        """Whether the run has converged, by the rule that ends it (``px.fit(..., until="converged")``).

        None for a run of fixed length.
        """
        return bool(self.arrays["converged"][0]) if "converged" in self.arrays else None

    def __getitem__(self, name: str) -> np.ndarray:
        return self.arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)
