"""What each extra adds to the core, for docs/install.md: packages, and megabytes on disk, as installed here.

python docs/extras.py        # in an environment with posteriax[all]
"""

import importlib.metadata as metadata
import re
from pathlib import Path

from packaging.requirements import Requirement

PURPOSE = {
    "analysis": "mixtures of Gaussians (`px.analysis.dominant_mode`)",
    "arviz": "`posterior.to_arviz()`",
    "cli": "`posteriax demo`, `compare`, `predict`, `distil`, `export`, `study`",
    "data": "downloads of public data sets",
    "flax": "Flax NNX and Linen",
    "haiku": "Haiku",
    "keras": "Keras 3 on JAX",
    "onnx": '`posterior.export(..., "onnx")`',
    "plots": "figures",
    "sklearn": "`posteriax.sklearn`",
    "tables": "Excel and Parquet",
    "all": "all of these",
}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def closure(name: str, extras: frozenset[str], known: set[str]) -> set[str]:
    """The packages that one package brings, itself included."""
    name = normal(name)
    known.add(name)
    for text in metadata.requires(name) or ():
        requirement = Requirement(text)
        wanted = [{"extra": extra} for extra in extras] or [{"extra": ""}]
        if requirement.marker and not any(requirement.marker.evaluate(environment) for environment in wanted):
            continue
        if normal(requirement.name) not in known or requirement.extras:
            try:
                closure(requirement.name, frozenset(requirement.extras), known)
            except metadata.PackageNotFoundError:
                known.discard(normal(requirement.name))
    return known


def megabytes(names: set[str]) -> float:
    files = (metadata.distribution(name).locate_file(f) for name in names for f in metadata.files(name) or ())
    return sum(Path(str(file)).stat().st_size for file in files if Path(str(file)).is_file()) / 1e6


def main() -> None:
    core = closure("posteriax", frozenset(), set())
    print(f"core: {len(core) - 1} packages, {megabytes(core - {'posteriax'}):.0f} MB\n")
    print("| extra | for | packages | MB |")
    print("| --- | --- | ---: | ---: |")
    for extra, purpose in PURPOSE.items():
        added = closure("posteriax", frozenset([extra]), set()) - core
        print(f"| `{extra}` | {purpose} | {len(added)} | {megabytes(added):.0f} |")


if __name__ == "__main__":
    main()
