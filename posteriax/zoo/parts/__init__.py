"""The parts that the architectures share. Arrays of one example are channels-last: (height, width, channels)."""

from posteriax.zoo.parts.attention import SelfAttention as SelfAttention
from posteriax.zoo.parts.batch_norm import BatchNorm as BatchNorm
from posteriax.zoo.parts.convolution import Conv as Conv
from posteriax.zoo.parts.dense import Dense as Dense
from posteriax.zoo.parts.dense import Embedding as Embedding
from posteriax.zoo.parts.filter_response_norm import FilterResponseNorm as FilterResponseNorm
from posteriax.zoo.parts.layer_norm import LayerNorm as LayerNorm
from posteriax.zoo.parts.lstm import LSTM as LSTM
from posteriax.zoo.parts.pooling import average_pool as average_pool
from posteriax.zoo.parts.pooling import max_pool as max_pool
from posteriax.zoo.parts.repeated import Repeated as Repeated
