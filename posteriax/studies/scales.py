"""The settings of a study at each scale, read from its ``scales.toml``: what a scale has in common is said once.

    [laptop]       what differs from the defaults of the settings' class
    [smoke]        like = "laptop", and what differs from that
    [paper]        the same
    [one_step]     what differs from any scale in the shortest possible run of it
    [named.NAME]   values that several places share; "@NAME" stands for them, and like = "NAME" starts from them

A table changes the settings that it names; where there is a list, it changes those of every entry. A name, a list, a
number or text replaces what was there.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args, get_origin, get_type_hints

S = TypeVar("S")  # a frozen dataclass of settings
Toml = Any  # tables, lists, numbers, text


class NamedValues(dict[str, Toml]):
    """The values that "@NAME" stands for: they replace what was there, where a table would change it."""


class StudyScales(Mapping[str, S], Generic[S]):
    """The settings of a study by scale; read them with :func:`read_scales`."""

    def __init__(self, kind: type[S], scales: Mapping[str, Toml], shortest: Mapping[str, Toml]):
        self.kind, self.shortest = kind, shortest
        self.settings: dict[str, S] = {scale: _build(kind, values) for scale, values in scales.items()}

    def __getitem__(self, scale: str) -> S:
        return self.settings[scale]

    def __iter__(self) -> Iterator[str]:
        return iter(self.settings)

    def __len__(self) -> int:
        return len(self.settings)

    def one_step(self, settings: S) -> S:
        """The same networks, for the fewest steps, on a few examples."""
        return _build(self.kind, _change(asdict(settings), self.shortest))  # type: ignore[call-overload]


def read_scales(file: Path, kind: type[S]) -> StudyScales[S]:
    """Read a study's ``scales.toml``.

    Args:
        file: its path.
        kind: the frozen dataclass of the settings; its fields may be dataclasses, or tuples of them.

    Raises:
        ValueError: if it has a setting that the class does not have, lacks one, or uses a name without values.
    """
    tables = tomllib.loads(file.read_text(encoding="utf-8"))
    named = tables.pop("named", {}) | tables

    def values_of(name: str) -> Toml:
        if name not in named:
            raise ValueError(f"{file}: there are no values named {name!r}, only {', '.join(named)}")
        return resolve(named[name])

    def resolve(value: Toml) -> Toml:
        if isinstance(value, str) and value.startswith("@"):
            return NamedValues(values_of(value[1:]))
        if isinstance(value, list):
            return [resolve(entry) for entry in value]
        if not isinstance(value, dict):
            return value
        changes = {name: resolve(entry) for name, entry in value.items() if name != "like"}
        return _change(values_of(value["like"]), changes) if "like" in value else changes

    if "one_step" not in tables:
        raise ValueError(f"{file}: there is no table [one_step], the settings of the shortest possible run")
    shortest = resolve(tables.pop("one_step"))
    return StudyScales(kind, {scale: resolve(values) for scale, values in tables.items()}, shortest)


def _change(values: Toml, changes: Toml) -> Toml:
    """Values with some of them changed.

    >>> _change({"steps": 9, "data": "mnist", "nets": [{"width": 4}, {"width": 8}]}, {"steps": 1, "nets": {"depth": 2}})
    {'steps': 1, 'data': 'mnist', 'nets': [{'width': 4, 'depth': 2}, {'width': 8, 'depth': 2}]}
    """
    if not isinstance(changes, dict) or isinstance(changes, NamedValues):
        return changes
    if isinstance(values, list | tuple):
        return [_change(entry, changes) for entry in values]
    if not isinstance(values, dict):
        return changes
    return values | {name: _change(values.get(name), change) for name, change in changes.items()}


def _build(kind: Any, value: Toml) -> Any:
    """A value as a field of this type has it: tables become dataclasses, lists become tuples."""
    if isinstance(kind, type) and is_dataclass(kind):
        hints = get_type_hints(kind)
        if unknown := sorted(value.keys() - hints.keys()):
            raise ValueError(f"{kind.__name__} has no setting {unknown[0]!r}; there are {', '.join(hints)}")
        try:
            return kind(**{name: _build(hints[name], entry) for name, entry in value.items()})
        except TypeError as error:
            raise ValueError(f"{kind.__name__}: {error}") from error
    if get_origin(kind) is tuple:
        kinds = get_args(kind)
        return tuple(_build(kinds[0 if kinds[-1] is Ellipsis else i], entry) for i, entry in enumerate(value))
    return value
