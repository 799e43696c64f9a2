"""Posterior: what a method inferred; how to draw weights from it, predict with it, save and load it."""

from posteriax.posterior.batch_statistics import with_batch_statistics as with_batch_statistics
from posteriax.posterior.file import PosteriorFileError as PosteriorFileError
from posteriax.posterior.file import load as load
from posteriax.posterior.posterior import DrawsPosterior as DrawsPosterior
from posteriax.posterior.posterior import Posterior as Posterior
from posteriax.posterior.posterior import VariationalPosterior as VariationalPosterior
from posteriax.posterior.prediction import BYTE_BUDGET as BYTE_BUDGET
from posteriax.posterior.prediction import EXAMPLES_AT_ONCE as EXAMPLES_AT_ONCE
from posteriax.posterior.prediction import PredictionPlan as PredictionPlan
from posteriax.posterior.prediction import outputs_of as outputs_of
from posteriax.posterior.predictive import ClassPredictive as ClassPredictive
from posteriax.posterior.predictive import NormalPredictive as NormalPredictive
from posteriax.posterior.predictive import Predictive as Predictive
from posteriax.posterior.predictive import log_mean as log_mean
from posteriax.posterior.stored_draws import blocks_of_draws as blocks_of_draws
from posteriax.posterior.stored_draws import join_draws as join_draws
from posteriax.posterior.trace import Trace as Trace
