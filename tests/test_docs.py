"""Every public name is documented with an example, and every example runs."""

import doctest
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import posteriax
from posteriax import analysis, families, metrics, priors
from posteriax.methods import Method

METHODS_PAGE = Path(__file__).parent.parent / "docs" / "methods.md"
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
TYPES_ONLY = {
    "Family",
    "Gaussian",
    "DiagonalGaussian",
    "Prior",
    "Predictive",
    "Posterior",
    "Leaf",
    "Likelihood",
    "Conformal",
    "PartialDependence",
}  # described, but not made by hand


def modules():
    yield posteriax
    for info in pkgutil.walk_packages(posteriax.__path__, "posteriax."):
        yield importlib.import_module(info.name)


EXAMPLES = [
    test
    for module in modules()
    for test in doctest.DocTestFinder(exclude_empty=True).find(module, module.__name__)
    if test.examples
]


# examples that compile a run or a large network are for `make check-all`: what they show is tested elsewhere
COMPILES_MUCH = re.compile(r"\bfit(_\w+)?\(|\btune\(|sample_reference\(|kappa\(|product_matrix\(|posteriax demo")
LARGE_PROGRAMS = ("posteriax.zoo", "posteriax.studies", "posteriax.data.corruptions", "posteriax.tabular.networks")


def cases():
    for example in EXAMPLES:
        code = "".join(line.source for line in example.examples)
        is_slow = COMPILES_MUCH.search(code) or example.name.startswith(LARGE_PROGRAMS)
        yield pytest.param(example, id=example.name, marks=[pytest.mark.slow] if is_slow else [])


@pytest.mark.parametrize("example", list(cases()))
def test_example_runs(example):
    runner = doctest.DocTestRunner(optionflags=OPTIONS)
    report = []
    runner.run(example, out=report.append)
    assert runner.failures == 0, "".join(report)


def public_names():
    for module in (posteriax, families, priors, metrics, analysis):
        for name in getattr(module, "__all__", vars(module)):
            value = getattr(module, name)
            home = getattr(value, "__module__", "")
            own = home.startswith(module.__name__)
            result = module is analysis and inspect.isclass(value)  # returned by a function that has the example
            if (
                own
                and not result
                and not name.startswith("_")
                and (inspect.isclass(value) or inspect.isfunction(value))
            ):
                yield f"{module.__name__}.{name}", value


@pytest.mark.parametrize(("name", "value"), list(public_names()), ids=lambda v: v if isinstance(v, str) else "")
def test_public_name_has_a_docstring_with_an_example(name, value):
    text = inspect.getdoc(value) or ""
    assert text
    last = name.rsplit(".", 1)[-1]
    if last in TYPES_ONLY or name.endswith("Error"):
        return
    assert ">>>" in text


def documented_methods():
    """What docs/methods.md must have an entry for."""
    returned = {"Family", "Variational", "Prior", "Leaf"}  # contracts and types, which are in other pages
    for module in (families, priors, analysis):
        for name in getattr(module, "__all__", vars(module)):
            value = getattr(module, name)
            result = module is analysis and inspect.isclass(value)
            if name not in returned and not result and (inspect.isclass(value) or inspect.isfunction(value)):
                yield name
    for name in posteriax.__all__:
        value = getattr(posteriax, name)
        if inspect.isclass(value) and issubclass(value, Method) and value is not Method:
            yield name
    yield from ("Ensemble", "LinearKL", "StaircaseKL", "natural_gradient", "PGD", "FGSM")


@pytest.mark.parametrize("name", list(documented_methods()))
def test_the_page_of_methods_has_it(name):
    assert re.search(rf"\b{name}\b", METHODS_PAGE.read_text())


def test_every_paper_of_the_page_is_cited_in_it():
    text, _, listed = METHODS_PAGE.read_text().partition("## Papers")
    authors = {line.removeprefix("- ").split()[0].strip(",") for line in listed.splitlines() if line.startswith("- ")}
    assert len(authors) > 50
    assert {name for name in authors if not re.search(rf"\b{name}\b", text)} == set()
    years = set(re.findall(r"(?<!=)\b(?:19|20)\d\d\b", text))
    assert {year for year in years if year not in listed} == set()


@pytest.mark.slow
def test_the_examples_of_the_training_page_run():
    space = {}
    for code in re.findall(r"```python\n(.*?)```", (METHODS_PAGE.parent / "training.md").read_text(), re.DOTALL):
        exec(compile(code, "training.md", "exec"), space)
    assert space["per_epoch"] == 8
    assert len(space["posterior"].trace["elbo"]) == 2 * 7  # the last one: two epochs of 400 examples in batches of 64
    assert "bfloat16" in space["low"].network.compute


def anchors(page):
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


ROOT = METHODS_PAGE.parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\(([\w/.-]+)(?:#([\w-]+))?\)", page.read_text()):
        assert (page.parent / target).exists(), target
        assert not anchor or anchor in anchors(page.parent / target), f"{target}#{anchor}"
