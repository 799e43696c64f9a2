"""Random arrays: a leaf that behaves as one draw of itself, and contracts with less noise than a plain draw."""

from posteriax.arrays import dispatch as dispatch  # registers the rules
from posteriax.arrays.estimators import Plan as Plan
from posteriax.arrays.estimators import plan_estimators as plan_estimators
from posteriax.arrays.factor import FactorArray as FactorArray
from posteriax.arrays.gaussian import GaussianArray as GaussianArray
from posteriax.arrays.kronecker import KroneckerArray as KroneckerArray
from posteriax.arrays.uses import Use as Use
from posteriax.arrays.uses import find_uses as find_uses
