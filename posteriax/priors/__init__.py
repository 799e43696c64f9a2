"""Priors: the distribution of each leaf of a network before seeing data.

A prior returns a NumPyro distribution for the entries of a leaf. Give a problem one prior for all leaves, or a
dictionary by path pattern; any NumPyro distribution that broadcasts against the leaf works too.

>>> from posteriax import priors as p
>>> {"**": p.HeNormal(), "**/bias": p.Normal(scale=0.1)}
{'**': HeNormal(gain=2.0, bias_scale=1.0), '**/bias': Normal(scale=0.1, loc=0.0)}
"""

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from posteriax.networks.leaf import Axes as Axes
from posteriax.networks.leaf import Leaf as Leaf
from posteriax.priors.empirical_covariance import CorrelatedNormal as CorrelatedNormal
from posteriax.priors.empirical_covariance import EmpCov as EmpCov
from posteriax.priors.improper import ARD as ARD
from posteriax.priors.improper import TINY as TINY
from posteriax.priors.improper import ARDPrior as ARDPrior
from posteriax.priors.improper import LogUniform as LogUniform
from posteriax.priors.improper import LogUniformPrior as LogUniformPrior
from posteriax.priors.improper import ard_kl as ard_kl
from posteriax.priors.improper import has_density as has_density
from posteriax.priors.improper import log_uniform_kl as log_uniform_kl
from posteriax.priors.improper import typical_scale as typical_scale
from posteriax.priors.prior import GaussianCrossEntropy as GaussianCrossEntropy
from posteriax.priors.prior import Given as Given
from posteriax.priors.prior import Prior as Prior
from posteriax.priors.prior import Whitening as Whitening
from posteriax.priors.prior import as_prior as as_prior
from posteriax.priors.standard import (
    HeNormal as HeNormal,
)
from posteriax.priors.standard import (
    Laplace as Laplace,
)
from posteriax.priors.standard import (
    Logistic as Logistic,
)
from posteriax.priors.standard import (
    Normal as Normal,
)
from posteriax.priors.standard import (
    NormalMixture as NormalMixture,
)
from posteriax.priors.standard import (
    StudentT as StudentT,
)
from posteriax.priors.sweeps import family_sweep as family_sweep
from posteriax.priors.sweeps import scale_sweep as scale_sweep

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

# `p.tune` is where one looks for it, but it is an algorithm of a room above this one: found when it is first used
tune: Callable[..., Any]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name == "tune":
            return importlib.import_module("posteriax.methods.curvature.tuning").tune_prior
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
