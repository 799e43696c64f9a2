"""Diagnostics of chains and of training: have chains mixed, are there enough draws, has training converged?"""

from posteriax.diagnostics.agreement import Agreement
from posteriax.diagnostics.agreement import compare_chains as compare_chains
from posteriax.diagnostics.agreement import groups_of_chains as groups_of_chains
from posteriax.diagnostics.arviz_data import to_arviz as to_arviz
from posteriax.diagnostics.convergence import rhat, rhat_between
from posteriax.diagnostics.diagnosis import Diagnosis, diagnose
from posteriax.diagnostics.effective_draws import ess_bulk, ess_mean, ess_tail, mcse_mean
from posteriax.diagnostics.reference import ReferenceCheck as ReferenceCheck
from posteriax.diagnostics.reference import check_reference as check_reference
from posteriax.diagnostics.sampler import SamplerSummary, ebfmi
from posteriax.diagnostics.training import TrainingSummary
from posteriax.diagnostics.until_mixed import UntilMixed as UntilMixed
from posteriax.diagnostics.verdict import diverges as diverges
from posteriax.diagnostics.weights_and_predictions import sample_of as sample_of

__all__ = [
    "Agreement",
    "Diagnosis",
    "SamplerSummary",
    "TrainingSummary",
    "diagnose",
    "ebfmi",
    "ess_bulk",
    "ess_mean",
    "ess_tail",
    "mcse_mean",
    "rhat",
    "rhat_between",
]
