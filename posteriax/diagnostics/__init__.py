"""Diagnostics of chains and of training: have chains mixed, are there enough draws, has training converged?"""

from posteriax.diagnostics.arviz_data import to_arviz as to_arviz
from posteriax.diagnostics.chain_agreement import ChainAgreement as ChainAgreement
from posteriax.diagnostics.chains import ess_bulk as ess_bulk
from posteriax.diagnostics.chains import ess_mean as ess_mean
from posteriax.diagnostics.chains import ess_tail as ess_tail
from posteriax.diagnostics.chains import mcse_mean as mcse_mean
from posteriax.diagnostics.chains import rhat as rhat
from posteriax.diagnostics.chains import rhat_between as rhat_between
from posteriax.diagnostics.diagnosis import Diagnosis as Diagnosis
from posteriax.diagnostics.diagnosis import diagnose as diagnose
from posteriax.diagnostics.reference import ReferenceCheck as ReferenceCheck
from posteriax.diagnostics.reference import check_reference as check_reference
from posteriax.diagnostics.sampler import SamplerSummary as SamplerSummary
from posteriax.diagnostics.sampler import ebfmi as ebfmi
from posteriax.diagnostics.training import TrainingSummary as TrainingSummary
