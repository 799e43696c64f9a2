"""Inference methods, one file each: settings, bind, init, step, finish, state. The contract is in method.py."""

from posteriax.methods.curvature.tuning import TunedProblem as TunedProblem
from posteriax.methods.curvature.tuning import Tuning as Tuning
from posteriax.methods.curvature.tuning import tune_prior as tune_prior
from posteriax.methods.ensemble import Ensemble as Ensemble
from posteriax.methods.ensemble import Members as Members
from posteriax.methods.ensemble import same_for_all_members as same_for_all_members
from posteriax.methods.hmc import HMC as HMC
from posteriax.methods.laplace import Laplace as Laplace
from posteriax.methods.map import MAP as MAP
from posteriax.methods.mclmc import MCLMC as MCLMC
from posteriax.methods.method import Kernel as Kernel
from posteriax.methods.method import Method as Method
from posteriax.methods.method import OptimizingKernel as OptimizingKernel
from posteriax.methods.method import RunLength as RunLength
from posteriax.methods.method import Task as Task
from posteriax.methods.nuts import NUTS as NUTS
from posteriax.methods.optimizers import natural_gradient as natural_gradient
from posteriax.methods.sampling.units import stretch as stretch
from posteriax.methods.sgmcmc import SGHMC as SGHMC
from posteriax.methods.sgmcmc import SGLD as SGLD
from posteriax.methods.swag import SWAG as SWAG
from posteriax.methods.vi import VI as VI
from posteriax.methods.vi import LinearKL as LinearKL
from posteriax.methods.vi import StaircaseKL as StaircaseKL
