"""Loading by name."""

import difflib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from posteriax.data.sets.data_set import DataSet

Loader = Callable[..., DataSet]
_LOADERS: dict[str, Loader] = {}


def register(*names: str) -> Callable[[Loader], Loader]:
    """A decorator for a function that loads data sets by these names, given the name, a folder and its own options."""

    def add(loader: Loader) -> Loader:
        _LOADERS.update(dict.fromkeys(names, loader))
        return loader

    return add


def names() -> list[str]:
    """The names that `load` takes.

    >>> "fashion_mnist" in names(), "uci/concrete" in names()
    (True, True)
    """
    return sorted(_LOADERS)


def load(name: str, *, folder: str | Path | None = None, **options: Any) -> DataSet:
    """A data set by its name, in its official split.

    Looks in `folder` for the public files or for arrays, `NAME.npz`; missing files are downloaded and their checksums
    verified. docs/data.md lists the files and the options of each set.

    Args:
        name: "mnist", "fashion_mnist", "cifar10", "cifar100", "imdb", "uci/concrete" and the other UCI sets,
            "physionet2012", "iris", "digits", "two_moons".
        folder: where the files are or should go; by default ``$POSTERIAX_DATA``, or the user's cache folder.
        **options: options of the data set, such as ``split=3`` for one of UCI's twenty splits.

    Raises:
        DataError: if a file is missing and cannot be downloaded, is damaged, or is not the expected one.

    >>> load("two_moons", train=100).train[0].shape
    (100, 2)
    """
    if name not in _LOADERS:
        close = difflib.get_close_matches(str(name).lower(), names(), 3, cutoff=0.4)
        hint = f"Did you mean {' or '.join(close)}?" if close else f"There are {', '.join(names())}."
        raise ValueError(f"there is no data set {name!r}. {hint}")
    loader = _LOADERS[name]
    own = [p.name for p in inspect.signature(loader).parameters.values() if p.kind is p.KEYWORD_ONLY]
    unknown = [option for option in options if option not in own]
    if unknown:
        raise TypeError(f"{name} has no option {unknown[0]!r}; it has {', '.join(own) or 'none'}")
    return loader(name, folder, **options)
