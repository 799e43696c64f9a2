"""Figures are drawn from real posteriors; what they show is checked on their data, not by eye."""

import equinox as eqx
import jax
import matplotlib
import numpy as np
import pytest

import posteriax as px
from posteriax._internal.plot_style import colours
from posteriax.evaluation.report import figures
from posteriax.posterior.trace import Trace

matplotlib.use("Agg")


@pytest.fixture(scope="module")
def posteriors(moons):
    problem = px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical())
    return {
        "MAP": px.fit(problem, moons[0], px.MAP(), steps=50, key=0),
        "HMC": px.fit(problem, moons[0], px.HMC(warmup=5, start="network"), draws=5, chains=2, key=0),
    }


def test_the_plane_shows_the_entropy_of_each_posterior(posteriors, moons, tmp_path):
    figure = figures.uncertainty_plane(posteriors, moons[0], resolution=12)
    panels = [axis for axis in figure.axes if axis.get_title()]
    assert [axis.get_title() for axis in panels] == ["MAP", "HMC"]
    shown = panels[0].collections[0].get_array()
    low, high = panels[0].get_xlim()
    assert low < moons[0][0][:, 0].min()
    assert high > moons[0][0][:, 0].max()
    assert shown.shape == (12, 12)
    assert 0 <= shown.min() <= shown.max() <= np.log(2) + 1e-6
    figure.savefig(tmp_path / "plane.png")
    assert (tmp_path / "plane.png").stat().st_size > 5000


def test_bands_are_the_intervals_of_the_predictions():
    train, test = px.data.curve_with_gap(train=20, test=10)
    net = (lambda w, x: x @ w, np.ones((1, 1), np.float32))
    posterior = px.fit(px.Problem(net, px.Normal(0.5)), train, px.MAP(), steps=1, key=0)
    figure = figures.interval_bands({"MAP": posterior}, train, test, resolution=9)
    (axis,) = figure.axes
    band = axis.collections[0].get_paths()[0].vertices
    widths = [np.ptp(band[np.isclose(band[:, 0], value), 1]) for value in axis.lines[0].get_xdata()]
    np.testing.assert_allclose(widths, 2 * 1.644854 * 0.5, rtol=1e-5)  # noise only, everywhere


def test_reliability_points_are_the_bins_of_the_ece(posteriors, moons):
    x, y = moons[1]
    predictives = {name: posterior.predict(x) for name, posterior in posteriors.items()}
    figure = figures.reliability_diagram(predictives, y)
    for axis, predictive in zip(figure.axes, predictives.values(), strict=True):
        confidence, right = axis.collections[0].get_offsets().T
        bins = np.clip(np.ceil(predictive.probs.max(axis=1) * 15).astype(int) - 1, 0, 14)
        sizes = np.array([np.sum(bins == b) for b in np.unique(bins)])
        ece = np.sum(sizes / len(y) * np.abs(confidence - right))
        assert f"ECE {ece:.3f}" in axis.get_title()


def test_traces_have_a_panel_for_each_objective(posteriors):
    figure = figures.traces({name: posterior.trace for name, posterior in posteriors.items()})
    labels = [(axis.get_title(), axis.get_ylabel(), len(axis.lines)) for axis in figure.axes]
    assert labels == [
        ("MAP", "log joint (nats)", 1),
        ("HMC", "log joint (nats)", 2),
        ("HMC", "acceptance", 2),
    ]


def test_no_chain_leaves_its_panel():
    rising = np.arange(100.0)
    figure = figures.traces({"HMC": Trace({"log_joint": np.stack([rising - 200, rising])})})
    (axis,) = figure.axes
    low, high = axis.get_ylim()
    for line in axis.lines:
        late = line.get_ydata()[5:]
        assert low <= late.min() and late.max() < high


def test_a_method_keeps_its_colour():
    assert colours(["a", "b"])["b"] == colours(["a", "b", "c"])["b"]
