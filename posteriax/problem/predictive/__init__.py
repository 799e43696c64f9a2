"""Predictive: a posterior's predictions for new inputs, draw by draw, and everything derived from them.

    p(y | x, D) ~ 1/S sum_s p(y | x, w_s)

The outputs of every draw are kept, so that disagreement between draws can be told from noise; or, where that would need
too much memory, only sums over the draws.
"""

from posteriax.problem.predictive.classes import ClassPredictive as ClassPredictive
from posteriax.problem.predictive.classes import ClassSums as ClassSums
from posteriax.problem.predictive.classes import ReducedClassPredictive as ReducedClassPredictive
from posteriax.problem.predictive.counts import CountPredictive as CountPredictive
from posteriax.problem.predictive.normals import NormalPredictive as NormalPredictive
from posteriax.problem.predictive.numbers import NumberPredictive as NumberPredictive
from posteriax.problem.predictive.numbers import NumberSums as NumberSums
from posteriax.problem.predictive.numbers import ReducedNumberPredictive as ReducedNumberPredictive
from posteriax.problem.predictive.predictive import Predictive as Predictive
from posteriax.problem.predictive.predictive import log_mean as log_mean
