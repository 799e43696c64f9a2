"""The parts that the architectures share. Arrays of one example are channels-last: (height, width, channels)."""

from posteriax.zoo.parts.convolution import Conv as Conv
from posteriax.zoo.parts.convolution import average_pool as average_pool
from posteriax.zoo.parts.convolution import max_pool as max_pool
from posteriax.zoo.parts.dense import Dense as Dense
from posteriax.zoo.parts.dense import Embedding as Embedding
from posteriax.zoo.parts.normalisation import BatchNorm as BatchNorm
from posteriax.zoo.parts.normalisation import FilterResponseNorm as FilterResponseNorm
from posteriax.zoo.parts.normalisation import LayerNorm as LayerNorm
from posteriax.zoo.parts.repeated import Repeated as Repeated
from posteriax.zoo.parts.sequences import LSTM as LSTM
from posteriax.zoo.parts.sequences import SelfAttention as SelfAttention
