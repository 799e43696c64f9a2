"""Methods by name, with settings that suit the data, run until they have converged or their time is up."""

from posteriax.automatic.baselines import fit_baselines as fit_baselines
from posteriax.automatic.budget import Budget as Budget
from posteriax.automatic.budget import seconds_of as seconds_of
from posteriax.automatic.fitting import fit_until_converged as fit_until_converged
from posteriax.automatic.fitting import points_to_compare as points_to_compare
from posteriax.automatic.fitting import why_unusable as why_unusable
from posteriax.automatic.outcome import MethodFailed as MethodFailed
from posteriax.automatic.outcome import Outcome as Outcome
from posteriax.automatic.point_noise import underestimates_noise as underestimates_noise
from posteriax.automatic.recipes import DEFAULT_METHODS as DEFAULT_METHODS
from posteriax.automatic.recipes import OTHER_METHODS as OTHER_METHODS
from posteriax.automatic.recipes import RECIPES as RECIPES
from posteriax.automatic.recipes import REFERENCES as REFERENCES
from posteriax.automatic.recipes import Circumstances as Circumstances
from posteriax.automatic.recipes import RecipeRun as RecipeRun
from posteriax.automatic.recipes import recipe_of as recipe_of
from posteriax.automatic.reference import sample_reference as sample_reference
