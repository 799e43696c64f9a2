"""Leaves that are too small or too odd for the family that was asked for."""

from collections.abc import Container, Sequence

from posteriax.families.family import Family
from posteriax.priors import Leaf


def misfit_notes(families: Sequence[Family], leaves: Sequence[Leaf], named: Container[str] = ()) -> list[str]:
    """A note for every leaf that its family does not fit.

    Args:
        families: what was asked for each leaf.
        leaves: the leaves.
        named: what families were given by, paths and patterns: for a leaf that was named itself, a misfit is an error.

    >>> from posteriax import families as q
    >>> misfit_notes([q.KTied(2)], [Leaf("head", (16, 1))])
    ['head: the scales of a (16, 1) matrix have rank 1 at the most, so that q.KTied(k=2) is q.KTied(k=1) there']
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
