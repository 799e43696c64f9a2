"""Random arrays: leaves that behave as one draw of themselves, but multiply with data with less noise."""

from posteriax.families.arrays.estimators import ESTIMATORS, Estimator, EstimatorPlan
from posteriax.families.arrays.factor import FactorArray
from posteriax.families.arrays.gaussian import GaussianArray
from posteriax.families.arrays.random_array import Contraction, RandomArray

__all__ = [
    "ESTIMATORS",
    "Contraction",
    "Estimator",
    "EstimatorPlan",
    "FactorArray",
    "GaussianArray",
    "RandomArray",
]
