"""Evaluation: which posterior to trust. Scores, comparisons, significance, robustness, and the report."""

from posteriax.evaluation.compare import Baseline as Baseline
from posteriax.evaluation.compare import compare as compare
from posteriax.evaluation.comparison import Comparison as Comparison
from posteriax.evaluation.comparison import RunEnd as RunEnd
from posteriax.evaluation.comparison import Status as Status
from posteriax.evaluation.early_stopping import EarlyStopping as EarlyStopping
from posteriax.evaluation.evaluate import evaluate as evaluate
from posteriax.evaluation.partial_dependence import Feature as Feature
from posteriax.evaluation.partial_dependence import PartialDependence as PartialDependence
from posteriax.evaluation.partial_dependence import partial_dependence as partial_dependence
from posteriax.evaluation.recommend import Recommendation as Recommendation
from posteriax.evaluation.recommend import recommend as recommend
from posteriax.evaluation.report import figures as figures
from posteriax.evaluation.report.context import ReportContext as ReportContext
from posteriax.evaluation.report.context import TableRows as TableRows
from posteriax.evaluation.robustness.attack import FGSM as FGSM
from posteriax.evaluation.robustness.attack import PGD as PGD
from posteriax.evaluation.robustness.attack import Attacked as Attacked
from posteriax.evaluation.robustness.conformal import Conformal as Conformal
from posteriax.evaluation.robustness.conformal import conformal as conformal
from posteriax.evaluation.robustness.shift import Detection as Detection
from posteriax.evaluation.robustness.shift import Drift as Drift
from posteriax.evaluation.robustness.shift import drift as drift
from posteriax.evaluation.robustness.shift import ood_detection as ood_detection
from posteriax.evaluation.robustness.shift import ood_scores as ood_scores
from posteriax.metrics.score import format_estimate as format_estimate
