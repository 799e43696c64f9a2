"""Files of a data set: from the user's folder, or from their public address, whole or not at all."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ATTEMPTS = 3
BLOCK = 2**14  # bytes; what has arrived of a block is lost when the connection breaks


class DataError(RuntimeError):
    """A file of a data set is missing, damaged or not what it should be; the message says which, and what to do."""


class Remote(NamedTuple):
    """A public file.

    Args:
        name: of the file.
        url: where it is.
        checksum: "md5:..." or "sha256:..."; without one it is not downloaded.
    """

    name: str
    url: str
    checksum: str | None


def data_folder(folder: str | Path | None = None) -> Path:
    """Where files are looked for: the given folder, ``$POSTERIAX_DATA``, or a cache of the user's."""
    if folder is not None:
        return Path(folder).expanduser()
    if os.environ.get("POSTERIAX_DATA"):
        return Path(os.environ["POSTERIAX_DATA"]).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "posteriax"


def find_arrays(folder: Path, stems: Iterable[str], wanted: Iterable[str]) -> dict[str, np.ndarray] | None:
    """The arrays of the first of ``STEM.npz`` that is there; None if none is.

    Raises:
        DataError: if it is damaged, or lacks one of the wanted arrays.
    """
    for stem in stems:
        path = folder / f"{stem}.npz"
        if not path.exists():
            continue
        try:
            with np.load(path, allow_pickle=False) as stored:
                missing = [name for name in wanted if name not in stored.files]
                if missing:
                    raise DataError(f"{path} has no array {', '.join(missing)}; it has {', '.join(stored.files)}")
                return {name: stored[name] for name in wanted}
        except DataError:
            raise
        except Exception as error:  # zip, zlib and NumPy each have their own for a damaged file
            raise DataError(f"{path} cannot be read as arrays ({error}): it is damaged, delete it") from error
    return None


def fetch(remote: Remote, folder: Path, *, progress: bool = True) -> Path:
    """The file, from the folder, or downloaded into it.

    A download is resumed where an earlier one stopped, and the file appears under its name only when it is whole and
    its checksum is right.

    Raises:
        DataError: there is no file and none could be had.
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
    try:
        folder.mkdir(parents=True, exist_ok=True)
        pooch.get_logger().setLevel("WARNING")
        downloader = _Resuming(path.with_name(path.name + ".part"), progress)
        pooch.retrieve(remote.url, remote.checksum, remote.name, folder, downloader=downloader)
    except DataError:
        raise
    except ValueError as error:  # pooch's, for a checksum that is wrong
        raise DataError(
            f"{remote.url} is not the file that was published: its checksum is wrong. Nothing was kept. Try again "
            f"later, or put {remote.name} into {folder} yourself"
        ) from error
    except OSError as error:
        raise DataError(f"{remote.name} cannot be written to {folder}: {error}") from error
    return path


class _Resuming:
    """A downloader for pooch that goes on where an earlier one stopped.

    Args:
        part: the file of what has arrived so far.
        progress: show a bar, if standard error is a terminal.
    """

    def __init__(self, part: Path, progress: bool):
        self.part, self.progress = part, progress

    def __call__(self, url: str, output_file: Any, pooch: Any, check_only: bool = False) -> None:
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
        kept = f"; {self._arrived:,} bytes are kept, and the next call goes on from there" if self._arrived else ""
        raise DataError(self._message(url, trouble) + kept)

    @property
    def _arrived(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def _message(self, url: str, trouble: str) -> str:
        name = self.part.name.removesuffix(".part")
        return f"{name} could not be downloaded from {url}: {trouble}. Put {name} into {self.part.parent} yourself"

    def _receive(self, url: str) -> bool:
        """Append what is missing; whether that is all of it."""
        import requests
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

        arrived = self._arrived
        headers = {"Range": f"bytes={arrived}-"} if arrived else {}
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
