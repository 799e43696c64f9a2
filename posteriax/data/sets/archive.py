"""Reading compressed archives to their end, so that damage anywhere in them is noticed."""

import gzip
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from posteriax.data.sets.fetching import DataError


def read_archive(path: Path, wanted: Callable[[str], object]) -> Iterator[tuple[str, bytes]]:
    """Name and contents of the wanted files of a ``.tar.gz``, in memory: nothing is unpacked to disk.

    The checksum of what was compressed comes last, after what a reader of the archive needs to see. Use the contents
    only once the iterator is exhausted.

    Args:
        path: the archive.
        wanted: whether to read a file, by its name.

    Raises:
        DataError: if the archive is damaged.
    """
    try:
        with gzip.open(path) as stream:
            with tarfile.open(fileobj=stream, mode="r:") as archive:
                for member in archive:
                    if member.isfile() and wanted(member.name):
                        yield member.name, archive.extractfile(member).read()  # type: ignore[union-attr]
            while stream.read(2**20):
                pass
    except (tarfile.TarError, EOFError, OSError, ValueError, zlib.error) as error:
        raise damaged(path, error) from error


def damaged(path: Path, error: object) -> DataError:
    """The error for a public file that cannot be read."""
    return DataError(f"{path} is damaged ({error}): delete it, and load again")
