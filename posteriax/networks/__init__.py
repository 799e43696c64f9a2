"""Networks: any library's, as a pure function of a params pytree; their leaves, and what is read off their program."""

from posteriax.networks.adapters.torch import to_torch as to_torch
from posteriax.networks.leaf import Axes as Axes
from posteriax.networks.leaf import Leaf as Leaf
from posteriax.networks.network import Network as Network
from posteriax.networks.network import Params as Params
from posteriax.networks.network import network as network
from posteriax.networks.network import paths as paths
from posteriax.networks.tracing.coupling import couples_examples as couples_examples
