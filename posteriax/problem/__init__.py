"""Problem: a network, a likelihood, a prior and a temperature, which together make one log joint.

A likelihood brings its predictive: what is predicted from draws of the weights.
"""

from posteriax.problem.batch_statistics import Statistics as Statistics
from posteriax.problem.fixed_leaves import fix_leaves as fix_leaves
from posteriax.problem.fixed_part import Features as Features
from posteriax.problem.fixed_part import FixedPart as FixedPart
from posteriax.problem.likelihoods import Bernoulli as Bernoulli
from posteriax.problem.likelihoods import Categorical as Categorical
from posteriax.problem.likelihoods import ClassLikelihood as ClassLikelihood
from posteriax.problem.likelihoods import InUnits as InUnits
from posteriax.problem.likelihoods import Likelihood as Likelihood
from posteriax.problem.likelihoods import LikelihoodLatents as LikelihoodLatents
from posteriax.problem.likelihoods import Normal as Normal
from posteriax.problem.likelihoods import NumberLikelihood as NumberLikelihood
from posteriax.problem.likelihoods import Poisson as Poisson
from posteriax.problem.likelihoods import StudentT as StudentT
from posteriax.problem.likelihoods import Units as Units
from posteriax.problem.networks import Network as Network
from posteriax.problem.networks import Params as Params
from posteriax.problem.networks import couples_examples as couples_examples
from posteriax.problem.networks import network as network
from posteriax.problem.networks import paths as paths
from posteriax.problem.predictive.classes import ClassPredictive as ClassPredictive
from posteriax.problem.predictive.counts import CountPredictive as CountPredictive
from posteriax.problem.predictive.joined import join_examples as join_examples
from posteriax.problem.predictive.normals import NormalPredictive as NormalPredictive
from posteriax.problem.predictive.numbers import NumberPredictive as NumberPredictive
from posteriax.problem.predictive.predictive import Predictive as Predictive
from posteriax.problem.predictive.predictive import log_mean as log_mean
from posteriax.problem.problem import Latents as Latents
from posteriax.problem.problem import Problem as Problem
