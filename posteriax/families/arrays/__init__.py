"""Random arrays: leaves that behave as one draw of themselves, but multiply with data with less noise."""

from posteriax.families.arrays import dispatch as dispatch  # registers the rules
from posteriax.families.arrays.estimators import ESTIMATORS as ESTIMATORS
from posteriax.families.arrays.estimators import Estimator as Estimator
from posteriax.families.arrays.estimators import Plan as Plan
from posteriax.families.arrays.estimators import plan_estimators as plan_estimators
from posteriax.families.arrays.factor import FactorArray as FactorArray
from posteriax.families.arrays.gaussian import GaussianArray as GaussianArray
from posteriax.families.arrays.kronecker import KroneckerArray as KroneckerArray
from posteriax.families.arrays.meeting import Meeting as Meeting
from posteriax.families.arrays.meeting import apply_with_pushes as apply_with_pushes
from posteriax.families.arrays.probe import ProbeArray as ProbeArray
from posteriax.families.arrays.random_array import KEYS_PER_LEAF as KEYS_PER_LEAF
from posteriax.families.arrays.random_array import Contraction as Contraction
from posteriax.families.arrays.random_array import RandomArray as RandomArray
from posteriax.families.arrays.uses import Use as Use
from posteriax.families.arrays.uses import find_uses as find_uses
from posteriax.families.arrays.uses import spec_of_example as spec_of_example
