"""Setup for all commands: cores, the compilation cache, output, and one-line errors."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from rich.console import Console


def use_all_cores() -> None:
    """Make every core a JAX device, so that chains and members run in parallel, unless JAX's backend has started."""
    import jax

    from posteriax._internal.jax_release import backend_started

    if not os.environ.get("JAX_NUM_CPU_DEVICES") and not backend_started():
        jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)


def use_compilation_cache() -> None:
    """Cache compiled programs, so that a command starts faster the second time."""
    import jax

    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "posteriax" / "compiled"
        jax.config.update("jax_compilation_cache_dir", str(cache))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def console(piped_width: int = 120) -> "Console":
    """Where results go: standard output, plain when piped."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else piped_width)


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """Report what is wrong with a user's files in one line on standard error, with exit code 2."""
    try:
        from posteriax.posterior.file import PosteriorFileError
        from posteriax.tabular.messages import TableError

        expected = (TableError, PosteriorFileError, OSError)
        try:
            yield
        except expected as error:
            _exit(str(error))
    except ModuleNotFoundError as error:
        if error.name not in ("pandas", "sklearn"):
            raise
        _exit(f"this command needs {error.name}: pip install 'posteriax[cli]'")


def _exit(message: str) -> NoReturn:
    print("error: " + " ".join(message.split()), file=sys.stderr)
    raise SystemExit(2) from None
