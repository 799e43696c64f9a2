"""Exported models, read back: they predict as the posterior did, without its network.

No code is run from a file: StableHLO and ONNX hold programs of arrays, and the NumPy folder, which holds Python, is not
read.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from posteriax._internal.checks import check_count, check_inputs
from posteriax._internal.settings import from_plain
from posteriax.likelihoods.likelihood import Likelihood
from posteriax.likelihoods.predictive import Predictive
from posteriax.posterior.example import example_from_plain
from posteriax.posterior.export import numpy_folder, onnx_file, stablehlo
from posteriax.posterior.export.program import OUTPUTS, VERSION
from posteriax.problem import Inputs, Key


@dataclass(frozen=True, eq=False)
class ExportedPosterior:
    """A posterior that was exported, read back by :func:`px.load`. It predicts, as the posterior did.

    Args:
        likelihood: what the outputs mean.
        latents: the likelihood's own latents of every draw.
        example: shapes and dtypes of one example.
        run: the program, from inputs to results by name.
        content: of its file.
    """

    likelihood: Likelihood
    latents: dict[str, np.ndarray]
    example: Any
    run: Any
    draws: int
    content: bytes

    @property
    def support(self) -> int:
        """The number of draws inside."""
        return self.draws

    def predict(self, x: Inputs, draws: int | None = None, *, key: Key = 0, **unused: Any) -> Predictive:
        """Predictions for new inputs, from the draws inside the file.

        Args:
            x: inputs, with a leading axis of N examples, of the shapes that it was exported for.
            draws: of those inside, evenly spaced; by default all.
            key: ignored, since the draws are fixed.
        """
        x = check_inputs(x)
        self._check_shapes(x)
        x = jax.tree.map(lambda a, spec: np.asarray(a, spec.dtype), x, self.example)
        outputs = np.asarray(self.run(x)[OUTPUTS])
        latents = self.latents
        if draws is not None and check_count("draws", draws) < self.draws:
            chosen = np.arange(draws) * self.draws // draws
            outputs, latents = outputs[chosen], {name: values[chosen] for name, values in latents.items()}
        return self.likelihood.predictive(outputs, {name: jnp.asarray(values) for name, values in latents.items()})

    def _check_shapes(self, x: Inputs) -> None:
        given, expected = (jax.tree.structure(tree) for tree in (x, self.example))
        if given != expected:  # type: ignore[operator]
            raise ValueError(f"x must be as at the export, {_described(self.example)}; got {_described(x, 1)}")
        for given, spec in zip(jax.tree.leaves(x), jax.tree.leaves(self.example), strict=True):
            if given.shape[1:] != spec.shape:
                raise ValueError(
                    f"x has examples of shape {given.shape[1:]}, but the model was exported for examples of shape "
                    f"{spec.shape}"
                )

    def save(self, path: Any) -> None:
        """Write the same file again."""
        Path(path).write_bytes(self.content)

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_content, (self.content,)

    def __repr__(self) -> str:
        return f"ExportedPosterior({self.draws:,} draws, {self.likelihood!r})"


def is_exported(path: Path) -> bool:
    """Whether there is an exported model, of any format."""
    if path.is_dir():
        return (path / numpy_folder.CODE).exists()
    if not path.is_file() or path.suffix == ".onnx":
        return path.is_file()
    with open(path, "rb") as file:
        file.seek(max(path.stat().st_size - len(stablehlo.MARK), 0))
        return stablehlo.is_one(file.read())


def read_exported(path: Path, error: type[Exception]) -> ExportedPosterior:
    """Read a model that ``posterior.export`` wrote."""
    if path.is_dir():
        raise error(
            f"{path} is an exported NumPy model, which holds Python code that posteriax does not run: use its "
            f"{numpy_folder.CODE}, or export to StableHLO or ONNX"
        )
    try:
        return _from_content(path.read_bytes())
    except (ValueError, KeyError, TypeError, AttributeError) as reason:
        raise error(f"{path} cannot be read as an exported model: {reason}") from reason


def _from_content(content: bytes) -> ExportedPosterior:
    about, run = (stablehlo if stablehlo.is_one(content) else onnx_file).read(content)
    if about["version"] > VERSION:
        raise ValueError(f"it has version {about['version']}, but this posteriax reads versions up to {VERSION}")
    if OUTPUTS not in about["results"]:
        raise ValueError(f"it was exported without {OUTPUTS!r}, from which posteriax predicts")
    return ExportedPosterior(
        from_plain(about["likelihood"]),
        {name: np.asarray(values, np.float32) for name, values in about["latents"].items()},
        example_from_plain(about["example"]),
        run,
        int(about["draws"]),
        content,
    )


def _described(tree: Any, leading: int = 0) -> str:
    return (
        ", ".join(str(np.shape(leaf)[leading:]) for leaf in jax.tree.leaves(tree)) + f" in {jax.tree.structure(tree)}"
    )
