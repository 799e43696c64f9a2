"""Every public name is documented with an example, and every example runs."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

import posteriax
from posteriax import analysis, families, metrics, priors

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


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda test: test.name)
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
