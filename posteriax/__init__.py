"""Bayesian neural networks for JAX: one network, every posterior, and a measure of how far each is from the truth."""

import os as _os
import sys as _sys

if _os.path.basename(_sys.argv[0]) in ("posteriax", "-m"):  # -m while Python looks for the package: python -m posteriax
    # The command line caches compiled programs, and on some machines XLA logs two long lines about machine features for
    # each one that it loads. XLA reads the level when JAX is imported, which is below: only here it can still be set.
    _os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from posteriax import analysis as analysis
from posteriax import data as data
from posteriax import diagnostics as diagnostics
from posteriax import distributed as distributed
from posteriax import families as families
from posteriax import metrics as metrics
from posteriax import priors as priors
from posteriax import zoo as zoo
from posteriax.__about__ import __version__ as __version__
from posteriax._internal import compiler as _compiler
from posteriax._internal.interruption import Interrupted as Interrupted
from posteriax.comparison import FGSM as FGSM
from posteriax.comparison import PGD as PGD
from posteriax.comparison import Attacked as Attacked
from posteriax.comparison import Baseline as Baseline
from posteriax.comparison import Comparison as Comparison
from posteriax.comparison import Conformal as Conformal
from posteriax.comparison import Detection as Detection
from posteriax.comparison import Drift as Drift
from posteriax.comparison import EarlyStopping as EarlyStopping
from posteriax.comparison import FastSign as FastSign
from posteriax.comparison import Feature as Feature
from posteriax.comparison import PartialDependence as PartialDependence
from posteriax.comparison import Recommendation as Recommendation
from posteriax.comparison import ReportContext as ReportContext
from posteriax.comparison import RunEnd as RunEnd
from posteriax.comparison import TableRows as TableRows
from posteriax.comparison import compare as compare
from posteriax.comparison import conformal as conformal
from posteriax.comparison import drift as drift
from posteriax.comparison import evaluate as evaluate
from posteriax.comparison import ood_detection as ood_detection
from posteriax.comparison import ood_scores as ood_scores
from posteriax.comparison import partial_dependence as partial_dependence
from posteriax.comparison import recommend as recommend
from posteriax.data import corrupt as corrupt
from posteriax.data import corrupted as corrupted
from posteriax.diagnostics import UntilMixed as UntilMixed
from posteriax.distributed import mesh as mesh
from posteriax.distributed import use_mesh as use_mesh
from posteriax.methods import HMC as HMC
from posteriax.methods import MAP as MAP
from posteriax.methods import MCLMC as MCLMC
from posteriax.methods import NUTS as NUTS
from posteriax.methods import SGHMC as SGHMC
from posteriax.methods import SGLD as SGLD
from posteriax.methods import SWAG as SWAG
from posteriax.methods import VI as VI
from posteriax.methods import Ensemble as Ensemble
from posteriax.methods import Laplace as Laplace
from posteriax.methods import LinearKL as LinearKL
from posteriax.methods import StaircaseKL as StaircaseKL
from posteriax.methods import natural_gradient as natural_gradient
from posteriax.posterior import Posterior as Posterior
from posteriax.posterior import PosteriorFileError as PosteriorFileError
from posteriax.posterior import Predictive as Predictive
from posteriax.posterior import Trace as Trace
from posteriax.posterior import load as load
from posteriax.posterior import with_batch_statistics as with_batch_statistics
from posteriax.problem import Bernoulli as Bernoulli
from posteriax.problem import Categorical as Categorical
from posteriax.problem import ClassLikelihood as ClassLikelihood
from posteriax.problem import ClassPredictive as ClassPredictive
from posteriax.problem import CountPredictive as CountPredictive
from posteriax.problem import Likelihood as Likelihood
from posteriax.problem import Network as Network
from posteriax.problem import Normal as Normal
from posteriax.problem import NormalPredictive as NormalPredictive
from posteriax.problem import NumberLikelihood as NumberLikelihood
from posteriax.problem import NumberPredictive as NumberPredictive
from posteriax.problem import Poisson as Poisson
from posteriax.problem import Problem as Problem
from posteriax.problem import StudentT as StudentT
from posteriax.problem import join_examples as join_examples
from posteriax.problem import network as network
from posteriax.problem import paths as paths
from posteriax.run import CheckpointError as CheckpointError
from posteriax.run import GradientNoise as GradientNoise
from posteriax.run import UntilLevel as UntilLevel
from posteriax.run import Watch as Watch
from posteriax.run import fit as fit

_compiler.guard()  # importing has started no backend, so that it can still be told
