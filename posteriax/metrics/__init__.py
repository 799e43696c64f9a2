"""Scores of predictions: functions of arrays, in nats and fractions, and the records that px.compare reads."""

from posteriax.metrics.calibration import (
    BinnedGaps,
    CalibrationBins,
    calibration_bins,
    classwise_bins,
    classwise_ece,
    ece_equal_mass,
    ece_equal_width,
)
from posteriax.metrics.classification import accuracy, brier
from posteriax.metrics.concordance import ShareOfPairs, concordance
from posteriax.metrics.corruption import ALEXNET_IMAGENET_C, mean_corruption_error
from posteriax.metrics.diversity import (
    VarianceParts,
    disagreement,
    disagreement_over_error,
    pairwise_kl,
    variance_parts,
)
from posteriax.metrics.fidelity import agreement, rhat_to_reference, total_variation, wasserstein
from posteriax.metrics.intervals import interval, interval_coverage, interval_width
from posteriax.metrics.log_score import NLL as NLL
from posteriax.metrics.log_score import nll, normal_nll
from posteriax.metrics.ranking import RiskCoverage, aurc, auroc, average_precision, fpr_at_tpr, risk_coverage
from posteriax.metrics.registry import SCORES
from posteriax.metrics.registry import choose as choose
from posteriax.metrics.registry import describe as describe
from posteriax.metrics.regression import crps, crps_normal, rmse
from posteriax.metrics.score import Estimate, Gaps, Mean, Reduction, RootMean, Score
from posteriax.metrics.score import format_estimate as format_estimate

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
    "ShareOfPairs",
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
    "concordance",
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
