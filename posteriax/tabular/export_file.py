"""``posteriax export`` and ``posteriax distil``: of posteriors that ``posteriax compare`` saved."""

import json
import shutil
from importlib.resources import files
from pathlib import Path

import numpy as np

from posteriax.evaluation.distil import distil
from posteriax.posterior.export.exporting import FORMATS, Export, check_folder
from posteriax.posterior.posterior import Posterior
from posteriax.tabular.description import (
    Description,
    load_described,
    path_beside,
    preparation_to_plain,
    save_described,
    write_description,
)
from posteriax.tabular.messages import TableError
from posteriax.tabular.predict_file import new_rows
from posteriax.tabular.preparation import ImagePreparation, TablePreparation

SUFFIX = {"stablehlo": ".stablehlo", "onnx": ".onnx", "numpy": "_numpy"}
PREPARE, PREPARATION = "prepare.py", "preparation.json"  # in the folder of a NumPy model
EXAMPLES = 64


def run_export(posterior: Path, to: str, out: Path | None, draws: int | None = None) -> Export:
    """Export a posterior with the preparation of its rows, and print what was written."""
    if to not in FORMATS:
        raise TableError(f"--to must be {', '.join(FORMATS)}, got {to!r}")
    loaded, description = _load_posterior(posterior)
    path = out or posterior.with_name(posterior.name.removesuffix(".posterior") + SUFFIX[to])
    x = _example_inputs(description)
    if to != "numpy":
        exported = _export(loaded, path, x, to, draws)
        write_description(description, path)
        print(exported)
        print(f"{path_beside(path)}: how rows are prepared, for posteriax predict")
        return exported
    check_folder(path)
    exported = _export(loaded, path, x, to, draws)
    if isinstance(description.preparation, TablePreparation):
        plain = preparation_to_plain(description.preparation, description.target)
        (path / PREPARATION).write_text(json.dumps(plain, indent=1, ensure_ascii=False))
        shutil.copyfile(str(files("posteriax.tabular") / "prepare_in_numpy.py"), path / PREPARE)
    print(exported)
    return exported


def _export(posterior: Posterior, path: Path, x: np.ndarray, to: str, draws: int | None) -> Export:
    try:
        return posterior.export(path, x, to, draws=draws)  # type: ignore[arg-type]
    except (NotImplementedError, ModuleNotFoundError, RuntimeError, ValueError) as error:
        raise TableError(str(error)) from error


def run_distil(posterior: Path, data: Path, out: Path | None, held_out: Path | None, seed: int) -> None:
    """Distil a posterior with the rows of a file, and print how far the network is from it."""
    loaded, description = _load_posterior(posterior)
    path = out or posterior.with_name(posterior.name.removesuffix(".posterior") + "-distilled.posterior")
    if not path.parent.is_dir():
        raise TableError(f"cannot write {path}: there is no folder {path.parent}")
    rows, others = new_rows(data, description), None
    if held_out is not None:
        held = new_rows(held_out, description)
        if held.y is None:
            raise TableError(f"{held_out} has no column {description.target.name!r}, the target: leave out --held-out")
        others = (held.x[held.known], held.y)
    student = distil(loaded, rows.x, held_out=others, key=seed, progress=False)
    name = f"{description.method}, distilled"
    save_described(
        student, Description(name, description.architecture, description.preparation, description.target), path
    )
    print(student.report())
    print(f"{path}: {student!r}")


def _load_posterior(path: Path) -> tuple[Posterior, Description]:
    loaded, description = load_described(path)
    if not isinstance(loaded, Posterior):
        kind = "an exported model" if description.architecture is not None else "a baseline"
        raise TableError(f"{path} is {kind}: only posteriors can be exported or distilled")
    return loaded, description


def _example_inputs(description: Description) -> np.ndarray:
    """Made-up inputs: standardised numbers, or pixels."""
    rng = np.random.default_rng(0)
    preparation = description.preparation
    if isinstance(preparation, ImagePreparation):
        return rng.uniform(size=(EXAMPLES, *preparation.shape_)).astype(np.float32)
    return rng.normal(size=(EXAMPLES, len(preparation.get_feature_names_out()))).astype(np.float32)
