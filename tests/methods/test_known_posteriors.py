"""Every method on problems whose posterior is known: the table is `known.METHODS`."""

import known
import pytest

import posteriax as px
from posteriax.methods import Method

# every day a method of each kind sees one posterior, at a temperature that is not 1; the slow suite has the others.
# VI's optimiser finds a full covariance in run/test_weights.py, and families find their optima in test_known_optima.py
RELATED = (
    "Laplace, low-rank",
    "VI, k-tied",
    "VI, matrix normal",
    "VI, full covariance",
    "MCLMC",
    "SGLD",
    "Ensemble of VI",
)
# settings of a method that is compiled as shipped anyway
VARIANTS = (
    "HMC, low-rank masses",
    "NUTS, a mass each",
    "cyclical SGHMC",
    "preconditioned SGHMC",
    "Ensemble of MAP",
)
DAILY = [
    pytest.param(name, "linear regression", 0.3, marks=() if name in VARIANTS else pytest.mark.as_shipped)
    for name in known.METHODS
    if name not in RELATED
]
OTHERS = [
    (name, problem, temperature)
    for name in known.METHODS
    for problem in known.PROBLEMS
    for temperature in (1.0, 0.3)
    if name in RELATED or (problem, temperature) != ("linear regression", 0.3)
]


@pytest.mark.parametrize(("name", "problem", "temperature"), DAILY)
def test_the_known_posterior_is_recovered(name, problem, temperature):
    known.check_recovery(known.METHODS[name], known.PROBLEMS[problem](temperature=temperature))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "problem", "temperature"), OTHERS)
def test_the_other_known_posteriors_are_recovered(name, problem, temperature):
    known.check_recovery(known.METHODS[name], known.PROBLEMS[problem](temperature=temperature), thorough=True)


def test_every_method_is_in_the_table():
    names = (getattr(px, name) for name in px.__all__)
    public = {value for value in names if isinstance(value, type) and issubclass(value, Method)} - {Method}
    exact = known.linear_regression()
    made = [case.method(exact) for case in known.METHODS.values()]
    assert public == {type(how.method if isinstance(how, px.Ensemble) else how) for how in made}
