"""Figures for papers show the numbers of the comparison, in the colours of the report."""

from dataclasses import replace

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from made_up import classes, numbers, tiny

from posteriax._internal.plot_style import PALETTE
from posteriax.diagnostics.reference import ReferenceCheck

pytestmark = pytest.mark.quick

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def test_reliability_points_are_those_of_the_view():
    comparison = classes()
    figure = comparison.plot("reliability")
    chart = comparison.charts["test"]["SWAG"]
    panel = next(axis for axis in figure.axes if axis.get_title().startswith("SWAG"))
    np.testing.assert_allclose(panel.collections[0].get_offsets(), np.stack([chart.confidence, chart.right], axis=1))
    assert panel.lines[1].get_color() == PALETTE[3]
    assert len(figure.axes) == 6


def test_distances_are_ranked_and_leave_the_reference_out():
    figure = classes().plot("distance")
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == [
        "MAP",
        "mean-field",
        "k-tied",
        "SWAG",
        "deep ensemble",
    ]
    assert [line.get_xdata()[0] for line in figure.axes[0].lines if line.get_marker() == "o"] == [0.13]


def test_severity_has_accuracy_and_nll_from_clean_to_worst():
    figure = classes().plot("severity")
    assert [axis.get_ylabel() for axis in figure.axes] == ["accuracy ↑", "nll ↓"]
    np.testing.assert_array_equal(figure.axes[0].lines[0].get_xdata(), range(6))


def test_entropies_have_a_panel_for_each_posterior_with_inside_and_outside():
    figure = classes().plot("entropy")
    assert [axis.get_title() for axis in figure.axes] == list(classes().rows)
    inside, outside = figure.axes[0].patches
    assert (inside.get_label(), outside.get_label()) == ("test", "out: digits")
    assert inside.get_data().values.sum() == pytest.approx(1)


def test_coverage_curves():
    figure = numbers().plot("coverage")
    chart = numbers().charts["test"]["k-tied"]
    np.testing.assert_allclose(figure.axes[0].lines[3].get_ydata(), chart.coverage)


def test_errors_are_drawn_against_what_was_expected():
    deciles = numbers().charts["test"]["k-tied"].deciles
    axis = numbers().plot("error").axes[0]
    np.testing.assert_allclose(axis.lines[3].get_xydata(), np.stack([deciles.expected, deciles.observed], axis=1))
    assert axis.get_xlim() == axis.get_ylim()


def test_an_unknown_kind_is_told_which_there_are():
    with pytest.raises(
        ValueError, match="'reliability', 'coverage', 'severity', 'entropy', 'distance', 'error', got 'pie'"
    ):
        classes().plot("pie")


def test_a_kind_without_data_is_told_what_it_needs_and_what_there_is():
    with pytest.raises(ValueError, match=r"needs a reference\. There is data for 'coverage', 'entropy', 'error'"):
        numbers().plot("distance")
    with pytest.raises(ValueError, match="no data for any"):
        tiny().plot("severity")


def test_distances_to_a_reference_that_has_not_converged_are_grey_and_say_so():
    comparison = replace(classes(), reference_check=ReferenceCheck("HMC", 1.62))
    axis = comparison.plot("distance").axes[0]
    assert axis.get_xlabel() == "total variation to HMC,\nwhich has not converged: R-hat 1.62"
    assert {line.get_color() for line in axis.lines} == {"0.7"}
