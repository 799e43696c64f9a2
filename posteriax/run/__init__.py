"""Run: one loop drives every method; progress, checkpoints, Ctrl-C, watches and stopping rules observe it."""

from posteriax.run.checkpoint import CheckpointError as CheckpointError
from posteriax.run.fitting import fit as fit
from posteriax.run.gradient_noise import FIELD as FIELD
from posteriax.run.gradient_noise import GradientNoise as GradientNoise
from posteriax.run.gradient_noise import record_gradients as record_gradients
from posteriax.run.layout import members_mesh as members_mesh
from posteriax.run.program import Program as Program
from posteriax.run.program import Streams as Streams
from posteriax.run.program import over_members as over_members
from posteriax.run.sampling_rule import DrawsVerdict as DrawsVerdict
from posteriax.run.sampling_rule import SamplingRule as SamplingRule
from posteriax.run.stopping import StoppingRule as StoppingRule
from posteriax.run.until_level import UntilLevel as UntilLevel
from posteriax.run.watch import Watch as Watch
