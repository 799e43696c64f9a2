"""Posterior: what a method inferred; how to draw weights from it, predict with it, save and load it."""

from posteriax.posterior.batch_statistics import with_batch_statistics as with_batch_statistics
from posteriax.posterior.distilled import DistilledPosterior as DistilledPosterior
from posteriax.posterior.draws import DrawsPosterior as DrawsPosterior
from posteriax.posterior.export.exported import ExportedPosterior as ExportedPosterior
from posteriax.posterior.export.exporting import Export as Export
from posteriax.posterior.file import PosteriorFileError as PosteriorFileError
from posteriax.posterior.file import load as load
from posteriax.posterior.linearisation import LinearisedPosterior as LinearisedPosterior
from posteriax.posterior.linearisation import linearised as linearised
from posteriax.posterior.posterior import Posterior as Posterior
from posteriax.posterior.prediction import plan_program as plan_program
from posteriax.posterior.trace import Trace as Trace
from posteriax.posterior.variational import VariationalPosterior as VariationalPosterior
