"""Learned noise: its prior is in the units of the target, the same for every method, and stays with the posterior."""

import jax
import numpy as np
import optax
import pytest

import posteriax as px
from posteriax import families as q
from posteriax import priors as p
from posteriax.data import TargetMoments
from posteriax.diagnostics import ess_mean
from posteriax.problem import Latents
from posteriax.run import feeding

RNG = np.random.default_rng(0)
X = np.column_stack([np.ones(46), RNG.normal(size=(46, 2))]).astype(np.float32)
Y = X @ [1.0, -1.0, 0.5] + 0.5 * RNG.normal(size=46)
NET = (lambda params, x: x @ params["w"], {"w": np.zeros((3, 1), np.float32)})


def problem(unit=1.0, likelihood=None):
    return px.Problem(NET, likelihood or px.Normal("learned"), p.Normal(2.0 * unit))


def data(unit=1.0):
    return X, (unit * Y).astype(np.float32)


def adam_in_units(unit):
    """Adam whose steps are in the weights' units, which its own are not."""
    in_units = lambda updates, _: updates._replace(network=jax.tree.map(lambda leaf: unit * leaf, updates.network))  # noqa: E731
    return optax.chain(optax.adam(optax.cosine_decay_schedule(3e-2, 1500)), optax.stateless(in_units))


METHODS = {"Laplace": (lambda unit: px.Laplace(structure="full", predictive="draws"), {"epochs": 1})}
SLOW_METHODS = {
    "MAP": (lambda unit: px.MAP(adam_in_units(unit)), {"steps": 1500, "batch_size": 46}),
    "VI": (lambda unit: px.VI(q.FullCovariance()), {"steps": 300, "batch_size": 46}),
    "HMC": (lambda unit: px.HMC(), {"draws": 300, "chains": 2}),
}


def draws_in_units(posterior, unit):
    """Weights divided by the unit, and log sigma - log(unit), (draws, 4)."""
    draws = posterior.draw(jax.random.key(0), np.arange(posterior.support or 600), posterior.support or 600)
    weights = np.asarray(draws.network["w"], np.float64)[..., 0] / unit
    return np.column_stack([weights, np.asarray(draws.likelihood["log_scale"], np.float64) - np.log(unit)])


@pytest.mark.parametrize("name", [*METHODS, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW_METHODS)])
def test_the_posterior_does_not_depend_on_the_unit_of_the_target(name):
    """Targets and the weights' prior times 1,000 and 1/1,000: the same posterior, times the same.

    With N(0, 1) on log sigma, standard deviations were 7 % too small and 9 % too large.
    """
    make, length = (METHODS | SLOW_METHODS)[name]
    found = {unit: px.fit(problem(unit), data(unit), make(unit), key=0, **length) for unit in (1.0, 1e3, 1e-3)}
    one = draws_in_units(found[1.0], 1.0)
    for unit in (1e3, 1e-3):
        other = draws_in_units(found[unit], unit)
        if name == "HMC":  # trajectories part by rounding: five standard errors of the difference of two runs
            effective = ess_mean(one.reshape(2, -1, 4)).min()
            assert np.all(np.abs(other.mean(0) - one.mean(0)) < 5 * one.std(0) * np.sqrt(2 / effective))
            assert np.all(np.abs(other.std(0) / one.std(0) - 1) < 5 / np.sqrt(effective))
        else:  # the same steps and draws: float32, whose log sigma of 7 has steps of 5e-7, over some hundred steps
            np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("likelihood", [px.Normal("learned"), px.StudentT()], ids=["Normal", "StudentT"])
def test_the_prior_is_centred_at_the_standard_deviation_of_the_targets(likelihood):
    informed = problem(likelihood=likelihood).for_data(data(270.0))
    prior = informed.priors.likelihood["log_scale"]
    expected = np.log(data(270.0)[1].astype(np.float64).std())
    assert float(prior.loc) == pytest.approx(expected, abs=1e-5)  # six digits are kept
    assert float(prior.scale) == 3.0
    assert float(informed.latents.likelihood["log_scale"]) == pytest.approx(expected, abs=1e-5)
    assert informed.leaf_scales[-1] == pytest.approx(3.0)
    assert informed.for_data(data(1.0)) is informed  # read once
    # a problem that has seen no data is centred at 1
    assert float(problem(likelihood=likelihood).priors.likelihood["log_scale"].loc) == 0.0


def test_a_prior_that_is_given_is_kept():
    given = px.Normal("learned", scale_prior=(0.5, 1.0))
    posterior = px.fit(problem(likelihood=given), data(270.0), px.MAP(), steps=2, key=0)
    assert posterior.problem.likelihood == given
    with pytest.raises(ValueError, match='scale_prior is the prior of a scale that is "learned"'):
        px.Normal(0.1, scale_prior=(0.5, 1.0))
    with pytest.raises(ValueError, match="must be a pair"):
        px.StudentT(scale_prior=(0.5,))


def test_targets_are_counted_by_weight_and_column_by_column():
    rng = np.random.default_rng(1)
    y = rng.normal(size=(50, 3)) * [1.0, 2.0, 30.0] + [1e4, 0.0, -5.0]
    times = rng.integers(0, 4, size=50)
    repeated = np.repeat(y, times, axis=0)
    expected = np.sqrt(repeated.var(axis=0).mean())
    assert TargetMoments.from_targets(y, times).scale == pytest.approx(expected, rel=1e-5)
    parts = TargetMoments.from_targets(y[:20], times[:20]).merge(TargetMoments.from_targets(y[20:], times[20:]))
    assert parts.scale == TargetMoments.from_targets(y, times).scale


@pytest.mark.parametrize(("value", "expected"), [(5.0, 5.0), (0.1, 0.1), (-3e6, 3e6), (0.0, 1.0)])
def test_constant_targets_have_the_scale_of_their_size(value, expected):
    y = np.full(7, value, np.float32)
    assert TargetMoments.from_targets(y).scale == pytest.approx(expected, rel=1e-5)
    halves = TargetMoments.from_targets(y[:3]).merge(TargetMoments.from_targets(y[3:]))
    assert halves.scale == TargetMoments.from_targets(y).scale


class Batches:
    """The rows in four batches, of which a process may be told to take a part."""

    def __init__(self, number=0, total=1):
        self.number, self.total = number, total

    def for_process(self, number, total):
        return Batches(number, total)

    def __len__(self):
        return 4

    def __iter__(self):
        order = np.argsort(Y)  # sorted: the first batch says little about the others
        for rows in np.split(order[:40], 4):
            mine = np.split(rows, self.total)[self.number]
            yield X[mine], data()[1][mine]


def test_a_loader_gives_the_prior_of_its_rows():
    rows = np.argsort(Y)[:40]
    expected = problem().for_data((X[rows], data()[1][rows])).likelihood
    posterior = px.fit(problem(), Batches(), px.MAP(), steps=2, key=0)
    assert posterior.problem.likelihood == expected


def test_processes_that_read_parts_of_every_batch_agree(monkeypatch):
    whole = feeding.prepare_data(problem(), Batches(), px.MAP(), None, jax.random.key(0)).target_scale
    said = []
    monkeypatch.setattr(feeding.distributed, "exchange", lambda message, _: said.append(message) or [message] * 2)
    for number in range(2):
        feeding.prepare_data(problem(), Batches(), px.MAP(), None, jax.random.key(0), feeding.Part(number, 2))
    monkeypatch.setattr(feeding.distributed, "exchange", lambda message, _: said)
    for number in range(2):
        part = feeding.Part(number, 2)
        assert feeding.prepare_data(problem(), Batches(), px.MAP(), None, jax.random.key(0), part).target_scale == whole
    monkeypatch.setattr(feeding.distributed, "exchange", lambda message, _: [message, "ValueError: y is not finite"])
    with pytest.raises(px.distributed.ProcessError, match="process 1 failed when reading y: ValueError"):
        feeding.prepare_data(problem(), Batches(), px.MAP(), None, jax.random.key(0), part)


@pytest.mark.slow
def test_a_saved_posterior_keeps_its_prior(tmp_path):
    posterior = px.fit(problem(270.0), data(270.0), px.VI(), steps=20, key=0)
    posterior.save(tmp_path / "run.posterior")
    again = px.load(tmp_path / "run.posterior", NET)
    assert again.problem.likelihood == posterior.problem.likelihood
    assert again.problem.likelihood.scale_prior[0] > 100
    assert px.analysis.elbo(again, data(270.0)) == px.analysis.elbo(posterior, data(270.0))


@pytest.mark.slow
def test_a_checkpoint_is_resumed_with_the_same_prior(tmp_path):
    method = px.SGLD(1e-3, warmup_epochs=1, epochs_per_draw=1)
    short, longer = (
        px.fit(problem(270.0), data(270.0), method, draws=draws, key=0, checkpoint=tmp_path / "run") for draws in (3, 5)
    )
    assert longer.problem.likelihood == short.problem.likelihood
    np.testing.assert_array_equal(longer.draws.network["w"][:, :3], short.draws.network["w"])


def test_the_noise_is_tuned_and_left_to_be_learned_in_the_same_units():
    """MacKay's fixed point, sigma^2 = RSS / (N - gamma), is equivariant, and so is what p.tune leaves learned."""
    found = [p.tune(problem(unit), data(unit), per="none", noise="learned", rounds=30) for unit in (1.0, 1e3)]
    assert found[1].tuning.noise / found[0].tuning.noise == pytest.approx(1e3, rel=1e-3)
    medians = [one.likelihood.scale_prior[0] for one in found]
    assert medians[1] / medians[0] == pytest.approx(1e3, rel=1e-5)


def test_latents_of_a_fitted_problem_start_in_the_targets_units():
    posterior = px.fit(problem(270.0), data(270.0), px.MAP(optax.sgd(0.0)), steps=1, key=0)
    start: Latents = posterior.draws
    assert np.exp(start.likelihood["log_scale"]).item() == pytest.approx(270.0 * Y.std(), rel=1e-4)
