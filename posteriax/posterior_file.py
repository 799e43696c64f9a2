"""Posterior files: safetensors with a JSON header. Reading one never runs code from it.

The header's metadata holds what the arrays mean and a SHA-256 digest of everything, so that a damaged or altered file
is an error and never a slightly different posterior. A file is written aside and renamed when it is whole.
"""

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from posteriax.network import network
from posteriax.posterior import DrawsPosterior, Posterior, VariationalPosterior
from posteriax.problem import Problem, Unknowns
from posteriax.settings import from_plain, to_plain
from posteriax.trace import Trace

FORMAT = "posteriax posterior"
VERSION = 1


class PosteriorFileError(ValueError):
    """A posterior file that is damaged, of another kind, or for another network. The message says which."""


def save(posterior: Posterior, path: str | os.PathLike[str]) -> None:
    """Write a posterior to a file; an existing file is replaced only by a whole new one."""
    arrays = {f"trace:{name}": np.asarray(values) for name, values in posterior.trace.items()}
    problem = posterior.problem
    about: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "likelihood": to_plain(problem.likelihood),
        "prior": to_plain(problem.prior),
        "temperature": problem.temperature,
        "notes": list(posterior.trace.notes),
        "seconds": posterior.trace.seconds,
    }
    if isinstance(posterior, VariationalPosterior):
        about["kind"] = "variational"
        about["families"] = {name: to_plain(family) for name, family in posterior.families.items()}
        for name, parameters in posterior.variational.items():
            arrays |= {f"leaf:{name}:{key}": np.asarray(value) for key, value in parameters.items()}
    elif isinstance(posterior, DrawsPosterior):
        about["kind"] = "draws"
        leaves = jax.tree.leaves(posterior.draws)
        arrays |= {f"leaf:{name}": np.asarray(leaf) for name, leaf in zip(problem.leaf_names, leaves, strict=True)}
    else:
        raise TypeError(f"cannot save a {type(posterior).__name__}")
    text = json.dumps(about, sort_keys=True)
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    metadata = {"about": text, "sha256": _digest(text, arrays)}
    write_whole(Path(path), to_bytes(arrays, metadata))


def load(path: str | os.PathLike[str], net: Any) -> Posterior:
    """Read a posterior back for the network it was fitted to.

    Args:
        path: a file written by ``posterior.save(path)``.
        net: the network, as given to the problem; only its structure and shapes matter, not its weights.

    Raises:
        PosteriorFileError: if the file is damaged, is no posterior file, or does not fit the network.

    >>> import equinox as eqx, jax, tempfile, posteriax as px
    >>> net = eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0))
    >>> (x, y), _ = px.data.two_moons()
    >>> posterior = px.fit(px.Problem(net, px.Categorical()), (x, y), px.MAP(), steps=10, key=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     posterior.save(f"{folder}/run.posterior")
    ...     again = px.load(f"{folder}/run.posterior", net)
    >>> bool((again.predict(x).probs == posterior.predict(x).probs).all())
    True
    """
    about, arrays = _read(Path(path))
    try:
        return _rebuild(about, arrays, net)
    except (KeyError, TypeError, AttributeError) as error:
        raise PosteriorFileError(f"{path} does not describe a posterior this version can read: {error!r}") from error
    except PosteriorFileError as error:
        raise PosteriorFileError(f"{path}: {error}") from error


def write_whole(path: Path, content: bytes) -> None:
    """Write aside, flush to disk, rename: a crash leaves the previous file whole."""
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        os.unlink(aside)
        raise


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise
    except (SafetensorError, OSError, ValueError, TypeError, KeyError) as error:
        raise PosteriorFileError(f"{path} is not a posterior file, or is damaged: {error}") from error
    if "about" not in metadata or "sha256" not in metadata:
        raise PosteriorFileError(f"{path} is a safetensors file, but not one that posteriax wrote")
    if _digest(metadata["about"], arrays) != metadata["sha256"]:
        raise PosteriorFileError(f"{path} was damaged or altered after it was written: its digest does not match")
    about = json.loads(metadata["about"])
    if about["version"] > VERSION:
        raise PosteriorFileError(f"{path} is of version {about['version']}; this posteriax reads up to {VERSION}")
    return about, arrays


def _rebuild(about: dict[str, Any], arrays: dict[str, np.ndarray], net: Any) -> Posterior:
    problem = Problem(
        network(net), from_plain(about["likelihood"]), from_plain(about["prior"]), temperature=about["temperature"]
    )
    traced = {name.removeprefix("trace:"): a for name, a in arrays.items() if name.startswith("trace:")}
    trace = Trace(traced, tuple(about["notes"]), about["seconds"])
    names = problem.leaf_names
    if about["kind"] == "variational":
        stored = list(about["families"])
        _check_names(stored, names)
        families = {name: from_plain(about["families"][name]) for name in names}
        variational: Any = {
            name: {key.rsplit(":", 1)[1]: a for key, a in arrays.items() if key.rsplit(":", 1)[0] == f"leaf:{name}"}
            for name in names
        }
        means = [jax.eval_shape(jax.vmap(families[name].mean), variational[name]).shape[1:] for name in names]
        _check_shapes(names, means, problem)
        return VariationalPosterior(problem, trace, families, variational)
    stored = [name.removeprefix("leaf:") for name in arrays if name.startswith("leaf:")]
    _check_names(stored, names)
    leaves = [arrays[f"leaf:{name}"] for name in names]
    _check_shapes(names, [leaf.shape[2:] for leaf in leaves], problem)
    draws: Unknowns = jax.tree.unflatten(jax.tree.structure(problem.unknowns), leaves)
    return DrawsPosterior(problem, trace, draws)


def _check_names(stored: list[str], names: list[str]) -> None:
    if set(stored) != set(names):
        missing, extra = sorted(set(names) - set(stored)), sorted(set(stored) - set(names))
        raise PosteriorFileError(f"fitted to another network: it lacks the leaves {missing} and has {extra} instead")


def _check_shapes(names: list[str], shapes: list[tuple[int, ...]], problem: Problem) -> None:
    for name, shape, leaf in zip(names, shapes, jax.tree.leaves(problem.unknowns), strict=True):
        if tuple(shape) != leaf.shape:
            raise PosteriorFileError(
                f"fitted to another network: leaf {name} is {tuple(shape)} there, {leaf.shape} here"
            )


def _digest(text: str, arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
