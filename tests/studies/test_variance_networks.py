"""The study of variance networks: its smallest scale runs, and its own numbers are right."""

import dataclasses
import json
from typing import Any

import matplotlib
import numpy as np
import pytest

import posteriax as px
from posteriax.studies.results import CellResult, Results, plain, read_results
from posteriax.studies.study import Cell
from posteriax.studies.variance_networks import STUDY
from posteriax.studies.variance_networks.experiments import (
    COARSE,
    above_chance,
    attacked,
    elbo,
    four_gaussians,
    lenet_problem,
    load_images,
    train,
)
from posteriax.studies.workbench import Workbench, join_members

SMOKE, PAPER = STUDY.scales["smoke"], STUDY.scales["paper"]

matplotlib.use("Agg")


def _run(cells: list[Cell], settings: Any, scale: str, *, trial: bool) -> Results:
    loaded: dict[Any, Any] = {}
    found = []
    for cell in cells:
        bench = Workbench(trial=trial, progress=False, loaded=loaded)
        result = json.loads(json.dumps(plain(STUDY.run(cell, settings, bench))))
        found.append(CellResult(cell.settings, cell.seed, result))
    return Results(STUDY.name, scale, 1, dataclasses.asdict(settings), found, {}, {}, True)


@pytest.mark.slow  # another smoke run
def test_a_zero_mean_layer_is_exactly_at_chance_with_its_means(smoke_folder) -> None:
    smoke = read_results(smoke_folder("variance-networks"))
    assert smoke.values("above_chance", method="zero-mean", experiment="accuracy").tolist() == [0.0]


def test_figures_of_no_results_are_empty_rather_than_an_error() -> None:
    none = Results(STUDY.name, "laptop", 3, {}, [], {}, {}, False)
    for draw in STUDY.figures.values():
        draw(none)
    STUDY.tables(none)
    assert not any(len(v) for claim in STUDY.claims for v in claim.values(none).values())


@pytest.mark.slow
def test_a_cell_gives_the_same_result_again() -> None:
    toy = [cell for cell in STUDY.cells(SMOKE, 1) if cell.settings["experiment"] == "toy"]
    first, second = (_run(toy, SMOKE, "smoke", trial=False).cells[0].result for _ in range(2))
    assert json.dumps(first) == json.dumps(second)


def test_above_chance_is_0_for_guesses_and_large_for_knowledge() -> None:
    rng = np.random.default_rng(0)
    y = rng.choice(10, 10_000, p=np.arange(1, 11) / 55)
    assert above_chance(np.full(10_000, 9), y) == pytest.approx(0.0, abs=1e-9)
    guesses = rng.choice(10, 10_000, p=np.arange(10, 0, -1) / 55)
    assert abs(above_chance(guesses, y)) < 3.5
    assert above_chance(np.where(rng.random(10_000) < 0.1, y, guesses), y) > 10


@pytest.mark.slow
def test_the_elbo_counts_the_kl_of_the_variance_layer_alone() -> None:
    training, _ = load_images(Workbench(), "fashion_small", 64, 10)
    slow = dataclasses.replace(SMOKE, noise_rate=0.5, held=0.0)  # alpha stays small, so that the KL is large
    problem, families = lenet_problem("layer", slow, 0)
    posterior = train(
        Workbench(progress=False), "layer", problem, families, training, slow, epochs=1, batch_size=64, key=0
    )
    found = elbo(posterior, training, dataclasses.replace(SMOKE, elbo_examples=64, draws=50))
    alpha = np.exp(float(posterior.variational["dense/weight"]["log_alpha"].ravel()[0]))
    k1, k2, k3 = 0.63576, 1.87320, 1.48695  # Molchanov et al. 2017
    kl = k1 - k1 / (1 + np.exp(-k2 - k3 * np.log(alpha))) + 0.5 * np.log1p(1 / alpha)
    assert found["kl"] == pytest.approx(posterior.mean.dense.weight.size * kl, rel=1e-4)
    whole = px.analysis.elbo(posterior, training, draws=50)
    points = sum(
        0.5 * float((np.asarray(leaf, float) ** 2).sum() + leaf.size * np.log(2 * np.pi))
        for path, leaf in zip(problem.leaf_names, _leaves(posterior), strict=True)
        if path != "dense/weight"
    )
    assert found["elbo"] == pytest.approx(whole + points, rel=1e-3)


def _leaves(posterior: Any) -> list[Any]:
    import jax

    return jax.tree.leaves(posterior.mean)


@pytest.mark.slow
def test_an_attack_is_counted_on_the_images_that_are_not_predicted_as_the_target() -> None:
    (x, y), _ = px.data.two_moons(train=50)
    import equinox as eqx
    import jax

    problem = px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical())
    posterior = px.fit(problem, (x, y), px.MAP(), steps=300, key=0)
    settings = dataclasses.replace(SMOKE, step=0.2, iterations=3)
    scaled = (x - x.min()) / (x.max() - x.min())
    found = attacked(posterior, (scaled, y), settings)
    assert found["success"][0] == 0 and len(found["success"]) == 4
    assert found["success"] == sorted(found["success"])  # a smooth problem: no step undoes another


@pytest.mark.slow
def test_joined_networks_predict_the_average_of_their_predictions() -> None:
    import equinox as eqx
    import jax

    from posteriax import families as q

    train_set, (x, _) = px.data.two_moons(train=50)
    problem = px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical())
    one, two = (px.fit(problem, train_set, px.VI(q.Point()), steps=20 + 50 * key, key=key) for key in range(2))
    both = join_members([one, two]).predict(x, draws=2).probs
    assert np.allclose(both, (one.predict(x, draws=1).probs + two.predict(x, draws=1).probs) / 2, atol=1e-6)


def test_coarse_labels_group_the_fine_ones_by_fives() -> None:
    assert np.bincount(COARSE).tolist() == [5] * 20
    aquatic_mammals, trees = (4, 30, 55, 72, 95), (47, 52, 56, 59, 96)
    assert {COARSE[i] for i in aquatic_mammals} == {0} and {COARSE[i] for i in trees} == {17}


def test_the_toy_problem_has_unit_covariance_around_its_centres() -> None:
    x, y = four_gaussians(2000, seed=0)
    assert np.abs(x[y == 1].mean(axis=0) - [3, 10]).max() < 0.1
    assert np.abs(np.cov(x[y == 3].T) - np.eye(2)).max() < 0.15


@pytest.mark.slow
def test_the_paper_scale_builds_and_takes_a_step() -> None:
    settings = STUDY.one_step(PAPER)
    cells = STUDY.cells(settings, 1)
    assert {cell.settings["network"] for cell in cells} == {"LeNet-5", "VGG", "two units"}
    kept = {("accuracy", "LeNet-5", "layer"), ("accuracy", "VGG", "layer"), ("curvature", "LeNet-5", "softplus")}
    names = ("experiment", "network", "method")
    chosen = [cell for cell in cells if tuple(cell.settings[name] for name in names) in kept]
    results = _run(chosen[:1] + chosen[-2:], settings, "paper", trial=True)
    assert all(np.isfinite(cell.result["ensemble"]) for cell in results.cells)
