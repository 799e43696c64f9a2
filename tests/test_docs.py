"""Every public name is documented with an example, and every example runs."""

import builtins
import doctest
import importlib.util
import inspect
import pkgutil
import re
import symtable
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import posteriax
import posteriax as px
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


DOCS = METHODS_PAGE.parent
RUNNABLE = re.compile(
    r"(<!-- not run: [^\n]*-->\n)?^```(?:python|\{code-cell\} ipython3)\n(.*?)^```$", re.DOTALL | re.MULTILINE
)


def python_blocks(page):
    """What a reader pastes, top to bottom. A comment before a block says why a test cannot run it."""
    for not_run, code in RUNNABLE.findall(page.read_text()):
        if not not_run:
            yield re.sub(r"\A(:[^\n]*\n)+", "", code)  # tags of cells


PAGES_WITH_CODE = [page for page in sorted(DOCS.rglob("*.md")) if any(python_blocks(page))]
page_name = lambda page: str(page.relative_to(DOCS))  # noqa: E731


def names_used(table):
    """Global names that a block, or a function in it, reads."""
    at_module = table.get_type() == "module"
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (at_module or symbol.is_global()):
            yield symbol.get_name()
    for inner in table.get_children():
        yield from names_used(inner)


@pytest.mark.quick
@pytest.mark.parametrize("page", PAGES_WITH_CODE, ids=page_name)
def test_blocks_use_only_names_that_their_page_defines(page):
    defined = set(dir(builtins)) | {"__file__", "__name__"}
    for code in python_blocks(page):
        table = symtable.symtable(code, page.name, "exec")
        defined |= {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
        defined |= {inner.get_name() for inner in table.get_children()}
        assert set(names_used(table)) - defined == set(), code


def shortened(fit):
    """`px.fit` with at most these lengths, so that a page takes seconds: its calls are those that are printed."""
    most = {"epochs": 15, "steps": 200, "draws": 20, "seconds": 5}

    def run(problem, data, method, **arguments):
        lengths = {name: min(n, most[name]) for name, n in arguments.items() if name in most}
        if arguments.get("until"):
            lengths["seconds"] = most["seconds"]
        return fit(problem, data, method, **arguments | lengths)

    return run


@pytest.fixture
def reader_folder(tmp_path, monkeypatch):
    """Where a reader works: a clone's docs, and small made-up files of CIFAR-10."""
    rng = np.random.default_rng(0)
    arrays = {
        f"{part}_{split}": rng.integers(0, high, (40, *shape)).astype(np.uint8)
        for split in ("train", "test")
        for part, high, shape in (("x", 256, (32, 32, 3)), ("y", 10, ()))
    }
    np.savez(tmp_path / "cifar10.npz", **arrays)
    (tmp_path / "docs").symlink_to(DOCS)
    monkeypatch.setenv("POSTERIAX_DATA", str(tmp_path))
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(posteriax, "fit", shortened(posteriax.fit))


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES_WITH_CODE, ids=page_name)
def test_blocks_of_a_page_run_in_order(page, reader_folder):
    module = types.ModuleType("page")  # dataclasses look their module up by name
    sys.modules["page"] = module
    try:
        for code in python_blocks(page):
            exec(compile(code, page.name, "exec"), vars(module))
    finally:
        del sys.modules["page"]


START = DOCS / "start.md"
TABS = dict(re.findall(r"^:sync: (\w+)\n```python\n(.*?)^```$", START.read_text(), re.DOTALL | re.MULTILINE))


@pytest.mark.slow
@pytest.mark.parametrize("tab", TABS)
def test_the_first_page_ends_with_a_saved_posterior_of_the_network_of_each_tab(tab, reader_folder, capsys):
    module = types.ModuleType("page")
    for code in python_blocks(START):
        if "eqx.nn.MLP" in code:  # what a reader replaces by the tab of their library
            code = TABS[tab]
        elif code in TABS.values():
            continue
        exec(compile(code, START.name, "exec"), vars(module))
    assert Path("moons.posterior").exists()
    assert "total variation" in capsys.readouterr().out
    network, truth = px.network(module.net), module.truth.network
    assert px.paths(network) == px.paths(truth)


@pytest.mark.quick
def test_the_first_page_executes_what_its_equinox_tab_shows():
    hidden, *_ = [code for code in python_blocks(DOCS / "start.md") if code.startswith("import equinox")]
    assert (DOCS / "start.md").read_text().count(hidden.strip()) == 2


@pytest.mark.quick
def test_the_tables_of_methods_are_those_of_the_results():
    spec = importlib.util.spec_from_file_location("which", METHODS_PAGE.parents[1] / "examples" / "which_posterior.py")
    which = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(which)
    assert which.table() in (DOCS / "which.md").read_text()
    assert which.table().count("| HMC |") == len(which.PROBLEMS)


def anchors(page):
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


ROOT = METHODS_PAGE.parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\(([\w/.-]+)(?:#([\w-]+))?\)", page.read_text()):
        assert (page.parent / target).exists(), target
        assert not anchor or anchor in anchors(page.parent / target), f"{target}#{anchor}"
