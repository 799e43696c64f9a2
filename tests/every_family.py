"""Every family, once, and what it finds on a linear regression. The tests of families take theirs from this table.

Add a family: one line in FAMILIES.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import known
import numpy as np
import optax

import posteriax as px
from posteriax import families as q
from posteriax import priors as p

EXACT = known.linear_regression()
X, Y = EXACT.data
NOISE = 0.5


class Case(NamedTuple):
    """A family and its best member for a linear regression with several equal outputs.

    Args:
        family: with settings that suit a small leaf.
        optimum: "mean-field": the exact means, and the variances of the closest factorised Gaussian, which are also
            those of any other family of independent entries with a location and a scale; "zero-mean": the same
            variances around 0; "exact": the posterior itself; None if its optimum has a test of its own.
        outputs: of the regression, with the same targets.
    """

    family: q.Family
    optimum: Literal["mean-field", "zero-mean", "exact"] | None = None
    outputs: int = 1


FAMILIES = {
    "Normal": Case(q.Normal(0.3), "mean-field"),
    "KTied": Case(q.KTied(2, 0.3), "mean-field", outputs=3),
    "MultiplicativeNormal": Case(q.MultiplicativeNormal("neuron", -1.0)),
    "MultiplicativeNormal, by weight": Case(q.MultiplicativeNormal("weight", -1.0), "mean-field"),
    "ZeroMeanNormal": Case(q.ZeroMeanNormal(), "zero-mean"),
    "MatrixNormal": Case(q.MatrixNormal(0.3), "exact", outputs=3),
    "RotatedNormal": Case(q.RotatedNormal(0.3), "mean-field", outputs=3),
    "FullCovariance": Case(q.FullCovariance("leaf", 0.3), "exact"),
    "LowRank": Case(q.LowRank(4, "leaf", 0.3), "exact"),
    "LowRankPrecision": Case(q.LowRankPrecision(4, "leaf", 0.3), "exact"),
    "Rank1": Case(q.Rank1(2, scale=0.2)),
    "Rank1, outputs": Case(q.Rank1(2, place="output", scale=0.2)),
    "Dropout": Case(q.Dropout(0.3)),
    "ZeroMeanNoise, uniform": Case(q.ZeroMeanNoise("uniform")),
    "ZeroMeanNoise, Bernoulli": Case(q.ZeroMeanNoise("bernoulli")),
    "Point": Case(q.Point()),
}


def averaging_adam(steps: int) -> optax.GradientTransformation:
    """Adam at a falling rate, to arrive; then at rates that fall as 1 / t, which average the noise of all later steps.

    A cosine to 0 averages over its last steps only. Squared gradients are remembered for 10,000 steps: with Adam's
    1,000 each gradient scales itself down, which moves the optimum where gradients are skewed (by 2 % of the zero-mean
    variances).
    """
    arriving = 6 * steps // 10
    schedules = [optax.cosine_decay_schedule(2e-2, arriving, alpha=0.1), lambda step: 2e-3 / (1 + step / 500)]
    return optax.adam(optax.join_schedules(schedules, [arriving]), b2=0.9999)


def fit_regressions(cases: Mapping[str, Case], *, steps: int, seed: int = 0, **settings: Any) -> px.posterior.Posterior:
    """One network with a regression for every case, each with its family, fitted together."""
    columns = sum(case.outputs for case in cases.values())

    def network(params, x):
        return jnp.concatenate([x @ params[name] for name in cases], axis=1)

    # not at 0, where multiplicative noise vanishes
    params = {name: np.full((X.shape[1], case.outputs), 0.1, np.float32) for name, case in cases.items()}
    problem = px.Problem((network, params), px.Normal(scale=NOISE), p.Normal(1.0))
    settings = {"optimizer": averaging_adam(steps), **settings}
    method = px.VI({name: case.family for name, case in cases.items()}, **settings)
    return px.fit(problem, (X, np.repeat(Y[:, None], columns, axis=1)), method, steps=steps, key=seed)


def check_optimum(
    posterior: px.posterior.Posterior, name: str, case: Case, rtol: float = 0.02, draws: int = 40_000
) -> None:
    """Moments by the family's own formulas, and the covariance of draws, against the case's optimum."""
    family, own = posterior.families[name], jax.tree.map(lambda a: a[0], posterior.variational[name])
    scale = np.sqrt(np.diag(EXACT.covariance))
    mean = np.zeros(4) if case.optimum == "zero-mean" else EXACT.mean
    one = EXACT.covariance if case.optimum == "exact" else np.diag(EXACT.mean_field_variance)
    covariance = np.kron(one, np.eye(case.outputs))
    np.testing.assert_allclose(family.mean(own), np.repeat(mean[:, None], case.outputs, 1), atol=0.05 * scale.min())
    np.testing.assert_allclose(np.asarray(family.variance(own)).ravel(), np.diag(covariance), rtol=rtol)
    np.testing.assert_array_less(relative_error(family.covariance(own), covariance), rtol)
    drawn = np.cov(np.asarray(posterior.sample(3, draws)[name]).reshape(draws, -1).T)
    # n draws of D entries: a relative error of about sqrt(D / n) in the Frobenius norm, 0.017 for 12 and 40,000
    np.testing.assert_array_less(relative_error(drawn, covariance), rtol + 3 * np.sqrt(len(covariance) / draws))


def relative_error(found: Any, truth: np.ndarray) -> float:
    return float(np.linalg.norm(np.asarray(found) - truth) / np.linalg.norm(truth))
