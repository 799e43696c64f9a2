"""The study of rank-1 networks: its numbers are right, and its methods are compared at the same size."""

import dataclasses

import equinox as eqx
import jax
import matplotlib
import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp

import posteriax as px
from posteriax import zoo
from posteriax.studies.rank_1 import STUDY
from posteriax.studies.rank_1 import settings as n
from posteriax.studies.rank_1.experiments import (
    by_kind,
    by_severity,
    clinical_scores,
    corrupted_images,
    falling_sgd,
    images_per_step,
    remove,
    scores,
)
from posteriax.studies.rank_1.networks import (
    lstm_layers,
    mlp_layers,
    network_layers,
    parameters,
    wide_resnet_layers,
    widths_for,
)
from posteriax.studies.rank_1.report import at_checkpoints, cifar10, if_tuned, parameter_ratio
from posteriax.studies.results import CellResult, Results
from posteriax.studies.study import Cell
from posteriax.studies.workbench import Workbench, average_pixels, load_data

matplotlib.use("Agg")
SMOKE, LAPTOP, PAPER = (STUDY.scales[scale] for scale in ("smoke", "laptop", "paper"))


def _size(net):
    return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(net, eqx.is_inexact_array)))


@pytest.mark.slow
def test_parameters_are_those_of_the_networks():
    key = jax.random.key(0)
    wide, _ = zoo.wide_resnet(depth=10, widen=2, stages=(5, 7, 11), key=key)
    assert parameters(wide_resnet_layers((5, 7, 11), 10, 2, 3, 10)) == _size(wide)
    assert parameters(mlp_layers(12, (5, 6), 3)) == _size(zoo.mlp(inputs=12, hidden=(5, 6), classes=3, key=key))
    assert parameters(lstm_layers(6, 3, 2)) == _size(zoo.mortality_lstm(variables=3, static=2, units=6, key=key))


@pytest.mark.slow
def test_parameters_of_a_mixture_are_those_of_its_posterior():
    plan = SMOKE.tables[-1]
    layers = mlp_layers((28 // plan.pool) ** 2, plan.widths, 10)
    cell = Cell({"experiment": "table", "data": plan.data, "method": n.GAUSSIAN}, 0, 8.0)
    assert cell in STUDY.cells(SMOKE, 1)
    result = STUDY.run(cell, SMOKE, Workbench(progress=False))
    assert result["parameters"] == parameters(layers, components=SMOKE.members, per_factor=2)


@pytest.mark.parametrize(
    "method, place",
    [(method, place) for method in (n.DEEP, n.BATCH_ENSEMBLE) for place in range(4)] + [(n.EQUAL, 0), (n.EQUAL, 2)],
)
def test_methods_have_the_same_number_of_parameters_within_1_per_cent(method, place):
    if place == 3:
        plan, shape, classes = LAPTOP.mortality, (37, 4), 1
        own = (plan.units,)
    else:
        plan = LAPTOP.tables[place]
        classes, side = 100 if plan.data == "cifar100" else 10, 28 if plan.data == "fashion_mnist" else 32
        colours = () if plan.data == "fashion_mnist" else (3,)
        shape, own = (side // plan.pool, side // plan.pool, *colours), plan.widths
    target = parameters(network_layers(plan, shape, own, classes), components=4, per_factor=2)
    layers = network_layers(plan, shape, widths_for(method, plan, LAPTOP, shape, classes), classes)
    mixture = {"components": 4, "per_factor": 1} if method == n.BATCH_ENSEMBLE else {}
    total = (4 if method == n.EQUAL else 1) * parameters(layers, **mixture)
    assert abs(total / target - 1) < 0.01


def test_mixtures_of_every_size_see_as_many_rows():
    plan = PAPER.tables[0]
    rows = [k * images_per_step(n.size_name(k), plan, PAPER) for k in (1, 2, 8, 16)]
    assert rows == [512] * 4 and images_per_step(n.GAUSSIAN, plan, PAPER) == 128
    assert images_per_step(n.DEEP, plan, PAPER) == 128


def test_scores_are_of_the_average_and_no_worse_than_the_mean_of_single_draws():
    rng = np.random.default_rng(0)
    log_probs, y = log_softmax(2 * rng.normal(size=(5, 200, 4)), axis=-1), rng.integers(4, size=200)
    found = scores(log_probs, y)
    each = -np.take_along_axis(log_probs, y[None, :, None], axis=2)[..., 0]
    assert found["nll"] == pytest.approx(-(logsumexp(-each, axis=0) - np.log(5)).mean())
    assert found["nll"] < each.mean()
    assert found["accuracy"] == (np.exp(log_probs).mean(axis=0).argmax(axis=-1) == y).mean()


def test_corrupted_scores_are_by_kind_and_by_severity():
    kinds, severities, images = 3, 2, 4
    right = np.zeros((kinds, severities, images), bool)
    right[0], right[1, 0], right[:, 1, 0] = True, True, True
    log_probs = np.log(np.where(right.reshape(-1)[:, None], [0.9, 0.1], [0.1, 0.9]))[None]
    y = np.zeros(right.size, int)
    assert by_kind(log_probs, y, kinds)["accuracy"] == pytest.approx(right.mean())
    assert by_severity(log_probs, y, kinds, severities)["accuracy"] == pytest.approx(right.mean(axis=(0, 2)).tolist())
    per_kind = [abs(right[k].mean() * 0.9 + (~right[k]).mean() * 0.9 - right[k].mean()) for k in range(kinds)]
    assert by_kind(log_probs, y, kinds)["ece"] == pytest.approx(np.mean(per_kind), abs=1e-6)


def test_every_severity_has_images_of_its_own():
    data = load_data("fashion_small")
    plan = dataclasses.replace(SMOKE.tables[-1], corrupted=2, kinds=("contrast", "brightness"), severities=(1, 5))
    x, y = corrupted_images(data, plan)
    images, labels = data.test
    assert y.tolist() == [*labels[:4]] * 2
    assert np.array_equal(x[2:4], px.data.corrupt(images[2:4], "contrast", 5, 0))
    assert np.array_equal(x[4:6], px.data.corrupt(images[:2], "brightness", 1, 0))
    colour = np.arange(48.0).reshape(1, 4, 4, 3)
    assert np.allclose(average_pixels(colour, 2)[0, 0, 1], colour[0, :2, 2:].mean(axis=(0, 1)))


def test_removed_measurements_are_missing_and_the_others_stay():
    x = load_data("made-up/physionet2012").train[0]
    fewer = remove(x, 0.5)
    kept = fewer["observed"] > 0
    assert 0.45 < kept.sum() / x["observed"].sum() < 0.55
    assert np.array_equal(fewer["values"][kept], x["values"][kept]) and not fewer["values"][~kept].any()
    assert fewer["static"] is x["static"]


def test_clinical_scores_rank_by_the_average_risk():
    risk = np.array([[0.9, 0.2, 0.4], [0.1, 0.4, 0.2]])
    found = clinical_scores(np.log(np.stack([1 - risk, risk], axis=-1)), np.array([1, 0, 0]))
    assert found["auc_pr"] == pytest.approx(1.0)


def test_the_deterministic_baseline_is_the_mean_over_an_ensembles_members():
    deep = {"parameters": 40, "clean": {"nll": 1.0}, "member": {"clean": {"nll": 2.0}}}
    own = {"parameters": 11, "clean": {"nll": 0.5}}
    cells = [
        CellResult({"experiment": "table", "data": "cifar10", "method": method}, 3, result)
        for method, result in ((n.DEEP, deep), (n.GAUSSIAN, own))
    ]
    results = Results("rank-1", "laptop", 1, {"members": 4}, cells, {}, {}, True)
    gaussian, deterministic = (cifar10(method, "clean.nll") for method in (n.GAUSSIAN, n.DETERMINISTIC))
    assert deterministic.by_seed(results) == {3: 2.0}
    assert (gaussian - deterministic)(results) == [-1.5]
    assert parameter_ratio("cifar10", n.GAUSSIAN, n.DETERMINISTIC)(results) == [1.1]


def test_the_papers_optimiser_warms_up_and_falls():
    optimizer = falling_sgd(0.1, batch_size=128, examples=1280, steps=100)
    params = np.zeros(1)
    state, size = optimizer.init(params), []
    update = jax.jit(optimizer.update)
    for _ in range(100):
        step, state = update(np.ones(1), state, params)
        size.append(-float(step[0]))
    full = 0.1 / 1280 / (1 - 0.9)  # with momentum
    assert size[0] == 0 and size[39] == pytest.approx(full, rel=0.05)
    assert size[79] == pytest.approx(full / 5, rel=0.05) and size[99] < full / 50


def test_figures_of_no_results_are_empty_rather_than_an_error():
    none = Results(STUDY.name, "laptop", 3, {}, [], {}, {}, False)
    for draw in STUDY.figures.values():
        draw(none)
    STUDY.tables(none)
    assert not any(len(v) for claim in STUDY.claims for v in claim.values(none).values())


def test_likelihoods_along_a_run_decide_nothing_unless_weight_decay_was_chosen():
    readings = {"nll": [0.4, 0.5], "accuracy": [0.8, 0.8], "diversity": [0.1, 0.1]}

    def objection(**more):
        cells = [
            CellResult({"experiment": "checkpoints", "method": f"{method}, checkpoints"}, 0, readings | more)
            for method in (n.GAUSSIAN, n.BATCH_ENSEMBLE)
        ]
        settings = {"tables": [{"data": "fashion_mnist", "trials": [0.5, 1.0]}]}
        return if_tuned(at_checkpoints("nll")).objection(Results("", "laptop", 1, settings, cells, {}, {}, True))

    assert "same weight decay" in objection() and not objection(tuning={"0.5": 0.4})
