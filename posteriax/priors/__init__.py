"""Priors: the distribution of each leaf of a network before seeing data.

A prior returns a NumPyro distribution for the entries of a leaf. Give a problem one prior for all leaves, or a
dictionary by path pattern; any NumPyro distribution that broadcasts against the leaf works too.

>>> from posteriax import priors as p
>>> {"**": p.HeNormal(), "**/bias": p.Normal(scale=0.1)}
{'**': HeNormal(gain=2.0, bias_scale=1.0), '**/bias': Normal(scale=0.1, loc=0.0)}
"""

from typing import TYPE_CHECKING

from posteriax.networks.leaf import Leaf
from posteriax.priors.empirical_covariance import CorrelatedNormal as CorrelatedNormal
from posteriax.priors.empirical_covariance import EmpCov
from posteriax.priors.improper import ARD, LogUniform
from posteriax.priors.prior import GaussianCrossEntropy as GaussianCrossEntropy
from posteriax.priors.prior import Given as Given
from posteriax.priors.prior import Prior
from posteriax.priors.prior import Whitening as Whitening
from posteriax.priors.prior import as_prior as as_prior
from posteriax.priors.standard import HeNormal, Laplace, Logistic, Normal, NormalMixture, StudentT
from posteriax.priors.sweeps import family_sweep, scale_sweep

if TYPE_CHECKING:
    from posteriax.methods.curvature.tuning import tune_prior as tune
else:

    def __getattr__(name):
        """`p.tune` is an algorithm of a room above this one, which is imported when it is first asked for."""
        if name == "tune":
            from importlib import import_module

            return import_module("posteriax.methods.curvature.tuning").tune_prior
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


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
