"""Several processes, on one machine or many, that make one run together.

    posteriax launch --processes 2 -- python train.py        # train.py calls px.distributed.initialize() first

The engine is JAX's own runtime: its coordination service, and collectives by gloo on CPUs, NCCL or ICI on accelerators.
"""

from posteriax.distributed.launcher import launch as launch
from posteriax.distributed.meshes import DATA as DATA
from posteriax.distributed.meshes import MEMBERS as MEMBERS
from posteriax.distributed.meshes import current_mesh as current_mesh
from posteriax.distributed.meshes import gathered as gathered
from posteriax.distributed.meshes import mesh as mesh
from posteriax.distributed.meshes import place as place
from posteriax.distributed.meshes import place_rows as place_rows
from posteriax.distributed.meshes import to_host as to_host
from posteriax.distributed.meshes import use_mesh as use_mesh
from posteriax.distributed.processes import SECONDS_TO_STOP as SECONDS_TO_STOP
from posteriax.distributed.processes import ProcessError as ProcessError
from posteriax.distributed.processes import check_same as check_same
from posteriax.distributed.processes import exchange as exchange
from posteriax.distributed.processes import initialize as initialize
from posteriax.distributed.processes import is_first as is_first
from posteriax.distributed.processes import losing_processes as losing_processes
from posteriax.distributed.processes import several as several
from posteriax.distributed.processes import together as together
