"""Predictive: what a posterior says about new inputs, draw by draw, and everything derived from that.

    p(y | x, D) ~ 1/S sum_s p(y | x, w_s)

The outputs of every draw are kept, so that what the draws agree on can be told from what they do not; or, where that
would be too much, only sums over the draws.
"""

from posteriax.posterior.predictive.classes import ClassPredictive as ClassPredictive
from posteriax.posterior.predictive.classes import ReducedClassPredictive as ReducedClassPredictive
from posteriax.posterior.predictive.classes import sum_classes as sum_classes
from posteriax.posterior.predictive.normals import NormalPredictive as NormalPredictive
from posteriax.posterior.predictive.normals import ReducedNormalPredictive as ReducedNormalPredictive
from posteriax.posterior.predictive.normals import sum_normals as sum_normals
from posteriax.posterior.predictive.protocol import Predictive as Predictive
from posteriax.posterior.predictive.protocol import log_mean as log_mean
