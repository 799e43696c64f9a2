"""Every family on linear regression, where its best member is known."""

import inspect
from functools import cache

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from every_family import (
    EXACT,
    FAMILIES,
    NOISE,
    Case,
    X,
    Y,
    averaging_adam,
    check_optimum,
    fit_regressions,
    relative_error,
)

import posteriax as px
from posteriax import families as q
from posteriax import priors as p

COMPONENTS, RATE = 2, 0.2
FACTOR_PRIOR = {"prior_mean": 0.5, "prior_scale": 0.7}
KNOWN = {name: case for name, case in FAMILIES.items() if case.optimum is not None}


def test_every_family_is_in_the_table():
    exported = [getattr(q, name) for name in q.__all__]
    families = {one for one in exported if inspect.isclass(one) and not inspect.isabstract(one)}
    made_from_others = {q.SparseNormal, q.PointPerComponent}  # by px.analysis.sparse_ensemble, and by q.Rank1
    assert families - made_from_others == {type(case.family) for case in FAMILIES.values()}


@cache
def fitted() -> px.posterior.Posterior:
    return fit_regressions(KNOWN, steps=30_000, draws=8)


@pytest.mark.as_shipped
@pytest.mark.parametrize("name", KNOWN)
def test_a_family_finds_its_optimum(name):
    check_optimum(fitted(), name, KNOWN[name])


JOINT = {"first_two": (2, 1), "last_two": (2, 1)}  # two leaves that are one


@cache
def fitted_apart(*names: str) -> px.posterior.Posterior:
    """Families whose optimum takes a prior or a network of its own: joint over two leaves, dropout, rank-1 factors."""
    shapes = {name: (JOINT.get(name) or (4, 1)) for name in names}

    def network(params, x):
        if JOINT.keys() <= params.keys():
            return x[:, :2] @ params["first_two"] + x[:, 2:] @ params["last_two"]
        return x @ params[names[0]]

    families = {
        "first_two": q.FullCovariance("network"),
        "last_two": q.FullCovariance("network"),
        "dropout": q.Dropout(RATE),
        "factors": q.Rank1(COMPONENTS, place="input", start="normal", start_value=0.0, **FACTOR_PRIOR),
    }
    # dropout's noise vanishes at weights of 0, and fixed factors need a kernel of 1
    params = {name: np.full(shape, 1.0 if name == "factors" else 0.1, np.float32) for name, shape in shapes.items()}
    prior = p.Given(dist.Normal(1.0, 1e-4)) if "factors" in names else p.Normal(1.0)
    problem = px.Problem((network, params), px.Normal(scale=NOISE), prior)
    method = px.VI({name: families[name] for name in names}, optimizer=averaging_adam(50_000))
    return px.fit(problem, (X, Y[:, None]), method, steps=50_000, key=0)


@pytest.mark.slow
def test_one_covariance_across_two_leaves_is_that_of_the_posterior():
    posterior = fitted_apart(*JOINT)
    own = jax.tree.map(lambda a: a[0], posterior.variational["first_two"])
    family = posterior.families["first_two"]
    np.testing.assert_allclose(np.asarray(family.mean(own)).ravel(), EXACT.mean, atol=0.02 * np.abs(EXACT.mean).max())
    assert relative_error(family.covariance(own), EXACT.covariance) < 0.03
    draws = posterior.sample(3, 40_000)
    joined = np.concatenate([np.asarray(draws[name])[:, :, 0] for name in ("first_two", "last_two")], axis=1)
    assert relative_error(np.cov(joined.T), EXACT.covariance) < 0.03 + 3 * np.sqrt(4 / 40_000)


@pytest.mark.slow
def test_dropout_finds_its_ridge_estimate():
    """E over masks adds rate / (1 - rate) x_i^2 w_i^2 to the loss: a ridge in the inputs' own scale."""
    gram = X.T @ X / NOISE**2
    ridge = gram + RATE / (1 - RATE) * np.diag(np.diag(gram)) + np.eye(4)
    best = np.linalg.solve(ridge, X.T @ Y / NOISE**2)
    np.testing.assert_allclose(
        np.asarray(fitted_apart("dropout").variational["dropout"]["value"])[0, :, 0], best, atol=0.02
    )


def test_each_component_of_rank_1_is_held_to_the_whole_prior():
    """With a kernel of 1: each component minimises E[-log p] / K + KL, since its KLs are summed and not averaged."""
    scale, mean = FACTOR_PRIOR["prior_scale"], FACTOR_PRIOR["prior_mean"]
    precision = X.T @ X / (COMPONENTS * NOISE**2) + np.eye(4) / scale**2
    best = np.linalg.solve(precision, X.T @ Y / (COMPONENTS * NOISE**2) + mean / scale**2)
    own = fitted_apart("factors").variational["factors"]
    for k in range(COMPONENTS):
        np.testing.assert_allclose(own["in"][0, k], best, atol=0.02)
        np.testing.assert_allclose(np.exp(2 * own["log_scale_in"][0, k]), 1 / np.diag(precision), rtol=0.03)


@pytest.mark.slow
def test_the_check_of_an_optimum_can_fail():
    """The mean-field optimum is not the exact posterior, and the check tells them apart."""
    with pytest.raises(AssertionError):
        check_optimum(fitted(), "Normal", Case(KNOWN["Normal"].family, "exact"))
