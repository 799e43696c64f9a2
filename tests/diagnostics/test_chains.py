"""R-hat and effective draws, against ArviZ and against chains whose answer is known."""

import logging
import warnings

import numpy as np
import pytest

from posteriax import diagnostics
from posteriax.diagnostics import chains

pytestmark = pytest.mark.quick

with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)
    import arviz as az

ARVIZ = {
    "rhat": az.rhat,
    "ess_bulk": lambda draws: az.ess(draws, method="bulk"),
    "ess_tail": lambda draws: az.ess(draws, method="tail"),
    "ess_mean": lambda draws: az.ess(draws, method="mean"),
    "mcse_mean": az.mcse,
}


def autoregressive(correlation, shape, seed=0):
    """Chains x_t = c x_{t-1} + e_t, started in their own distribution: tau = (1 + c) / (1 - c)."""
    noise = np.random.default_rng(seed).normal(size=shape)
    chains = np.empty(shape)
    chains[:, 0] = noise[:, 0] / np.sqrt(1 - correlation**2)
    for t in range(1, shape[1]):
        chains[:, t] = correlation * chains[:, t - 1] + noise[:, t]
    return chains


def apart(shape):
    chains = np.random.default_rng(1).normal(size=shape)
    chains[0] += 4.0
    return chains


def with_rejections(shape):
    """Half of the draws repeat the one before, as after a rejected proposal."""
    chains = np.random.default_rng(2).normal(size=shape)
    chains[:, 1::2] = chains[:, :-1:2]
    return chains


KINDS = {
    "independent": lambda shape: np.random.default_rng(3).normal(size=shape),
    "heavy tails": lambda shape: np.random.default_rng(4).standard_cauchy(size=shape),
    "positive correlation": lambda shape: autoregressive(0.9, shape),
    "negative correlation": lambda shape: autoregressive(-0.7, shape),
    "not met": apart,
    "rejections": with_rejections,
    "two values": lambda shape: (np.random.default_rng(5).random(shape) < 0.3).astype(float),
    "constant": lambda shape: np.full(shape, 0.3),
}


@pytest.mark.parametrize("name", ARVIZ)
@pytest.mark.parametrize("kind", KINDS)
def test_agrees_with_arviz(kind, name):
    # odd numbers of draws, so few that the sums of correlations end at once, and an odd number in all: 3 x 67 = 201
    for shape in ((4, 200, 4), (2, 101, 4), (3, 67, 4), (4, 4, 4), (2, 5, 4), (5, 7, 4)):
        draws = KINDS[kind](shape)
        with np.errstate(all="ignore"):
            expected = [ARVIZ[name](draws[:, :, i]) for i in range(shape[2])]
        np.testing.assert_allclose(getattr(diagnostics, name)(draws), expected, rtol=1e-8, err_msg=str(shape))


@pytest.mark.parametrize("name", ["ess_bulk", "ess_tail", "ess_mean", "mcse_mean"])
def test_one_chain_agrees_with_arviz(name):
    draws = autoregressive(0.5, (1, 301, 3))
    expected = [ARVIZ[name](draws[:, :, i]) for i in range(3)]
    np.testing.assert_allclose(getattr(diagnostics, name)(draws), expected, rtol=1e-8)


@pytest.mark.parametrize("correlation", [0.0, 0.6, -0.3])
def test_effective_draws_of_autoregressive_chains_are_known(correlation):
    """ESS = S (1 - c) / (1 + c), known to about 7 % from 4 x 1000 draws, and to 0.7 % on average over 100 columns."""
    draws = autoregressive(correlation, (4, 1000, 100))
    known = 4000 * (1 - correlation) / (1 + correlation)
    each = diagnostics.ess_mean(draws)
    # truncated sums of correlations have a bias of some percent
    assert each.mean() == pytest.approx(known, rel=0.06)
    z = draws.mean(axis=(0, 1)) / diagnostics.mcse_mean(draws)  # 100 of them, standard normal
    assert np.sqrt(np.mean(z**2)) == pytest.approx(1.0, abs=4 / np.sqrt(200))


def test_rhat_sees_places_and_widths():
    draws = np.random.default_rng(0).normal(size=(4, 1000, 3))
    draws[1, :, 1] += 2.0
    draws[1, :, 2] *= 5.0
    same, place, width = diagnostics.rhat(draws)
    assert same < 1.01
    assert place > 1.2
    assert width > 1.1
    assert diagnostics.rhat_between(draws[:, :, 2]) < 1.01  # means alone do not see widths


def test_rhat_between_is_the_ratio_of_variances():
    draws = np.random.default_rng(0).normal(size=(3, 50, 2)) + np.array([0.0, 1.0, 2.0])[:, None, None]
    for i, value in enumerate(diagnostics.rhat_between(draws)):
        column = draws[:, :, i]
        within, between = np.mean([np.var(chain) for chain in column]), np.var(column.mean(axis=1), ddof=1)
        assert value == pytest.approx(4 / 3 * (within + between) / within - 49 / 150, rel=1e-12)


def test_columns_that_never_change():
    """nan where nothing changes at all, infinity where chains are stuck in different places."""
    draws = np.full((4, 100, 2), 0.1)
    draws[2, :, 1] = 0.7
    rhat = diagnostics.rhat(draws)
    assert np.isnan(rhat[0])
    assert rhat[1] == np.inf
    assert diagnostics.ess_bulk(draws)[0] == 400


def test_effective_draws_do_not_depend_on_the_unit():
    draws = autoregressive(0.9, (2, 100))
    assert diagnostics.ess_mean(2.0**-70 * draws) == diagnostics.ess_mean(draws)
    assert diagnostics.ess_mean(np.full((2, 100), 0.1)) == 200  # constant


def test_blocks_of_columns_change_nothing(monkeypatch):
    draws = autoregressive(0.5, (4, 50, 3, 7)).astype(np.float32)
    functions = [getattr(diagnostics, name) for name in (*ARVIZ, "rhat_between")]
    whole = [function(draws) for function in functions]
    monkeypatch.setattr(chains, "BLOCK_VALUES", 4 * 50 * 5)
    for function, expected in zip(functions, whole, strict=True):
        value = function(draws)
        assert value.shape == (3, 7)
        np.testing.assert_allclose(value, expected, rtol=1e-12)


def test_energy_fraction_agrees_with_arviz():
    energy = autoregressive(0.8, (3, 500))
    np.testing.assert_allclose(diagnostics.ebfmi(energy), az.bfmi(energy), rtol=1e-12)
    assert diagnostics.ebfmi(energy[0]) == pytest.approx(az.bfmi(energy)[0])
    # Var[E_t - E_{t-1}] / Var[E] = 2 (1 - c); its relative error over 1,500 draws is about 5 %
    assert diagnostics.ebfmi(energy).mean() == pytest.approx(0.4, rel=0.2)


@pytest.mark.parametrize(
    ("shape", "message"), [((1, 100), "chains=4"), ((4, 3), "at least 4"), ((100,), r"\(chains, draws, ...\)")]
)
def test_draws_that_say_nothing_are_refused(shape, message):
    with pytest.raises(ValueError, match=message):
        diagnostics.rhat(np.zeros(shape))


@pytest.mark.parametrize("name", [*ARVIZ, "rhat_between"])
def test_draws_that_are_not_finite_are_refused(name):
    draws = np.random.default_rng(0).normal(size=(2, 10, 3, 4))
    draws[1, 7, 2, 3] = np.inf
    with pytest.raises(ValueError, match=r"non-finite value: draw 7 of chain 1, entry \(2, 3\)"):
        getattr(diagnostics, name)(draws)


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.CRITICAL, "arviz")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield
