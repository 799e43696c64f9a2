"""Likelihoods: what a network's outputs say about the targets, and the predictives they bring.

A likelihood defines the log probability of every example's target, in nats, checks once that targets and outputs match,
may have its own latent variables (a learned noise scale), and provides its predictive: a posterior's predictions for
new inputs, draw by draw, and everything derived from them. To write one, derive from `ClassLikelihood` or
`NumberLikelihood`: see docs/likelihoods.md.
"""

from posteriax.likelihoods.beta import Beta as Beta
from posteriax.likelihoods.classes import Bernoulli as Bernoulli
from posteriax.likelihoods.classes import Categorical as Categorical
from posteriax.likelihoods.classes import ClassLikelihood as ClassLikelihood
from posteriax.likelihoods.classes import ClassPredictive as ClassPredictive
from posteriax.likelihoods.distilled import DirichletClasses as DirichletClasses
from posteriax.likelihoods.distilled import NormalParts as NormalParts
from posteriax.likelihoods.joined import join_examples as join_examples
from posteriax.likelihoods.likelihood import Likelihood as Likelihood
from posteriax.likelihoods.likelihood import LikelihoodLatents as LikelihoodLatents
from posteriax.likelihoods.negative_binomial import NegativeBinomial as NegativeBinomial
from posteriax.likelihoods.normal import Normal as Normal
from posteriax.likelihoods.normal import NormalPredictive as NormalPredictive
from posteriax.likelihoods.number_predictive import CountPredictive as CountPredictive
from posteriax.likelihoods.number_predictive import NumberPredictive as NumberPredictive
from posteriax.likelihoods.numbers import InUnits as InUnits
from posteriax.likelihoods.numbers import NumberLikelihood as NumberLikelihood
from posteriax.likelihoods.numbers import TargetUnits as TargetUnits
from posteriax.likelihoods.ordinal import Ordinal as Ordinal
from posteriax.likelihoods.poisson import Poisson as Poisson
from posteriax.likelihoods.predictive import Predictive as Predictive
from posteriax.likelihoods.student_t import StudentT as StudentT
from posteriax.likelihoods.survival import SurvivalPredictive as SurvivalPredictive
from posteriax.likelihoods.survival import SurvivalTime as SurvivalTime
from posteriax.likelihoods.survival import signed_times as signed_times
from posteriax.likelihoods.zero_inflated import ZeroInflatedPoisson as ZeroInflatedPoisson
