"""The study of BNN posteriors: its smallest scale runs, and its own numbers are right."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posteriax as px
from posteriax.studies.bnn_posteriors import STUDY, detectors, experiments, methods, networks, report
from posteriax.studies.bnn_posteriors.experiments import prior_with_variance, quarter_period
from posteriax.studies.bnn_posteriors.networks import SmallCNN, SmallCNNLSTM
from posteriax.studies.results import CellResult, Results, plain
from posteriax.studies.workbench import UNKNOWN, Workbench

SMOKE, LAPTOP, PAPER = (STUDY.scales[scale] for scale in ("smoke", "laptop", "paper"))
TINY = SMOKE.varied


def test_no_results_give_no_values_and_empty_figures():
    none = Results(STUDY.name, "laptop", 3, {}, [], {}, {}, False)
    assert not any(len(v) for claim in STUDY.claims for v in claim.values(none).values())
    for draw in STUDY.figures.values():
        draw(none)
    STUDY.tables(none)


@pytest.mark.slow
def test_the_small_cnn_is_a_convolutional_network():
    net = SmallCNN(14, (3, 6), 10, key=jax.random.key(0))
    image = jax.random.normal(jax.random.key(1), (14, 14))

    def convolve(x, weight, kernel, stride):
        kernels = weight.reshape(kernel, kernel, -1, weight.shape[-1])
        order = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, kernels, (stride, stride), "VALID", dimension_numbers=order)

    units = jax.nn.relu(convolve(image[None, :, :, None], net.first.weight, 4, 2) + net.first.bias)
    units = jax.nn.relu(convolve(units, net.second.weight, 2, 2) + net.second.bias)
    np.testing.assert_allclose(net(image), net.out(units.reshape(-1)), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_the_small_cnn_lstm_is_that_of_the_zoo():
    small, whole = (net(50, 4, 3, 5, 2, key=jax.random.key(0)) for net in (SmallCNNLSTM, px.zoo.CNNLSTM))
    assert jax.tree.all(jax.tree.map(np.array_equal, jax.tree.leaves(small), jax.tree.leaves(whole)))
    reviews = jax.random.randint(jax.random.key(1), (3, 30), 0, 50)
    np.testing.assert_allclose(jax.vmap(small)(reviews), jax.vmap(whole)(reviews), rtol=1e-5, atol=1e-6)


def test_held_out_examples_are_training_examples_that_are_not_trained_on():
    bench = Workbench()
    whole = {image.tobytes() for image in bench.load("fashion_small").train[0]}
    chosen = networks.load_examples(bench, TINY, 100, held_out=True)
    assert all(image.tobytes() in whole for image in chosen.images)
    trained = {image.tobytes() for image in chosen.train[0]}
    assert not any(image.tobytes() in trained for image in chosen.test[0])
    others = [networks.load_examples(bench, TINY, seed) for seed in (0, 1)]
    assert not np.array_equal(others[0].train[0], others[1].train[0])
    assert not any(image.tobytes() in whole for image in others[0].images)


def test_reviews_keep_their_last_words():
    target = dataclasses.replace(TINY, words=50, length=3)
    found = networks.prepare(target, np.array([[1, 60, 3, 49, 50]]))
    assert found.tolist() == [[3, 49, UNKNOWN]]


def test_scores_of_the_reference_are_those_of_one_chain_against_the_others():
    y = np.array([0, 1])
    sure, unsure = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[0.5, 0.5], [0.4, 0.6]])
    chains = [methods.Predicted(probs, None, None) for probs in (sure, unsure)]
    found = methods.score_reference(chains, methods.Inputs((sure, y), None, None))
    assert found["total_variation"] == pytest.approx((0.5 + 0.6) / 2)
    assert found["agreement"] == pytest.approx(0.5)
    assert found["nll"] == pytest.approx(-np.log([0.75, 0.3]).mean())


def test_sg_mcmc_steps_shrink_with_the_temperature():
    """The posterior's variance is proportional to T, and so is a step that is as good."""
    recipe = dataclasses.replace(SMOKE.targets[0].recipe, sghmc=1e-4)
    x = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    problem = px.Problem((lambda w, x: x @ w, jnp.zeros((3, 2))), px.Categorical(), temperature=0.1)
    posterior = methods.fit_sg_mcmc(Workbench(progress=False), "SGHMC", problem, (x, np.arange(20) % 2), recipe, 0)
    np.testing.assert_allclose(posterior.trace["step_size"], 1e-5, rtol=1e-5)


@pytest.mark.parametrize("large", [False, True])
def test_energies_of_large_networks_are_in_double_precision(monkeypatch, large):
    problem = px.Problem((lambda w, x: x @ w, jnp.zeros((3, 2))), px.Categorical())
    bench, seen = Workbench(progress=False), {}

    def fit(problem, train, method, **settings):
        seen.update(method=method, doubles=jnp.zeros(1).dtype == np.float64)

    monkeypatch.setattr(bench, "fit", fit)
    monkeypatch.setattr(methods, "LARGE", 5 if large else 6)
    methods.sample(bench, problem, None, SMOKE.short, 0)
    assert seen["method"].float64_accept == seen["doubles"] == large


def test_mixing_statistics_tell_chains_that_agree_from_chains_that_do_not():
    values = np.random.default_rng(0).normal(size=(4, 200, 3))
    assert methods.chain_mixing(values)["rhat_far"] == 0.0
    values[0, :, 2] += 5
    found = methods.chain_mixing(values)
    assert found["rhat_far"] == pytest.approx(1 / 3) and found["plain"] > 2


def test_a_prior_of_any_family_has_the_variance_asked_for():
    from posteriax.networks.leaf import Leaf

    for family in ("Normal", *LAPTOP.families):
        distribution = prior_with_variance(family, 0.3).distribution(Leaf("w", (2, 3)))
        assert np.allclose(distribution.variance, 0.3, rtol=1e-5), family


def test_hmc_is_compared_with_its_own_half_at_as_many_draws_as_a_method_has():
    draws = np.zeros((4, 20, 3, 2))
    draws[:2], draws[2:] = [0.5, 0.5], [0.75, 0.25]
    draws[2:, 1::2] = [0.25, 0.75]  # left out by the thinning to ten draws
    halves = methods.Halves.split(draws, 10)
    assert halves.second_half() == pytest.approx(0.25)
    assert halves.distance(np.full((3, 2), 0.5)) == 0.0


def test_trajectories_of_the_paper():
    assert quarter_period(1 / 40) == pytest.approx(0.248, abs=1e-3)
    assert round(quarter_period(PAPER.targets[0].prior_variance) / PAPER.targets[0].sampling.step_size) == 70248


def test_regression_scores_are_in_the_units_of_the_data():
    data = Workbench().load("made-up/uci/concrete")
    unit = float(data.target_scaling.scale)
    found = experiments._in_units({"rmse": 0.5, "nll": 1.0}, data)
    assert found == {"rmse": pytest.approx(0.5 * unit), "log_likelihood": pytest.approx(-1 - np.log(unit))}


def cells_of(experiment, results, **settings):
    return [CellResult({"experiment": experiment, **settings}, seed, one) for seed, one in enumerate(results)]


def results_of(cells, **settings):
    return Results(STUDY.name, "laptop", 2, settings, cells, {}, {}, True)


def test_the_order_is_measured_on_every_network():
    def found(distance):
        rows = {name: {"total_variation": 0.1 * distance} for name in methods.SG_MCMC}
        return {"HMC": {"total_variation": 0.0}, "deep ensemble": {"total_variation": 0.3}, **rows}

    cells = cells_of("methods", [found(1), found(2)], target="a") + cells_of(
        "methods", [found(0), found(0)], target="b"
    )
    measured = report.difference("deep ensemble", "SG-MCMC", "total_variation").by_name(results_of(cells))
    np.testing.assert_allclose(measured["a"](results_of(cells)), [0.2, 0.1])
    np.testing.assert_allclose(measured["b"](results_of(cells)), [0.3, 0.3])
    assert not report.difference("deep ensemble", "SG-MCMC", "corrupted.nll").by_name(results_of(cells))


def test_a_comparison_with_less_trained_networks_or_by_unmixed_chains_decides_nothing():
    result = {"HMC": {"log_likelihood": 1.0}, "SGLD": {"log_likelihood": 0.5}, "MAP": {"log_likelihood": 0.7}}
    cells = [
        *cells_of("regression", [{**result, "quality": {"function_rhat": 2.0}}], data="uci/boston"),
        *cells_of("regression", [{**result, "quality": {"function_rhat": 1.01}}], data="uci/naval"),
    ]
    regression = {"little_noise": [["uci/naval", 0.02, 2000]], "recipe": {"epochs": 100}}
    now, then = (results_of(cells, regression=regression | more) for more in ({}, {"start_epochs": 0}))
    assert report.above_baselines("uci/naval")(now) == pytest.approx([0.3])

    def objection(name, results):
        return report.if_mixed(name, report.above_baselines(name)).objection(results)

    assert "R-hat" in objection("uci/boston", now) and not objection("uci/naval", now)
    assert "2,000 epochs" in objection("uci/naval", then)  # of the ensemble that its chains started at


def test_the_best_colder_temperature_is_compared_with_1():
    nlls = {0.1: [0.5, 0.3], 0.3: [0.4, 0.6], 1.0: [0.45, 0.45], 3.0: [0.0, 0.0]}
    cells = [
        cell
        for t, each in nlls.items()
        for cell in cells_of("temperature", [{"nll": v} for v in each], target="a", temperature=t)
    ]
    found = report.colder(experiment="temperature", target="a")(results_of(cells))
    np.testing.assert_allclose(found, [-0.05, -0.15])


def test_noise_is_averaged_over_its_levels():
    rows = {"MAP": {"noise 0": 1.0, "noise 0_5": 0.8, "noise 1": 0.6}}
    rows["HMC"] = {"noise 0": 0.9, "noise 0_5": 0.6, "noise 1": 0.2}
    results = results_of(cells_of("shift", [rows], target="MNIST, MLP"), noises=[0.0, 0.5, 1.0])
    for noisy, expected in ((True, 0.3), (False, 0.1)):
        found = report.under_noise("MAP", "HMC", noisy=noisy).by_name(results)
        assert found["MLP"](results) == pytest.approx([expected])
    assert experiments.noise_name(0.5) == "noise 0_5"


@pytest.mark.slow
def test_a_cell_gives_the_same_result_twice():
    cell = next(c for c in STUDY.cells(SMOKE, 1) if c.settings["experiment"] == "mixing")
    once, again = (json.dumps(plain(STUDY.run(cell, SMOKE, Workbench(progress=False)))) for _ in range(2))
    assert once == again


def test_empcov_is_the_prior_of_the_incoming_weights_of_each_unit():
    chosen = networks.load_examples(Workbench(), TINY, 0)
    prior = {"**": px.priors.Normal(0.3), experiments.FIRST_LAYER: px.priors.EmpCov(chosen.train[0], 0.3)}
    problem = networks.build_problem(TINY, chosen, prior=prior)
    first = problem.priors.network.layers[0].weight
    assert first.event_shape == (49, 4)
    variances = np.asarray(first.variance)
    np.testing.assert_allclose(variances, np.repeat(variances[:, :1], 4, axis=1))  # the same for every unit


def test_detectors_measure_distances_from_classes_and_confidence_after_a_step():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    x = (rng.normal(size=(60, 2)) @ [[1.0, 0.5], [0.0, 0.3]] + np.eye(3, 2)[y]).astype(np.float32)
    net = px.zoo.MLP((2, 3), key=jax.random.key(0))  # its last layer is its only one: features are inputs
    centred = x - np.array([x[y == label].mean(axis=0) for label in range(3)])[y]
    covariance = np.cov(centred.T, bias=True)
    inverse = np.linalg.inv(covariance + detectors.RIDGE * np.trace(covariance) / 2 * np.eye(2))
    gaps = np.array([x[0] - x[y == label].mean(axis=0) for label in range(3)])
    expected = -min(gap @ inverse @ gap for gap in gaps)
    np.testing.assert_allclose(detectors.mahalanobis(net, (x, y), x[:1]), [expected], rtol=1e-4)
    still, moved = (np.asarray(detectors.odin(net, jnp.asarray(x), step)) for step in (0.0, 0.1))
    np.testing.assert_allclose(still, jax.nn.log_softmax(jax.vmap(net)(x) / detectors.TEMPERATURE).max(axis=1))
    assert (moved > still).all()
