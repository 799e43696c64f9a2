"""Likelihoods: what a network's outputs say about the targets, one file each.

A likelihood defines the log probability of every example's target, in nats, checks once that targets and outputs match,
may have its own latent variables (a learned noise scale), and provides its predictive. To write one, derive from
`ClassLikelihood` or `NumberLikelihood`: see docs/likelihoods.md.

Predictive: a posterior's predictions for new inputs, draw by draw, and everything derived from them.

    p(y | x, D) ~ 1/S sum_s p(y | x, w_s)

The outputs of every draw are kept, so that disagreement between draws can be told from noise; or, where that would need
too much memory, only sums over the draws.
"""

from posteriax.likelihoods.classes import Bernoulli as Bernoulli
from posteriax.likelihoods.classes import Categorical as Categorical
from posteriax.likelihoods.classes import ClassLikelihood as ClassLikelihood
from posteriax.likelihoods.likelihood import Likelihood as Likelihood
from posteriax.likelihoods.likelihood import LikelihoodLatents as LikelihoodLatents
from posteriax.likelihoods.normal import Normal as Normal
from posteriax.likelihoods.numbers import InUnits as InUnits
from posteriax.likelihoods.numbers import NumberLikelihood as NumberLikelihood
from posteriax.likelihoods.numbers import TargetUnits as TargetUnits
from posteriax.likelihoods.poisson import Poisson as Poisson
from posteriax.likelihoods.student_t import StudentT as StudentT
