"""Likelihoods: what a network's outputs say about the targets, one file each.

A likelihood defines the log probability of every example's target, in nats, checks once that targets and outputs match,
may have its own latent variables (a learned noise scale), and provides its predictive. To write one, derive from
`ClassLikelihood` or `NumberLikelihood`: see docs/likelihoods.md.
"""

from posteriax.problem.likelihoods.bernoulli import Bernoulli as Bernoulli
from posteriax.problem.likelihoods.categorical import Categorical as Categorical
from posteriax.problem.likelihoods.classes import ClassLikelihood as ClassLikelihood
from posteriax.problem.likelihoods.in_units import InUnits as InUnits
from posteriax.problem.likelihoods.likelihood import Likelihood as Likelihood
from posteriax.problem.likelihoods.likelihood import LikelihoodLatents as LikelihoodLatents
from posteriax.problem.likelihoods.normal import Normal as Normal
from posteriax.problem.likelihoods.numbers import NumberLikelihood as NumberLikelihood
from posteriax.problem.likelihoods.poisson import Poisson as Poisson
from posteriax.problem.likelihoods.student_t import StudentT as StudentT
from posteriax.problem.likelihoods.target_units import Units as Units
