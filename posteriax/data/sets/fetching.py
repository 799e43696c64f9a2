"""Files of a data set, from the user's folder or downloaded from their public address, and never partial.

Archives are read to their end, so that damage anywhere in them is noticed.
"""

import contextlib
import gzip
import os
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

ATTEMPTS = 3
BLOCK = 2**14  # bytes; an incomplete block is lost if the connection breaks


class DataError(RuntimeError):
    """A file of a data set is missing, damaged or not the expected one; the message says which, and what to do."""


class Remote(NamedTuple):
    """A public file.

    Args:
        name: the name of the file.
        url: its address.
        checksum: "md5:..." or "sha256:..."; a file without one is not downloaded.
    """

    name: str
    url: str
    checksum: str | None


def data_folder(folder: str | Path | None = None) -> Path:
    """Where files are looked up: the given folder, ``$POSTERIAX_DATA``, or the user's cache folder."""
    if folder is not None:
        return Path(folder).expanduser()
    if os.environ.get("POSTERIAX_DATA"):
        return Path(os.environ["POSTERIAX_DATA"]).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "posteriax"


def find_arrays(folder: Path, stems: Iterable[str], names: Iterable[str]) -> dict[str, np.ndarray] | None:
    """The arrays of the first ``STEM.npz`` that exists; None if there is none.

    Raises:
        DataError: if it is damaged, or one of the named arrays is missing.
    """
    path = next((path for stem in stems if (path := folder / f"{stem}.npz").exists()), None)
    if path is None:
        return None
    with _open_arrays(path) as stored:
        missing = [name for name in names if name not in stored.files]
        if missing:
            raise DataError(f"{path} has no array {', '.join(missing)}; it has {', '.join(stored.files)}")
        return {name: stored[name] for name in names}


def array_names(path: Path) -> list[str]:
    """The names of the arrays in an NPZ file; none if there is no such file."""
    if not path.exists():
        return []
    with _open_arrays(path) as stored:
        return list(stored.files)


@contextlib.contextmanager
def _open_arrays(path: Path) -> Iterator[np.lib.npyio.NpzFile]:
    try:
        with np.load(path, allow_pickle=False) as stored:
            yield stored
    except DataError:
        raise
    except Exception as error:  # zip, zlib and NumPy each have their own for a damaged file
        # for what is not an archive at all, NumPy's says how to load it unsafely
        reason = "not an NPZ file of plain arrays" if "pickle" in str(error) else error
        raise DataError(f"{path} is damaged and cannot be read ({reason}): delete it") from error


def fetch(remote: Remote, folder: Path, *, progress: bool = True) -> Path:
    """The file, from the folder, or downloaded into it.

    An interrupted download is resumed, and the file gets its name only once it is complete and its checksum is correct.

    Raises:
        DataError: if the file is missing and cannot be downloaded.
    """
    path = folder / remote.name
    if path.exists():
        return path
    if remote.checksum is None:
        raise DataError(f"{remote.name} is not in {folder}: download it from {remote.url} and put it there")
    try:
        import pooch
    except ImportError as error:
        raise DataError(
            f"{remote.name} is not in {folder}, and downloading needs pip install 'posteriax[data]'"
        ) from error
    new_folders = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        pooch.get_logger().setLevel("WARNING")
        downloader = _Resuming(path.with_name(path.name + ".part"), progress)
        pooch.retrieve(remote.url, remote.checksum, remote.name, folder, downloader=downloader)
    except DataError:
        raise
    except ValueError as error:  # pooch's, for a checksum that is wrong
        raise DataError(
            f"{remote.url} is not the published file: its checksum is wrong. The download was discarded. Try again "
            f"later, or put {remote.name} into {folder} yourself"
        ) from error
    except OSError as error:
        raise DataError(f"{remote.name} cannot be written to {folder}: {error}") from error
    finally:
        with contextlib.suppress(OSError):
            for created in new_folders:  # succeeds if it is empty: nothing was downloaded
                created.rmdir()
    return path


def fetch_all(remotes: Sequence[Remote], folder: Path) -> list[Path]:
    """The files of a set that has several; if one cannot be obtained, the message names all that are missing."""
    paths = []
    for remote in remotes:
        try:
            paths.append(fetch(remote, folder))
        except DataError as error:
            others = [other.name for other in remotes if other != remote and not (folder / other.name).exists()]
            raise DataError(f"{error}. Also missing there: {', '.join(others)}" if others else str(error)) from error
    return paths


class _Resuming:
    """A downloader for pooch that resumes an interrupted download.

    Args:
        part: the partial file.
        progress: show a bar, if standard error is a terminal.
    """

    def __init__(self, part: Path, progress: bool):
        self.part, self.progress = part, progress

    def __call__(self, url: str, output_file: str | Path, pooch: object, check_only: bool = False) -> None:
        import requests

        trouble = ""
        for _ in range(ATTEMPTS):
            try:
                if self._receive(url):
                    os.replace(self.part, output_file)
                    return
                trouble = "the connection ended early"
            except requests.HTTPError as error:
                raise DataError(
                    self._message(url, f"the server answers {getattr(error.response, 'status_code', error)}")
                ) from error
            except requests.ConnectionError as error:
                trouble = "no connection" if not self._arrived else f"the connection broke ({type(error).__name__})"
            except requests.RequestException as error:
                trouble = f"the connection broke ({type(error).__name__})"
        kept = f"; {self._arrived:,} bytes are kept, and the next call resumes from there" if self._arrived else ""
        raise DataError(self._message(url, trouble) + kept)

    @property
    def _arrived(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def _message(self, url: str, trouble: str) -> str:
        name = self.part.name.removesuffix(".part")
        return f"{name} could not be downloaded from {url}: {trouble}. Put {name} into {self.part.parent} yourself"

    def _receive(self, url: str) -> bool:
        """Download the rest; returns whether the file is then complete."""
        import requests
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

        arrived = self._arrived
        headers = {"Accept-Encoding": "identity"}  # with compression, Content-Length would not be the file's
        if arrived:
            headers["Range"] = f"bytes={arrived}-"
        with requests.get(url, headers=headers, stream=True, timeout=30) as response:
            if response.status_code == 416:  # nothing is missing
                return True
            response.raise_for_status()
            resumed = response.status_code == 206
            arrived = arrived if resumed else 0
            length = response.headers.get("Content-Length")
            total = None if length is None else arrived + int(length)
            columns = ("{task.description}", BarColumn(), DownloadColumn(), TimeRemainingColumn())
            console = Console(stderr=True)
            with (
                Progress(*columns, console=console, disable=not (self.progress and console.is_terminal)) as bar,
                self.part.open("ab" if resumed else "wb") as file,
            ):
                task = bar.add_task(self.part.name.removesuffix(".part"), total=total, completed=arrived)
                for block in response.iter_content(BLOCK):
                    file.write(block)
                    bar.advance(task, len(block))
        return total is None or self._arrived == total


def read_archive(path: Path, is_needed: Callable[[str], object]) -> Iterator[tuple[str, bytes]]:
    """Name and contents of the needed files of a ``.tar.gz``, in memory: nothing is unpacked to disk.

    The archive's checksum is at its end, so use the contents only once the iterator is exhausted.

    Args:
        path: the archive.
        is_needed: whether to read a file, by its name.

    Raises:
        DataError: if the archive is damaged.
    """
    try:
        with gzip.open(path) as stream:
            with tarfile.open(fileobj=stream, mode="r:") as archive:
                for member in archive:
                    if member.isfile() and is_needed(member.name):
                        yield member.name, archive.extractfile(member).read()  # type: ignore[union-attr]
            while stream.read(2**20):
                pass
    except (tarfile.TarError, EOFError, OSError, ValueError, zlib.error) as error:
        raise damaged(path, error) from error


def damaged(path: Path, error: object) -> DataError:
    """The error for a public file that cannot be read."""
    return DataError(f"{path} is damaged ({error}): delete it, and load again")
