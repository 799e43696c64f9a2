"""Random arrays: leaves that behave as one draw of themselves, but multiply with data with less noise."""

from posteriax.families.arrays.estimators import ESTIMATORS as ESTIMATORS
from posteriax.families.arrays.estimators import Estimator as Estimator
from posteriax.families.arrays.estimators import EstimatorPlan as EstimatorPlan
from posteriax.families.arrays.estimators import plan_estimators as plan_estimators
from posteriax.families.arrays.factor import FactorArray as FactorArray
from posteriax.families.arrays.gaussian import GaussianArray as GaussianArray
from posteriax.families.arrays.kronecker import KroneckerArray as KroneckerArray
from posteriax.families.arrays.layer_product import LayerProduct as LayerProduct
from posteriax.families.arrays.layer_product import ProbeArray as ProbeArray
from posteriax.families.arrays.layer_product import apply_with_perturbations as apply_with_perturbations
from posteriax.families.arrays.random_array import KEYS_PER_LEAF as KEYS_PER_LEAF
from posteriax.families.arrays.random_array import Contraction as Contraction
from posteriax.families.arrays.random_array import RandomArray as RandomArray
from posteriax.networks.tracing.uses import Use as Use
from posteriax.networks.tracing.uses import find_uses as find_uses
from posteriax.networks.tracing.uses import spec_of_example as spec_of_example
