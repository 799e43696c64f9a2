"""Scores of predictions: functions of arrays, in nats and fractions. One file per kind."""

from posteriax.metrics.calibration import ece_equal_mass as ece_equal_mass
from posteriax.metrics.calibration import ece_equal_width as ece_equal_width
from posteriax.metrics.classification import accuracy as accuracy
from posteriax.metrics.classification import brier as brier
from posteriax.metrics.classification import nll as nll
from posteriax.metrics.fidelity import agreement as agreement
from posteriax.metrics.fidelity import total_variation as total_variation
from posteriax.metrics.fidelity import wasserstein as wasserstein
from posteriax.metrics.regression import rmse as rmse
