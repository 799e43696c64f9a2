"""Paths of leaves, and patterns that select them.

A path joins the keys that lead to a leaf: ``layers/0/weight``. In a pattern, ``*`` stands for any characters within one
segment of the path and ``**`` for any number of segments. A pattern that matches a node selects all leaves below it:
``**/conv*`` selects ``conv1/kernel`` and ``conv1/bias``.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

import jax

T = TypeVar("T")


def leaf_paths(tree: object) -> list[str]:
    """The path of each leaf, in flattening order.

    >>> leaf_paths({"fc": {"bias": 0.0, "kernel": 0.0}})
    ['fc/bias', 'fc/kernel']
    """
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in leaves]


def describe_leaves(tree: object) -> list[str]:
    """One line per leaf: ``path shape dtype``."""
    leaves = jax.tree.leaves(tree)
    return [f"{path} {tuple(leaf.shape)} {leaf.dtype}" for path, leaf in zip(leaf_paths(tree), leaves, strict=True)]


def choose_by_path(patterns: Mapping[str, T], paths: Sequence[str], what: str, *, leaves: Sequence[str]) -> list[T]:
    """The value of the most specific pattern for each path.

    A pattern that names the leaf itself beats one that names an ancestor; then the one with more literal characters
    wins; then the later one. So the order of patterns rarely matters.

    Args:
        patterns: values by pattern.
        paths: the paths to cover; each must be matched.
        what: what the values are, for error messages ("prior", "family").
        leaves: descriptions of the leaves, for error messages.
    """
    used = set()
    chosen = []
    for path in paths:
        ranked = []
        for order, (pattern, value) in enumerate(patterns.items()):
            specificity = _specificity(pattern, path)
            if specificity is not None:
                used.add(pattern)
                ranked.append((specificity, order, value))
        if not ranked:
            raise ValueError(
                f"no {what} pattern matches the leaf {path}. Patterns: {', '.join(map(repr, patterns))}. "
                f'Add "**" for all others.'
            )
        chosen.append(max(ranked, key=lambda r: r[:2])[2])
    for pattern in patterns:
        if pattern not in used:
            raise ValueError(f'{what} pattern "{pattern}" matches no leaf. Leaves: {", ".join(leaves)}')
    return chosen


def select_paths(pattern: str, paths: Sequence[str], what: str = "over") -> tuple[int, ...]:
    """The positions of the paths that a pattern selects, by itself or by an ancestor.

    >>> select_paths("out", ["hidden/weight", "out/bias", "out/weight"])
    (1, 2)
    """
    chosen = tuple(i for i, path in enumerate(paths) if _specificity(pattern, path) is not None)
    if not chosen:
        raise ValueError(f'{what}="{pattern}" matches no leaf. Leaves: {", ".join(paths)}')
    return chosen


def _specificity(pattern: str, path: str) -> tuple[bool, int] | None:
    """(names the leaf itself, literal characters), or None if the pattern matches neither leaf nor ancestor."""
    regex = _regex(pattern)
    literal = len(re.sub(r"[*/]", "", pattern))
    if regex.fullmatch(path):
        return bool(pattern.rsplit("/", 1)[-1].strip("*")), literal  # "**" matches a leaf but does not name it
    steps = path.split("/")
    if any(regex.fullmatch("/".join(steps[:n])) for n in range(1, len(steps))):
        return False, literal
    return None


def _regex(pattern: str) -> re.Pattern[str]:
    parts = []
    steps = pattern.strip("/").split("/")
    for n, step in enumerate(steps):
        last = n == len(steps) - 1
        if step == "**":
            parts.append(".*" if last else "(?:.*/)?")
        else:
            parts.append("[^/]*".join(map(re.escape, step.split("*"))) + ("" if last else "/"))
    return re.compile("".join(parts))
