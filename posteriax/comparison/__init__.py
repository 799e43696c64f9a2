"""Comparison: which posterior to trust. Scores, significance, shift, attacks, and the report."""

from posteriax.comparison.attack import FGSM as FGSM
from posteriax.comparison.attack import PGD as PGD
from posteriax.comparison.attack import Attacked as Attacked
from posteriax.comparison.attack import FastSign as FastSign
from posteriax.comparison.comparing import compare as compare
from posteriax.comparison.comparison import Comparison as Comparison
from posteriax.comparison.comparison import format_estimate as format_estimate
from posteriax.comparison.conformal_prediction import Conformal as Conformal
from posteriax.comparison.conformal_prediction import conformal as conformal
from posteriax.comparison.early_stopping import EarlyStopping as EarlyStopping
from posteriax.comparison.evaluation import evaluate as evaluate
from posteriax.comparison.report import figures as figures
from posteriax.comparison.shift import Detection as Detection
from posteriax.comparison.shift import Drift as Drift
from posteriax.comparison.shift import drift as drift
from posteriax.comparison.shift import ood_detection as ood_detection
from posteriax.comparison.shift import ood_scores as ood_scores
