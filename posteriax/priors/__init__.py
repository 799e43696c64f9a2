"""Priors: the distribution of each leaf of a network before seeing data.

A prior returns a NumPyro distribution for the entries of a leaf. Give a problem one prior for all leaves, or a
dictionary by path pattern; any NumPyro distribution that broadcasts against the leaf works too.

>>> from posteriax import priors as p
>>> {"**": p.HeNormal(), "**/bias": p.Normal(scale=0.1)}
{'**': HeNormal(gain=2.0, bias_scale=1.0), '**/bias': Normal(scale=0.1, loc=0.0)}
"""

from posteriax.priors.correlated_normal import CorrelatedNormal as CorrelatedNormal
from posteriax.priors.empirical_covariance import EmpCov
from posteriax.priors.improper import ARD, LogUniform
from posteriax.priors.improper import TINY as TINY
from posteriax.priors.improper import ARDPrior as ARDPrior
from posteriax.priors.improper import LogUniformPrior as LogUniformPrior
from posteriax.priors.improper import ard_kl as ard_kl
from posteriax.priors.improper import has_density as has_density
from posteriax.priors.improper import log_uniform_kl as log_uniform_kl
from posteriax.priors.improper import typical_scale as typical_scale
from posteriax.priors.leaf import Axes as Axes
from posteriax.priors.leaf import Leaf
from posteriax.priors.prior import GaussianCrossEntropy as GaussianCrossEntropy
from posteriax.priors.prior import Given as Given
from posteriax.priors.prior import Prior
from posteriax.priors.prior import Whitening as Whitening
from posteriax.priors.prior import as_prior as as_prior
from posteriax.priors.standard import HeNormal, Laplace, Logistic, Normal, NormalMixture, StudentT
from posteriax.priors.sweeps import family_sweep, scale_sweep
from posteriax.priors.tuning import tune

__all__ = [
    "ARD",
    "EmpCov",
    "HeNormal",
    "Laplace",
    "Leaf",
    "LogUniform",
    "Logistic",
    "Normal",
    "NormalMixture",
    "Prior",
    "StudentT",
    "family_sweep",
    "scale_sweep",
    "tune",
]
