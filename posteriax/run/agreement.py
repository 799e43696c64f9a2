"""What processes that make a run together must agree on after every chunk of steps.

Each measures its own time, and a signal may reach one of them only. All go on with the times of process 0, which decide
how long the next chunk is and when a checkpoint is due, and all stop if one of them was asked to.
"""

from posteriax import distributed
from posteriax._internal.interruption import Stop
from posteriax.run.loop import Run


class Agreement:
    """Settles rate, time and requests to stop after every chunk.

    Args:
        stop: whether this process was asked to stop.

    Attributes:
        stop: whether the run should stop; the same in all processes.
    """

    def __init__(self, stop: Stop):
        self._own = stop
        self.stop = Stop() if distributed.several() else stop

    def __call__(self, run: Run) -> None:
        if not distributed.several():
            return
        said = distributed.exchange([self._own.asked, run.rate, run.seconds], f"taking steps to {run.step}")
        self.stop.asked = any(asked for asked, _, _ in said)
        _, run.rate, run.seconds = said[0]
