"""Liberty or Depth: every claim, table and figure comes out of a smoke run, and its own numbers are right."""

import json
from dataclasses import replace

import jax
import numpy as np
import optax
import pytest

import posteriax as px
from posteriax import families as q
from posteriax.studies.liberty_or_depth import (
    EXPERIMENTS,
    STUDY,
    bimodal,
    iris,
    product_matrices,
    report,
    swag,
    two_moons,
)
from posteriax.studies.results import CellResult, Results, plain, read_results
from posteriax.studies.workbench import Workbench

SMOKE, PAPER = STUDY.scales["smoke"], STUDY.scales["paper"]


@pytest.fixture
def smoke(smoke_folder):
    return read_results(smoke_folder("liberty-or-depth"))


@pytest.mark.slow  # another smoke run
def test_a_cell_gives_the_same_result_twice(smoke):
    cell = next(c for c in STUDY.cells(SMOKE, 1) if c.settings["experiment"] == iris.NAME)
    again = json.loads(json.dumps(plain(STUDY.run(cell, SMOKE, Workbench()))))
    assert again == smoke.select(**cell.settings)[0].result


@pytest.mark.slow
def test_local_product_of_a_linear_network_is_its_product_matrix():
    """Without kinks the local product does not depend on the input, and its moments are those of the recursion."""
    net = px.zoo.MLP((6, 3, 3, 3, 3, 2), activation=product_matrices.identity, key=jax.random.key(0))
    x, y = np.random.default_rng(0).normal(size=(20, 6)).astype(np.float32), np.arange(20) % 2
    posterior = px.fit(px.Problem(net, px.Categorical()), (x, y), px.VI(q.Normal(0.3)), steps=1, key=0)
    draws = 20_000
    local, _ = product_matrices.sampled_products(posterior, x[0], 1.0, draws, seed=0)
    exact = px.analysis.product_matrix(posterior, [f"layers/{i}/weight" for i in (1, 2, 3)])
    spread = np.sqrt(np.einsum("abab->ab", exact.covariance) / draws)
    assert (np.abs(local.mean - exact.mean) < 5 * spread).all()
    assert product_matrices.rms_difference(exact, local) < 3 / np.sqrt(draws)


def test_two_hidden_layers_make_a_step_of_a_coin_and_one_does_not():
    """Twice the rarer mode's share of 1,000 draws: of z > 0.85 / k = 0.04, 0.48; of 0.85 < z < 1.15, 0.073."""
    x = np.linspace(-1, 1, 8, dtype=np.float32)[:, None]
    near = {}
    for layers in (1, 2):
        net = bimodal.MeanField((1, *[8] * layers, 1), key=jax.random.key(0)).thrown()
        near[layers] = bimodal.measure(net, x, np.ones(8, np.float32))["near_modes"]
    for layers, share in {1: 0.073, 2: 0.48}.items():
        assert abs(near[layers] - 2 * share) < 4 * 2 * np.sqrt(share * (1 - share) / 1000)


@pytest.mark.slow
def test_local_products_are_the_jacobians_of_the_network():
    """With hardly any noise, every draw's product is the Jacobian of the last hidden pre-activations."""
    net = px.zoo.MLP((4, 3, 3, 3, 3, 2), activation=product_matrices.leaky_relu, key=jax.random.key(1))
    x = np.array([[1.0, -2.0, 0.5, 3.0]], np.float32)
    problem = px.Problem(net, px.Categorical())
    posterior = px.fit(problem, (x, np.array([0])), px.VI(q.Normal(1e-6), optimizer=optax.sgd(0.0)), steps=1, key=0)
    found = product_matrices.sampled_products(posterior, x[0], product_matrices.SLOPE, 3, seed=0)[0].mean

    def later(units):
        for layer in net.layers[1:-2]:
            units = product_matrices.leaky_relu(layer(units))
        return net.layers[-2](units)

    expected = jax.jacrev(later)(product_matrices.leaky_relu(net.layers[0](x[0])))
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.slow
def test_swag_diag_from_the_snapshots_of_swag_is_swag_diag():
    (x, y), _ = px.data.two_moons(train=64)
    problem = px.Problem(px.zoo.MLP((2, 4, 2), key=jax.random.key(0)), px.Categorical())
    low_rank, diagonal = (px.fit(problem, (x, y), px.SWAG(rank=rank), epochs=8, key=0) for rank in (3, 0))
    found = swag.swag_diagonal(low_rank)
    assert found.families == diagonal.families
    for path, expected in diagonal.variational.items():
        for name, value in expected.items():
            np.testing.assert_allclose(found.variational[path][name], value, rtol=1e-4, atol=1e-5)


def moons_cells(costs):
    """Made-up results: E_KL and E_W by activation, depth and restart, with a null of 1."""
    cells = []
    for name in two_moons.SLOPES:
        for depth, values in enumerate(costs[name], 1):
            with_null = (np.array(values) + 1).tolist()
            one = [1.0] * len(values)
            result = {"kl": with_null, "kl_null": one, "w": with_null, "w_null": one}
            settings = {"experiment": two_moons.NAME, "activation": name, "depth": depth, "restarts": len(values)}
            cells.append(CellResult(settings, 0, result))
    return Results(STUDY.name, "smoke", 1, {}, cells, {}, {}, True)


def parts_of(measure, results):
    return {name: part(results).tolist() for name, part in measure.by_name(results).items()}


def test_falls_are_those_of_every_activation():
    same = [[4.0, 4.0], [2.0, 2.0], [1.0, 1.0]]
    results = moons_cells(dict.fromkeys(two_moons.SLOPES, same) | {"linear": [[4.0, 4.0], [3.0, 3.0], [2.0, 3.0]]})
    found = parts_of(report.falls("kl"), results)
    assert found["linear"] == [0.5, 0.25] and found["ReLU"] == [0.75, 0.75]
    assert parts_of(report.falls("kl", to=2), results)["linear"] == [0.25, 0.25]


def test_shallow_kinks_are_compared_with_both_kinds():
    linear, sharp = [[4.0, 4.0], [2.0, 2.0]], [[8.0, 8.0], [6.0, 6.0]]
    close = {"linear": linear, "LeakyReLU 0.95": linear, "LeakyReLU 0.5": sharp, "ReLU": sharp}
    found = parts_of(report.closer_to_own_kind(), moons_cells(close))
    assert found == {"LeakyReLU 0.95": [4.0, 4.0], "LeakyReLU 0.5": [4.0, 4.0]}
    swapped = parts_of(report.closer_to_own_kind(), moons_cells(close | {"LeakyReLU 0.95": sharp}))
    assert swapped["LeakyReLU 0.95"] == [-4.0, -4.0]


def test_more_seeds_are_more_restarts_and_splits():
    of = lambda name, seeds: [c for c in STUDY.cells(PAPER, seeds) if c.settings["experiment"] == name]  # noqa: E731
    assert {c.settings["restarts"] for c in of(two_moons.NAME, 5)} == {20}  # the paper's 20 restarts per point
    assert len(of(iris.NAME, 2)) == 2 * len(of(iris.NAME, 1))


@pytest.mark.slow
def test_paper_networks_of_two_moons_have_about_a_thousand_weights():
    for depth, width in enumerate(PAPER.two_moons.widths, 1):
        net = px.zoo.MLP((2, *[width] * depth, 1), key=jax.random.key(0))
        assert 900 < sum(leaf.size for leaf in jax.tree.leaves(net)) < 1100


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_paper_scale_builds_and_takes_a_step(name):
    short = STUDY.one_step(PAPER)
    cells = [c for c in STUDY.cells(short, 1) if c.settings["experiment"] == EXPERIMENTS[name].NAME]
    result = plain(STUDY.run(cells[0], short, Workbench(trial=True)))
    assert json.loads(json.dumps(result)) == result
    if name == "swag":  # the deepest one has bottlenecks
        deep = replace(short, swag=replace(short.swag, depths=(56,)))
        STUDY.run(STUDY.cells(deep, 1)[-1], deep, Workbench(trial=True))
