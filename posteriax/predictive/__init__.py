"""Predictive: what a posterior says about new inputs, draw by draw, and everything derived from that.

    p(y | x, D) ~ 1/S sum_s p(y | x, w_s)

The outputs of every draw are kept, so that what the draws agree on can be told from what they do not; or, where that
would be too much, only sums over the draws.
"""

from posteriax.predictive.classes import ClassPredictive as ClassPredictive
from posteriax.predictive.classes import ReducedClassPredictive as ReducedClassPredictive
from posteriax.predictive.classes import sum_classes as sum_classes
from posteriax.predictive.normals import NormalPredictive as NormalPredictive
from posteriax.predictive.normals import ReducedNormalPredictive as ReducedNormalPredictive
from posteriax.predictive.normals import sum_normals as sum_normals
from posteriax.predictive.protocol import Predictive as Predictive
