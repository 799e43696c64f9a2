"""Scores of predictions: functions of arrays, in nats and fractions, and the records that px.compare reads."""

from posteriax.metrics.calibration import (
    BinnedGaps as BinnedGaps,
)
from posteriax.metrics.calibration import (
    CalibrationBins as CalibrationBins,
)
from posteriax.metrics.calibration import (
    calibration_bins as calibration_bins,
)
from posteriax.metrics.calibration import (
    classwise_bins as classwise_bins,
)
from posteriax.metrics.calibration import (
    classwise_ece as classwise_ece,
)
from posteriax.metrics.calibration import (
    ece_equal_mass as ece_equal_mass,
)
from posteriax.metrics.calibration import (
    ece_equal_width as ece_equal_width,
)
from posteriax.metrics.classification import accuracy as accuracy
from posteriax.metrics.classification import brier as brier
from posteriax.metrics.corruption import (
    ALEXNET_IMAGENET_C as ALEXNET_IMAGENET_C,
)
from posteriax.metrics.corruption import (
    mean_corruption_error as mean_corruption_error,
)
from posteriax.metrics.diversity import (
    disagreement as disagreement,
)
from posteriax.metrics.diversity import (
    disagreement_over_error as disagreement_over_error,
)
from posteriax.metrics.diversity import (
    pairwise_kl as pairwise_kl,
)
from posteriax.metrics.fidelity import (
    agreement as agreement,
)
from posteriax.metrics.fidelity import (
    rhat_to_reference as rhat_to_reference,
)
from posteriax.metrics.fidelity import (
    total_variation as total_variation,
)
from posteriax.metrics.fidelity import (
    wasserstein as wasserstein,
)
from posteriax.metrics.intervals import (
    interval as interval,
)
from posteriax.metrics.intervals import (
    interval_coverage as interval_coverage,
)
from posteriax.metrics.intervals import (
    interval_width as interval_width,
)
from posteriax.metrics.log_score import NLL as NLL
from posteriax.metrics.log_score import nll as nll
from posteriax.metrics.log_score import normal_nll as normal_nll
from posteriax.metrics.ranking import auroc as auroc
from posteriax.metrics.ranking import average_precision as average_precision
from posteriax.metrics.ranking import fpr_at_tpr as fpr_at_tpr
from posteriax.metrics.registry import SCORES as SCORES
from posteriax.metrics.registry import choose as choose
from posteriax.metrics.registry import describe as describe
from posteriax.metrics.regression import crps as crps
from posteriax.metrics.regression import crps_normal as crps_normal
from posteriax.metrics.regression import rmse as rmse
from posteriax.metrics.score import Estimate as Estimate
from posteriax.metrics.score import Gaps as Gaps
from posteriax.metrics.score import Mean as Mean
from posteriax.metrics.score import Reduction as Reduction
from posteriax.metrics.score import RootMean as RootMean
from posteriax.metrics.score import Score as Score
from posteriax.metrics.selective import RiskCoverage as RiskCoverage
from posteriax.metrics.selective import aurc as aurc
from posteriax.metrics.selective import risk_coverage as risk_coverage
from posteriax.metrics.uncertainty import VarianceParts as VarianceParts
from posteriax.metrics.uncertainty import variance_parts as variance_parts

__all__ = [
    "ALEXNET_IMAGENET_C",
    "SCORES",
    "BinnedGaps",
    "CalibrationBins",
    "Estimate",
    "Gaps",
    "Mean",
    "Reduction",
    "RiskCoverage",
    "RootMean",
    "Score",
    "VarianceParts",
    "accuracy",
    "agreement",
    "aurc",
    "auroc",
    "average_precision",
    "brier",
    "calibration_bins",
    "classwise_bins",
    "classwise_ece",
    "crps",
    "crps_normal",
    "disagreement",
    "disagreement_over_error",
    "ece_equal_mass",
    "ece_equal_width",
    "fpr_at_tpr",
    "interval",
    "interval_coverage",
    "interval_width",
    "mean_corruption_error",
    "nll",
    "normal_nll",
    "pairwise_kl",
    "rhat_to_reference",
    "risk_coverage",
    "rmse",
    "total_variation",
    "variance_parts",
    "wasserstein",
]
