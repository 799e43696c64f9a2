"""Every analysis draws itself; what is drawn is checked on the figure's own data."""

import equinox as eqx
import jax
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from by_hand import variational

import posteriax as px
from posteriax.analysis.gradient_signal import GradientSignal
from posteriax.analysis.phase_transition import PhaseTransition
from posteriax.analysis.score_variance import ScoreVariance
from posteriax.analysis.spectra import TruncationTable

matplotlib.use("Agg")
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def test_product_matrices():
    posterior = variational(eqx.nn.MLP(3, 2, 4, 2, key=jax.random.key(0)))
    product = px.analysis.product_matrix(posterior, "layers/*/weight")
    image = product.plot().axes[0].images[0].get_array()
    shown = np.array(product.correlation)
    np.fill_diagonal(shown, 0)
    np.testing.assert_allclose(image, shown)
    local = px.analysis.local_product_matrix(posterior, np.ones(3, np.float32), draws=20)
    assert f"{local.moments.outside_share:.0%} outside" in local.plot().axes[0].get_title()


def test_spectra():
    found = px.analysis.spectra(variational(eqx.nn.MLP(3, 2, 4, 1, key=jax.random.key(0))))
    figure = found.plot()
    assert len(figure.axes) == 2
    np.testing.assert_allclose(figure.axes[0].lines[0].get_ydata(), found["layers/0/weight"].scale_explained[:10])
    maps = found.plot_approximations(ranks=(1, 2))
    np.testing.assert_allclose(maps.axes[1].images[0].get_array(), found["layers/0/weight"].approximation(1))


def test_costs_tables_and_traces():
    cost = px.analysis.mean_field_cost(RNG.normal(size=(3, 60, 4)), points=20)
    assert len(cost.plot().axes) == 2
    table = TruncationTable({"trained": {"nll": 0.1}, "rank 1": {"nll": 0.3}}, {"trained": 4, "rank 1": 3})
    assert [bar.get_width() for bar in table.plot().axes[0].patches] == [0.3, 0.1]
    ratios = {"w/mean": np.array([5.0, 2.0])}
    signal = GradientSignal(np.array([10, 110]), {}, {}, ratios)
    assert signal.plot().axes[0].lines[0].get_ydata().tolist() == [5.0, 2.0]
    with pytest.raises(ValueError, match="no leaf ends in"):
        signal.plot("log_scale")
    values = np.array([0.5, 0.9, 0.9])
    made = PhaseTransition(np.arange(3), values, np.array([0.5, 0.9, 0.1]), values, np.array([-5.0, 0.0, 5.0]), 0.1)
    top, below = made.plot().axes
    assert top.lines[2].get_ydata().tolist() == [0.5, 0.9, 0.1]  # deterministic
    assert below.lines[0].get_ydata().tolist() == [-5.0, 0.0, 5.0]


def test_histograms_and_variances():
    kappa = px.analysis.Kappa({"w": np.array([[0.0, 1.0, 10.0]]), "v": np.array([[2.0, 3.0, 4.0]])})
    figure = kappa.plot(threshold=2.0)
    assert "1 of 3 are 0" in figure.axes[0].get_legend().get_texts()[0].get_text()
    made = ScoreVariance(np.ones(3), 0.1 * np.ones(3), np.ones(3), 2 * np.ones(3))
    assert made.plot().axes[0].get_xscale() == "log"
