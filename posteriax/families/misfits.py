"""Leaves that do not suit the family requested for them."""

from collections.abc import Container, Sequence

from posteriax.families.family import Family
from posteriax.priors import Leaf


def misfit_notes(families: Sequence[Family], leaves: Sequence[Leaf], named: Container[str] = ()) -> list[str]:
    """A note for each leaf that does not suit its family.

    Args:
        families: the family requested for each leaf.
        leaves: the leaves.
        named: the paths and patterns that families were given by; for a leaf given by its full path, a misfit is an
            error.

    >>> from posteriax import families as q
    >>> misfit_notes([q.KTied(2)], [Leaf("head", (16, 1))])
    ['head: the scales of a (16, 1) matrix have rank 1 at most, so it gets q.KTied(k=1) instead of q.KTied(k=2)']
    """
    notes = []
    for family, leaf in zip(families, leaves, strict=True):
        why = family.misfit(leaf)
        if why and leaf.path in named:
            kind = type(family).__name__
            raise ValueError(f"{kind} for {leaf.path} {leaf.shape}: {why}; give this leaf another family")
        if why:
            notes.append(f"{leaf.path}: {why}")
    return notes
