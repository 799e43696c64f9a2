"""A reference is trusted only if its chains agree on what they predict, and the tables say so."""

import re

import jax
import numpy as np
import pytest

import posteriax as px
from posteriax.evaluation.report.page import page
from posteriax.posterior import DrawsPosterior
from posteriax.posterior.trace import Trace


@pytest.fixture(scope="module")
def fitted(moons):
    keys = jax.random.split(jax.random.key(0))
    start = {"w": jax.random.normal(keys[0], (2, 8)), "v": jax.random.normal(keys[1], (8, 2))}
    problem = px.Problem((lambda params, x: jax.nn.tanh(x @ params["w"]) @ params["v"], start), px.Categorical())
    return px.fit(problem, moons[0], px.MAP(), steps=10, key=0)


def chains(problem, places, draws=40, seed=0):
    """A made-up sampler's result: chains around places of their own."""
    rng = np.random.default_rng(seed)
    noise = lambda leaf, place: leaf + place + 0.1 * rng.normal(size=(draws, *leaf.shape))  # noqa: E731
    own = lambda leaf: np.stack([noise(np.asarray(leaf), place) for place in places]).astype(np.float32)  # noqa: E731
    return DrawsPosterior(problem, Trace({}), jax.tree.map(own, problem.latents))


def test_a_reference_whose_chains_disagree_is_not_trusted(fitted, moons):
    problem = fitted.problem
    bad = px.compare({"MAP": fitted, "HMC": chains(problem, (0.0, 3.0))}, moons[1], reference="HMC")
    assert bad.reference_check.rhat > 1.05
    assert bad.reference_check.converged is False
    values = chains(problem, (0.0, 3.0)).predict(moons[1][0])
    truth = px.diagnostics.rhat(np.exp(np.asarray(values.log_probs_per_draw))[..., 1].reshape(2, 40, -1)).max()
    assert bad.reference_check.rhat == pytest.approx(truth, rel=1e-4)
    words = f"distance to HMC, which has not converged: R-hat {truth:.2f}"
    assert words in str(bad)
    assert f"{bad.rows['MAP']['total_variation'].value:.1f}" in str(bad)
    assert " ?" in bad.to_markdown()
    assert bad.marked("test", "total_variation") == ()
    assert bad.marked("test", "nll") == bad.best["test"]["nll"]
    report = page(bad)
    assert 'role="alert"><p>Best available reference (not converged): HMC has not converged' in report
    assert f'class="doubtful" data-value="{bad.rows["MAP"]["agreement"].value:.9g}" title="{words}"' in report
    assert "The closest is" not in report
    for text in (str(bad), report.split("<script")[0]):
        assert not re.search("yardstick|ground truth|the truth\\b(?! \\(1 for)", text)


def test_a_reference_whose_chains_agree_is_said_to(fitted, moons):
    good = px.compare({"MAP": fitted, "HMC": chains(fitted.problem, (0.0, 0.0), 400)}, moons[1], reference="HMC")
    assert good.reference_check.converged is True
    assert "has not converged" not in str(good)
    assert "The chains of HMC agree: R-hat 1.0" in page(good)
    assert good.marked("test", "total_variation") == ("MAP",)


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        (lambda fitted: chains(fitted.problem, (0.0,)), "only one chain"),
        (lambda fitted: fitted, "it was not sampled"),
        (lambda fitted: fitted.predict(px.data.two_moons(train=60, test=40)[1][0]), "which chain a draw came from"),
        (lambda fitted: chains(fitted.problem, (0.0, 0.0), draws=3), "fewer than 4 draws"),
    ],
)
def test_a_reference_that_cannot_be_checked_is_said_to_be_so(fitted, moons, reference, why):
    table = px.compare({"MAP": fitted, "given": reference(fitted)}, moons[1], reference="given")
    assert table.reference_check.converged is None
    assert why in table.reference_check.note
    assert why in str(table)
    assert why in page(table)
