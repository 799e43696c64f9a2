"""Posterior files: a posterior as arrays and JSON. Reading one never runs code from it."""

import os
import pickle
import tempfile
import warnings
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, overload

import jax
import jax.numpy as jnp
import numpy as np

from posteriax._internal.leaf_paths import leaf_paths
from posteriax._internal.settings import from_plain, to_plain
from posteriax._internal.tensor_file import read_tensors, write_tensors
from posteriax.families.blocks import blocks_of
from posteriax.families.family import Family, Variational
from posteriax.networks.fixed_leaves import fix_leaves
from posteriax.networks.leaf import Axes
from posteriax.networks.network import Network, network
from posteriax.networks.tracing.coupling import couples_examples
from posteriax.networks.widening import Widening
from posteriax.posterior.distilled import DistilledPosterior
from posteriax.posterior.draws import DrawsPosterior
from posteriax.posterior.example import ExampleSpec, example_from_plain, example_to_plain
from posteriax.posterior.export.exported import ExportedPosterior, is_exported, read_exported
from posteriax.posterior.linearisation import LinearisedPosterior, linearised
from posteriax.posterior.posterior import Posterior, unfixed
from posteriax.posterior.trace import Trace
from posteriax.posterior.variational import VariationalPosterior
from posteriax.problem import Inputs, Latents, Problem

NetworkLike = Any  # anything that :func:`px.network` takes

FORMAT = "posterior file"
VERSION = 3


class PosteriorFileError(ValueError):
    """A posterior file is damaged, of another kind, or for another network. The message says which."""


def save(posterior: Posterior, path: str | os.PathLike[str]) -> None:
    """Write a posterior to a file; an existing file is replaced only once the new one is complete."""
    check_writable(path)
    is_linearised = isinstance(posterior, LinearisedPosterior)
    posterior = posterior.weights if isinstance(posterior, LinearisedPosterior) else posterior
    arrays = {f"trace:{name}": np.asarray(values) for name, values in posterior.trace.items()}
    problem = posterior.problem
    about: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "likelihood": to_plain(problem.likelihood),
        "prior": to_plain(problem.prior),
        "temperature": float(problem.temperature),
        "notes": list(posterior.trace.notes),
        "warmup": posterior.trace.warmup,
        "arviz names": dict(posterior.trace.arviz_names),
        "axes": _axes_to_plain(problem.network.axes),
        "compute": problem.network.compute,
    }  # without the run time, so that the same posterior gives the same file
    if is_linearised:
        about["linearised"] = True
    if isinstance(posterior, DistilledPosterior):
        about["distilled"] = None if posterior.widening is None else asdict(posterior.widening)
    if problem.network.fixed is not None:  # the leaves themselves, once
        about["fixed"] = list(problem.network.fixed.patterns)
        arrays |= {f"fixed:{path}": np.asarray(leaf) for path, leaf in problem.network.fixed.values.items()}
    normalisation, statistics = _describe_batch_normalisation(problem)
    about |= normalisation
    arrays |= statistics
    if isinstance(posterior, VariationalPosterior):
        about["kind"] = "variational"
        about["families"] = {name: to_plain(family) for name, family in posterior.families.items()}
        for name, parameters in posterior.variational.items():
            arrays |= {f"leaf:{name}:{key}": np.asarray(value) for key, value in parameters.items()}
    elif isinstance(posterior, DrawsPosterior):
        about["kind"] = "draws"
        leaves = jax.tree.leaves(posterior.draws)
        arrays |= {f"leaf:{name}": leaf for name, leaf in zip(problem.leaf_names, leaves, strict=True)}
    else:
        raise TypeError(f"cannot save a {type(posterior).__name__}")
    write_tensors(Path(path), about, arrays)


def check_writable(path: str | os.PathLike[str]) -> None:
    if not os.fspath(path):
        raise ValueError('the path is empty: give the name of a file, such as "run.posterior"')
    if Path(path).is_dir():
        raise IsADirectoryError(f"{path} is a folder: give the name of a file, such as {Path(path) / 'run.posterior'}")
    if not (folder := Path(path).parent).is_dir():
        raise FileNotFoundError(f"cannot write {path}: there is no folder {folder}. Create it first, or use another")
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"cannot write {path}: the folder {folder} is not writable")


@overload
def load(path: str | os.PathLike[str]) -> ExportedPosterior: ...
@overload
def load(path: str | os.PathLike[str], net: NetworkLike) -> Posterior: ...
def load(path: str | os.PathLike[str], net: NetworkLike = None) -> Any:
    """Read a posterior back for the network it was fitted to, or a model that ``posterior.export`` wrote.

    Args:
        path: a file written by ``posterior.save(path)``.
        net: the network, as given to the problem; not for an exported model. Only its structure and shapes matter, not
            its weights. Fixed leaves get their values from the file, and so do the statistics of batch normalisation if
            the network uses stored ones. Whether it does must be as in the run: docs/networks.md tells how to switch.

    Raises:
        PosteriorFileError: if the file is damaged, is not a posterior file, or does not fit the network.

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
    if is_exported(Path(path)):
        return read_exported(Path(path), PosteriorFileError)
    if Path(path).is_dir():
        raise PosteriorFileError(f"{Path(path)} is a folder: give the file that posterior.save(path) wrote")
    about, arrays, _ = read_tensors(Path(path), FORMAT, PosteriorFileError)
    if net is None:
        raise TypeError(f"{path} holds a posterior, not an exported model: give its network, px.load(path, net)")
    adapted = network(net)  # outside the try: a bad network is the caller's error, not the file's
    try:
        if about["version"] > VERSION:
            raise PosteriorFileError(
                f"the file has version {about['version']}; this posteriax reads versions up to {VERSION}"
            )
        return _rebuild(about, arrays, adapted)
    except PosteriorFileError as error:
        raise PosteriorFileError(f"{path}: {error}") from error
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise PosteriorFileError(f"{path} does not describe a posterior this version can read: {error!r}") from error


def to_bytes(posterior: Posterior) -> bytes:
    """The content of the posterior's file."""
    with tempfile.TemporaryDirectory() as folder:
        posterior.save(Path(folder) / "posterior")
        return (Path(folder) / "posterior").read_bytes()


def unpickle(content: bytes, source: bytes) -> Posterior:
    """A posterior from the content of its file and what :func:`px.network` was given, pickled.

    Only pickle calls it, for a posterior inside a pickle; the files of `save` hold nothing of the kind.
    """
    obj, settings = pickle.loads(source)
    return read_bytes(content, network(obj, **settings))


def read_bytes(content: bytes, net: NetworkLike) -> Posterior:
    """A posterior from the content of its file, for the network that it was fitted to."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "posterior").write_bytes(content)
        return load(Path(folder) / "posterior", net)


def _axes_to_plain(axes: tuple[Axes | None, ...] | None) -> list[dict[str, Any] | None] | None:
    """The axes of the leaves as read from the program, which priors may depend on."""
    return None if axes is None else [None if leaf_axes is None else asdict(leaf_axes) for leaf_axes in axes]


def _axes_from_plain(plain: list[dict[str, Any] | None] | None, leaves: int) -> tuple[Axes | None, ...] | None:
    if plain is None or len(plain) != leaves:  # the leaves themselves are compared by name
        return None
    names = ("inputs", "outputs", "positions")
    return tuple(
        Axes(**{name: tuple(leaf_axes[name]) for name in names}, lookup=bool(leaf_axes["lookup"]))
        if leaf_axes
        else None
        for leaf_axes in plain
    )


def _rebuild(about: dict[str, Any], arrays: dict[str, np.ndarray], net: Network) -> Posterior:
    net = unfixed(net) if "distilled" in about else net
    widening = _widening_from_plain(about.get("distilled"))
    net = net if widening is None else widening.apply_to(net)
    net = _with_batch_normalisation(net.computing(about["compute"]), about, arrays)
    net = fix_leaves(_with_fixed_leaves(net, arrays), about.get("fixed", ()))
    net = replace(net, axes=_axes_from_plain(about["axes"], len(jax.tree.leaves(net.params))))
    problem = Problem(
        net,
        from_plain(about["likelihood"]),
        from_plain(about["prior"]),
        temperature=about["temperature"],
        fixed=about.get("fixed", ()),
    )
    traced = {name.removeprefix("trace:"): a for name, a in arrays.items() if name.startswith("trace:")}
    trace = Trace(traced, tuple(about["notes"]), warmup=about["warmup"], arviz_names=about["arviz names"])
    if about["kind"] == "variational":
        families, variational = _variational_parameters(about["families"], arrays, problem)
        posterior = VariationalPosterior(problem, trace, families, variational)
        return linearised(posterior) if about.get("linearised") else posterior
    if about["kind"] != "draws":
        raise PosteriorFileError(f"the file holds an unknown kind of posterior, {about['kind']!r}")
    names = problem.leaf_names
    stored = [name.removeprefix("leaf:") for name in arrays if name.startswith("leaf:")]
    _check_names(stored, names)
    leaves = [arrays[f"leaf:{name}"] for name in names]
    for name, leaf, expected in zip(names, leaves, jax.tree.leaves(problem.latents), strict=True):
        _check_leaf(name, leaf.shape[2:], leaf.dtype, expected)
    draws: Latents = jax.tree.unflatten(jax.tree.structure(problem.latents), leaves)
    if "distilled" in about:
        return DistilledPosterior(problem, trace, draws, widening)
    return DrawsPosterior(problem, trace, draws)


def _widening_from_plain(plain: dict[str, Any] | None) -> Widening | None:
    if plain is None:
        return None
    return Widening(tuple(plain["head"]), int(plain["copies"]), int(plain["outputs"]))


def _variational_parameters(
    plain_families: dict[str, Any], arrays: dict[str, np.ndarray], problem: Problem
) -> tuple[dict[str, Family], dict[str, Variational]]:
    """The family of every leaf and the parameters of every block, checked against the problem."""
    names = problem.leaf_names
    _check_names(list(plain_families), names)
    families = {name: from_plain(plain_families[name]) for name in names}
    blocks = blocks_of(tuple(families.values()), problem.leaf_infos)
    variational: dict[str, Any] = {
        block.name: {
            key.rsplit(":", 1)[1]: a for key, a in arrays.items() if key.rsplit(":", 1)[0] == f"leaf:{block.name}"
        }
        for block in blocks
    }
    leaves = jax.tree.leaves(problem.latents)
    for block in blocks:
        mean = jax.eval_shape(jax.vmap(block.family.mean), variational[block.name])
        expected = jax.eval_shape(block.join, [leaves[i] if i in block.indices else None for i in range(len(leaves))])
        _check_leaf(block.name, mean.shape[1:], mean.dtype, expected)
    return families, variational


def _describe_batch_normalisation(problem: Problem) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Whether batch normalisation uses the statistics of the batch or stored ones, and the latter's values.

    Empty without batch normalisation, or if that cannot be tried on made-up inputs.
    """
    net = problem.network
    if net.batch_statistics is None or net.example is None:
        return {}, {}
    plain, inputs = example_to_plain(net.example), _made_up_inputs(net.example)
    structure: Any = jax.tree.structure(net.example)
    if structure != jax.tree.structure(example_from_plain(plain)):
        return {}, {}
    coupled = couples_examples(net, inputs)
    if coupled != problem.couples_examples(inputs):  # known from the data: made-up inputs do not show it
        return {}, {}
    about = {"example": plain, "couples examples": coupled}
    stored = () if coupled else jax.tree.leaves(net.batch_statistics.stored)  # not coupled: part of the function
    return about, {f"statistics:{i}": np.asarray(leaf) for i, leaf in enumerate(stored)}


def _with_batch_normalisation(net: Network, about: dict[str, Any], arrays: dict[str, np.ndarray]) -> Network:
    """The network with the stored batch statistics of a file, if it uses any. It must use them as it did in the run."""
    all_leaves = unfixed(net)
    known = all_leaves.batch_statistics
    if known is None:
        if about.get("couples examples") is not None:
            raise PosteriorFileError(
                "fitted to a network with batch normalisation; this one has none, or px.network got another batched="
            )
        return net
    if "example" not in about:
        warnings.warn(
            f"the file does not say whether the network's batch normalisation used the statistics of the batch or "
            f"stored ones. Predictions are right only if it does now what it did in the run. (To use stored ones: "
            f"{known.use_stored}.)",
            stacklevel=4,
        )
        return net
    example = example_from_plain(about["example"])
    coupled, used = couples_examples(all_leaves, _made_up_inputs(example)), about["couples examples"]
    if coupled and not used:
        raise PosteriorFileError(
            f"the network's batch normalisation uses the statistics of the batch here, but used stored ones when the "
            f"posterior was fitted, so predictions would differ. To use stored ones (the file has their values): "
            f"{known.use_stored}"
        )
    if used and not coupled:
        raise PosteriorFileError(
            f"the network's batch normalisation uses stored statistics here, but used those of the batch when the "
            f"posterior was fitted, so predictions would differ. Load it for the network as it was then (what switches "
            f"to stored ones: {known.use_stored}); px.posterior.with_batch_statistics(posterior, x) then measures "
            f"statistics for each draw"
        )
    all_leaves = replace(all_leaves, example=example)
    if used:
        return all_leaves
    expected, structure = jax.tree.flatten(known.stored)
    stored = [arrays[f"statistics:{i}"] for i in range(sum(name.startswith("statistics:") for name in arrays))]
    if [a.shape for a in stored] != [a.shape for a in expected]:
        raise PosteriorFileError("fitted to another network: its batch normalisation has other statistics")
    if all(np.array_equal(a, b) for a, b in zip(stored, expected, strict=True)):
        return all_leaves  # with its dropout in training
    return all_leaves.normalising_by(jax.tree.unflatten(structure, [jnp.asarray(a) for a in stored]))


def _made_up_inputs(example: ExampleSpec) -> Inputs:
    """A few different examples of these shapes, to try a network on. Whole numbers are 1 or 2: tokens, or lengths."""
    rng = np.random.default_rng(0)

    def values(spec: jax.ShapeDtypeStruct) -> np.ndarray:
        shape = (8, *spec.shape)
        is_real = jnp.issubdtype(spec.dtype, jnp.floating)
        return (rng.normal(size=shape) if is_real else rng.integers(1, 3, size=shape)).astype(spec.dtype)

    return jax.tree.map(values, example)


def _with_fixed_leaves(net: Network, arrays: dict[str, np.ndarray]) -> Network:
    """The network with the fixed leaves of a file in place of its own."""
    stored = {name.removeprefix("fixed:"): a for name, a in arrays.items() if name.startswith("fixed:")}
    net = unfixed(net)
    names, leaves = leaf_paths(net.params), jax.tree.leaves(net.params)
    if not set(stored) <= set(names):
        raise PosteriorFileError(f"fitted to another network: leaves {sorted(set(stored) - set(names))} are extra")
    for name, leaf in zip(names, leaves, strict=True):
        if name in stored:
            _check_leaf(name, stored[name].shape, stored[name].dtype, leaf)
    filled = [jnp.asarray(stored.get(name, leaf)) for name, leaf in zip(names, leaves, strict=True)]
    return replace(net, params=jax.tree.unflatten(jax.tree.structure(net.params), filled))


def _check_names(stored: list[str], names: list[str]) -> None:
    if set(stored) != set(names):
        missing, extra = sorted(set(names) - set(stored)), sorted(set(stored) - set(names))
        raise PosteriorFileError(f"fitted to another network: leaves {missing} are missing, leaves {extra} are extra")


def _check_leaf(name: str, shape: tuple[int, ...], dtype: np.dtype, expected: jax.Array | jax.ShapeDtypeStruct) -> None:
    if (tuple(shape), dtype) != (expected.shape, expected.dtype):
        there, here = f"{tuple(shape)} {dtype}", f"{expected.shape} {expected.dtype}"
        raise PosteriorFileError(f"fitted to another network: leaf {name} is {there} in the file, but {here} here")
