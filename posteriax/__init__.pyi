"""The public names, and where each is defined. `__init__.py` loads them from this list."""

from . import analysis as analysis
from . import data as data
from . import diagnostics as diagnostics
from . import distributed as distributed
from . import evaluation as evaluation
from . import families as families
from . import likelihoods as likelihoods
from . import methods as methods
from . import metrics as metrics
from . import networks as networks
from . import posterior as posterior
from . import priors as priors
from . import run as run
from . import zoo as zoo
from .evaluation import compare as compare
from .evaluation import evaluate as evaluate
from .families import Family as Family
from .likelihoods import Bernoulli as Bernoulli
from .likelihoods import Categorical as Categorical
from .likelihoods import Likelihood as Likelihood
from .likelihoods import Normal as Normal
from .likelihoods import Poisson as Poisson
from .likelihoods import StudentT as StudentT
from .methods import HMC as HMC
from .methods import MAP as MAP
from .methods import MCLMC as MCLMC
from .methods import NUTS as NUTS
from .methods import SGHMC as SGHMC
from .methods import SGLD as SGLD
from .methods import SWAG as SWAG
from .methods import VI as VI
from .methods import AdjustedMCLMC as AdjustedMCLMC
from .methods import Ensemble as Ensemble
from .methods import Kernel as Kernel
from .methods import Laplace as Laplace
from .methods import Method as Method
from .metrics import Score as Score
from .networks import network as network
from .networks import paths as paths
from .posterior import load as load
from .problem import Problem as Problem
from .run import Observer as Observer
from .run import fit as fit

__version__: str
