"""Inference methods, one file each: settings, bind, init, step, finish, state. The contract is in method.py.

What samplers share is in sampling/, what needs the curvature of the log joint in curvature/.
"""

from posteriax.methods.adjusted_mclmc import AdjustedMCLMC
from posteriax.methods.curvature.tuning import TunedProblem, Tuning, tune_prior
from posteriax.methods.ensemble import Ensemble
from posteriax.methods.hmc import HMC
from posteriax.methods.laplace import Laplace
from posteriax.methods.map import MAP
from posteriax.methods.mclmc import MCLMC
from posteriax.methods.method import Kernel, Method, OptimizingKernel, RunLength, Task
from posteriax.methods.nuts import NUTS
from posteriax.methods.optimizers import natural_gradient
from posteriax.methods.sgmcmc import SGHMC, SGLD
from posteriax.methods.swag import SWAG
from posteriax.methods.vi import VI, LinearKL, StaircaseKL

__all__ = [
    "HMC",
    "MAP",
    "MCLMC",
    "NUTS",
    "SGHMC",
    "SGLD",
    "SWAG",
    "VI",
    "AdjustedMCLMC",
    "Ensemble",
    "Kernel",
    "Laplace",
    "LinearKL",
    "Method",
    "OptimizingKernel",
    "RunLength",
    "StaircaseKL",
    "Task",
    "TunedProblem",
    "Tuning",
    "natural_gradient",
    "tune_prior",
]
