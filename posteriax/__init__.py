"""Bayesian neural networks for JAX: one network, every posterior, and a measure of how far each is from the truth."""

from posteriax import data as data
from posteriax import families as families
from posteriax import metrics as metrics
from posteriax import priors as priors
from posteriax.compare import Comparison as Comparison
from posteriax.compare import compare as compare
from posteriax.evaluate import evaluate as evaluate
from posteriax.likelihoods import Bernoulli as Bernoulli
from posteriax.likelihoods import Categorical as Categorical
from posteriax.likelihoods import Normal as Normal
from posteriax.methods import HMC as HMC
from posteriax.methods import MAP as MAP
from posteriax.methods import VI as VI
from posteriax.methods import Ensemble as Ensemble
from posteriax.network import Network as Network
from posteriax.network import network as network
from posteriax.network import paths as paths
from posteriax.posterior import Posterior as Posterior
from posteriax.posterior_file import PosteriorFileError as PosteriorFileError
from posteriax.posterior_file import load as load
from posteriax.predictive import ClassPredictive as ClassPredictive
from posteriax.predictive import NormalPredictive as NormalPredictive
from posteriax.predictive import Predictive as Predictive
from posteriax.problem import Problem as Problem
from posteriax.run import fit as fit
from posteriax.trace import Trace as Trace
