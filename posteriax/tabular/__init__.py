"""Tables without code: preparation, estimators, methods by name that run until they have converged, and baselines.

What the command line's `compare` and `predict` do is compare_file.py and predict_file.py.
"""

from posteriax.tabular.baselines import fit_baselines as fit_baselines
from posteriax.tabular.recipes import DEFAULT_METHODS as DEFAULT_METHODS
from posteriax.tabular.recipes import OTHER_METHODS as OTHER_METHODS
from posteriax.tabular.recipes import RECIPES as RECIPES
from posteriax.tabular.recipes import REFERENCES as REFERENCES
from posteriax.tabular.recipes import Circumstances as Circumstances
from posteriax.tabular.recipes import RecipeRun as RecipeRun
from posteriax.tabular.recipes import recipe_of as recipe_of
from posteriax.tabular.reference import sample_reference as sample_reference
from posteriax.tabular.until_converged import Budget as Budget
from posteriax.tabular.until_converged import MethodFailed as MethodFailed
from posteriax.tabular.until_converged import fit_until_converged as fit_until_converged
from posteriax.tabular.until_converged import points_to_compare as points_to_compare
from posteriax.tabular.until_converged import seconds_of as seconds_of
from posteriax.tabular.until_converged import why_unusable as why_unusable
