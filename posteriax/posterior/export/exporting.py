"""``posterior.export``: the program into a file, checked against ``posterior.predict`` before it takes its place."""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from posteriax._internal.checks import check_choice
from posteriax._internal.settings import to_plain
from posteriax.likelihoods.predictive import Predictive
from posteriax.posterior.example import example_to_plain
from posteriax.posterior.export import numpy_folder, onnx_file, stablehlo
from posteriax.posterior.export.program import LEVELS, OUTPUTS, VERSION, PredictiveProgram, Results, predictive_program
from posteriax.posterior.file import check_writable
from posteriax.posterior.posterior import Posterior
from posteriax.problem import Inputs, Key

Format = Literal["stablehlo", "onnx", "numpy"]
FORMATS = ("stablehlo", "onnx", "numpy")
SUFFIXES = {".onnx": "onnx", ".stablehlo": "stablehlo"}
LARGEST_DIFFERENCE = 1e-3  # from `predict`, as `Export` measures it: more is not rounding


@dataclass(frozen=True)
class Export:
    """What was written.

    Args:
        path: the file or folder.
        format: "stablehlo", "onnx" or "numpy".
        draws: how many draws are inside.
        results: what it computes, by name.
        bytes: its size.
        difference: the largest difference of each result from ``posterior.predict`` on the example inputs: of
            probabilities and nats as they are, of numbers in standard deviations of the prediction.
        seconds: that writing and checking took.
    """

    path: Path
    format: str
    draws: int
    results: tuple[str, ...]
    bytes: int
    difference: dict[str, float]
    seconds: float

    @property
    def largest_difference(self) -> float:
        """Over all results."""
        return max(self.difference.values())

    def __str__(self) -> str:
        size = f"{self.bytes / 1e6:.2f} MB" if self.bytes >= 1e5 else f"{self.bytes / 1e3:.1f} kB"
        return (
            f"{self.path}: {self.format}, {self.draws:,} draws, {size}; differs from posterior.predict by at most "
            f"{self.largest_difference:.1g}"
        )


def export(
    posterior: Posterior,
    path: str | os.PathLike[str],
    x_example: Inputs,
    format: Format | None = None,
    *,
    draws: int | None = None,
    key: Key = 0,
    quantiles: Sequence[float] = LEVELS,
    results: Sequence[str] | None = None,
) -> Export:
    """Write what `posterior` predicts to a file that needs no posteriax; see :meth:`Posterior.export`."""
    began, given, path = time.perf_counter(), path, Path(path)
    chosen: str = format or SUFFIXES.get(path.suffix, "stablehlo")
    check_choice("format", chosen, FORMATS)
    if chosen == "numpy" and os.fspath(given):
        check_folder(path)
    else:
        check_writable(given)
    program = predictive_program(posterior, x_example, draws=draws, key=key, quantiles=quantiles, results=results)
    about = {
        "format": "exported predictive",
        "version": VERSION,
        "likelihood": to_plain(program.likelihood),
        "latents": program.plain_latents(),
        "draws": program.count,
        "results": list(program.results),
        "levels": list(program.levels),
        "example": example_to_plain(program.spec_of_example()),
    }
    expected = expected_results(posterior.predict(program.example, draws, key=key), program)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        aside = Path(folder) / path.name
        computed = WRITERS[chosen](program, about, aside)
        difference = differences(computed, expected)
        if not max(difference.values()) < LARGEST_DIFFERENCE:  # NaN is too large as well
            worst = max(difference, key=lambda name: np.nan_to_num(difference[name], nan=np.inf))
            raise RuntimeError(
                f"nothing was written: in the exported model, {worst} differs from posterior.predict by "
                f"{difference[worst]:.2g}. Leave it out (results=...), or use another format"
            )
        size = sum(file.stat().st_size for file in ([aside] if aside.is_file() else aside.rglob("*")))
        replace(aside, path)
    return Export(path, chosen, program.count, program.results, size, difference, time.perf_counter() - began)


Writer = Callable[[PredictiveProgram, dict[str, Any], Path], Results]
WRITERS: dict[str, Writer] = {
    "stablehlo": stablehlo.write,
    "onnx": onnx_file.write,
    "numpy": numpy_folder.write,
}


def check_folder(path: Path) -> None:
    """Raise unless a folder can be written there: a new one, or one that an export wrote."""
    if path.is_file():
        raise FileExistsError(f"{path} is a file: the NumPy format is a folder")
    if path.is_dir() and any(path.iterdir()) and not (path / numpy_folder.CODE).exists():
        raise FileExistsError(f"{path} is a folder with other files: give the name of a new one")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: there is no folder {path.parent}. Create it first")


def replace(aside: Path, path: Path) -> None:
    """Move what is complete into its place; a folder in two steps, since one that is not empty cannot be replaced."""
    if aside.is_dir() and path.is_dir():
        old = aside.with_name(f"{aside.name}.old")
        os.replace(path, old)
        os.replace(aside, path)
        shutil.rmtree(old)
    else:
        os.replace(aside, path)


def expected_results(predictive: Predictive, program: PredictiveProgram) -> Results:
    """What ``posterior.predict`` says under the names of the results."""
    names = {
        "probs": lambda: predictive.mean,
        "mean": lambda: predictive.mean,
        "std": lambda: predictive.std,
        "quantiles": lambda: predictive.quantile(np.array(program.levels)),
        "entropy": predictive.entropy,
        "mutual_information": predictive.mutual_information,
        OUTPUTS: lambda: predictive.outputs,  # type: ignore[attr-defined]
    }
    if predictive.confidence() is not None:
        names["knowledge"] = predictive.mutual_information
        names["noise"] = lambda: predictive.entropy() - predictive.mutual_information()
    else:
        names["noise"] = lambda: predictive.noise  # type: ignore[attr-defined]
        names["knowledge"] = lambda: predictive.knowledge  # type: ignore[attr-defined]
        if "std" not in program.results:
            return {name: np.asarray(names[name]()) for name in (*program.results, "std") if name in names}
    return {name: np.asarray(names[name]()) for name in program.results if name in names}


def differences(computed: Results, expected: Results) -> dict[str, float]:
    """The largest difference of every result, as :class:`Export` measures it."""
    found = {}
    for name, values in computed.items():
        if name not in expected:  # a likelihood may have more to say
            continue
        difference = np.abs(np.asarray(values, np.float64) - expected[name])
        if "mean" in computed and name in ("mean", "std", "noise", "knowledge", "quantiles"):
            difference = difference / expected["std"]
        if name == OUTPUTS:
            difference = difference / max(1.0, float(np.abs(expected[name]).max()))
        found[name] = float(difference.max())
    return found
