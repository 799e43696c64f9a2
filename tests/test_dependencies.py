"""Every package that posteriax imports is declared in pyproject.toml, and pinned."""

import ast
import importlib.metadata
import re
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.quick

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def imports(path, whole):
    """Top-level names that a file imports: everywhere in it, or only when it is loaded."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree) if whole else tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module.split(".")[0]


def others(whole, without=()):
    """For each module that is neither posteriax's nor Python's, the files that import it."""
    found = {}
    for path in (ROOT / "posteriax").rglob("*.py"):
        if not set(without) & set(path.relative_to(ROOT).parts):
            for name in imports(path, whole):
                found.setdefault(name, set()).add(str(path.relative_to(ROOT)))
    return {name: paths for name, paths in found.items() if name not in sys.stdlib_module_names | {"posteriax"}}


def distributions(requirements):
    return {normal(re.match(r"[\w.-]+", requirement).group()) for requirement in requirements}


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


CORE = distributions(PROJECT["dependencies"])
EXTRAS = {name: distributions(listed) for name, listed in PROJECT["optional-dependencies"].items() if name != "dev"}
ALL = CORE.union(*EXTRAS.values())
PROVIDERS = importlib.metadata.packages_distributions()


def undeclared(modules, declared):
    return {name: paths for name, paths in modules.items() if not {normal(p) for p in PROVIDERS[name]} & declared}


def test_what_is_imported_is_declared():
    assert undeclared(others(whole=True), ALL) == {}


def test_importing_posteriax_needs_the_core_alone():
    """But for the command line, the estimators and the file that writes ONNX, which are extras."""
    assert undeclared(others(whole=False, without=["cli", "sklearn", "tabular", "onnx_graph.py"]), CORE) == {}


def test_everything_is_pinned():
    pins = {normal(line.split("==")[0]) for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    asked = ALL | distributions(PROJECT["optional-dependencies"]["dev"])
    assert asked - {"posteriax"} <= pins


def test_the_extras_that_messages_name_exist():
    sources = (*(ROOT / "posteriax").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md")
    named = {name for path in sources for name in re.findall(r"posteriax\[(\w+)\]", path.read_text())}
    assert named <= set(PROJECT["optional-dependencies"])
    assert {"cli", "tables"} <= named
