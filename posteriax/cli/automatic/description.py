"""What lies beside a posterior's file: how to prepare new rows for it and which network it is of. JSON, no code."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import posteriax as px
from posteriax._internal.atomic_file import whole_file
from posteriax.cli.automatic.networks import Architecture
from posteriax.cli.automatic.units import in_units_of
from posteriax.cli.tables.images import ImagePreparation, images_from_plain
from posteriax.cli.tables.preparing import Preparation, preparation_from_plain
from posteriax.cli.tables.reading import DataError, read_bytes

FORMAT = "posteriax description"
VERSION = 1


@dataclass(frozen=True)
class Description:
    """Everything `posteriax predict` needs beside the posterior itself.

    Args:
        method: by its name.
        architecture: of the network.
        preparation: of new rows.
    """

    method: str
    architecture: Architecture
    preparation: Preparation | ImagePreparation


def path_beside(posterior: Path) -> Path:
    """Where a posterior's description is.

    >>> path_beside(Path("runs/hmc.posterior")).name
    'hmc.posterior.json'
    """
    return posterior.with_name(f"{posterior.name}.json")


def save_described(posterior: px.Posterior, description: Description, path: Path) -> None:
    """Write a posterior and its description, each file whole or not at all."""
    posterior.save(path)
    plain = {
        "format": FORMAT,
        "version": VERSION,
        "posterior": hashlib.sha256(path.read_bytes()).hexdigest(),  # the two belong together
        "method": description.method,
        "network": description.architecture.to_plain(),
        "preparation": description.preparation.to_plain(),
    }
    with whole_file(path_beside(path)) as file:
        file.write(json.dumps(plain, indent=1, ensure_ascii=False).encode())


def load_described(path: Path) -> tuple[px.Posterior, Description]:
    """A posterior whose predictions are in the target's own units, and its description."""
    content, beside = read_bytes(path), path_beside(path)
    text = read_bytes(beside)
    try:
        plain: dict[str, Any] = json.loads(text)
        if plain["format"] != FORMAT:
            raise ValueError(f"it is a {plain['format']!r}")
        if plain["version"] > VERSION:
            raise ValueError(f"it is of version {plain['version']}; this posteriax reads up to {VERSION}")
        network = plain["network"]
        architecture = Architecture(**{**network, "shape": tuple(map(int, network["shape"]))})
        images = "shape" in plain["preparation"]
        preparation = (images_from_plain if images else preparation_from_plain)(plain["preparation"])
        description = Description(str(plain["method"]), architecture, preparation)
        belongs = plain["posterior"] == hashlib.sha256(content).hexdigest()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{beside} is damaged, or no description of a posterior: {error}") from error
    if not belongs:
        raise DataError(f"{beside} describes another posterior than {path}: keep both files of a run together")
    posterior = px.load(path, architecture.build(0))
    return in_units_of(preparation.target, posterior), description
