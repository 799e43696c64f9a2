"""Run: one loop drives every method; progress, checkpoints, Ctrl-C, watches and stop rules observe it."""

from posteriax._internal.interruption import Interrupted as Interrupted
from posteriax.run.checkpoint import CheckpointError as CheckpointError
from posteriax.run.fitting import fit as fit
from posteriax.run.gradient_noise import GradientNoise as GradientNoise
from posteriax.run.loop import Observer as Observer
from posteriax.run.loop import Run as Run
from posteriax.run.program import Program as Program
from posteriax.run.stopping import StopRule as StopRule
from posteriax.run.until_level import UntilLevel as UntilLevel
from posteriax.run.until_mixed import UntilMixed as UntilMixed
from posteriax.run.watch import Watch as Watch
