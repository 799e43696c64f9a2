"""What a release says of itself: versions, workflows, and the page of the package index."""

import re
import tomllib
from pathlib import Path

import pytest

from posteriax import __version__

pytestmark = pytest.mark.quick

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_citation_names_the_version():
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_workflows_only_call_targets_of_the_makefile():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    assert workflows
    for workflow in workflows:
        text = workflow.read_text()
        called = re.findall(r"run: (.*)", text)
        assert called, workflow.name
        for command in called:
            match = re.fullmatch(r"make (\S+|\$\{\{ matrix\.target \}\}) PYTHON=python( [A-Z]+='.*')?", command)
            assert match, f"{workflow.name}: {command}"
            assert match.group(1) in targets or match.group(1).startswith("$")
        assert set(re.findall(r"target: ([\w-]+)", text)) <= targets


def test_no_link_on_the_page_of_the_package_index_leads_into_the_repository():
    page = (ROOT / "README.md").read_text()
    for rule in PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        page = re.sub(rule["pattern"], rule["replacement"], page)
    assert re.findall(r"\]\((?!https?:)", page) == []
    assert "The experiments of the five papers" in page


def test_the_pythons_of_the_classifiers_are_those_of_the_workflow():
    claimed = {c.rsplit(" ", 1)[-1] for c in PROJECT["project"]["classifiers"] if re.search(r":: 3\.\d+$", c)}
    tested = set(re.findall(r'python: "(3\.\d+)"', (ROOT / ".github" / "workflows" / "tests.yml").read_text()))
    assert claimed <= tested
