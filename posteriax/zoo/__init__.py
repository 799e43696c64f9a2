"""The papers' architectures, one file for each kind: plain Equinox modules with the papers' initialisation.

Images are channels-last, (height, width, channels). Networks with batch normalisation come as pairs
``(network, state)``, which ``px.Problem`` takes as they are.

>>> import jax, posteriax as px
>>> problem = px.Problem(px.zoo.resnet20(classes=10, key=jax.random.key(0)), px.Categorical())
>>> problem.network.num_parameters
274042
"""

from posteriax.zoo.layers import LSTM as LSTM
from posteriax.zoo.layers import (
    BatchNorm as BatchNorm,
)
from posteriax.zoo.layers import Conv as Conv
from posteriax.zoo.layers import Dense as Dense
from posteriax.zoo.layers import Embedding as Embedding
from posteriax.zoo.layers import (
    FilterResponseNorm as FilterResponseNorm,
)
from posteriax.zoo.layers import (
    LayerNorm as LayerNorm,
)
from posteriax.zoo.layers import Repeated as Repeated
from posteriax.zoo.layers import SelfAttention as SelfAttention
from posteriax.zoo.layers import average_pool as average_pool
from posteriax.zoo.layers import max_pool as max_pool
from posteriax.zoo.lenet import LeNet as LeNet
from posteriax.zoo.lenet import lenet as lenet
from posteriax.zoo.lenet import lenet5 as lenet5
from posteriax.zoo.lstm import CNNLSTM as CNNLSTM
from posteriax.zoo.lstm import LSTMClassifier as LSTMClassifier
from posteriax.zoo.lstm import MortalityLSTM as MortalityLSTM
from posteriax.zoo.lstm import cnn_lstm as cnn_lstm
from posteriax.zoo.lstm import lstm as lstm
from posteriax.zoo.lstm import mortality_lstm as mortality_lstm
from posteriax.zoo.mlp import MLP as MLP
from posteriax.zoo.mlp import mlp as mlp
from posteriax.zoo.mlp import uci_mlp as uci_mlp
from posteriax.zoo.resnets import PreResNet as PreResNet
from posteriax.zoo.resnets import ResNet18 as ResNet18
from posteriax.zoo.resnets import ResNet50 as ResNet50
from posteriax.zoo.resnets import ResNetFRN as ResNetFRN
from posteriax.zoo.resnets import WideResNet as WideResNet
from posteriax.zoo.resnets import preresnet as preresnet
from posteriax.zoo.resnets import resnet18 as resnet18
from posteriax.zoo.resnets import resnet20 as resnet20
from posteriax.zoo.resnets import resnet50 as resnet50
from posteriax.zoo.resnets import wide_resnet as wide_resnet
from posteriax.zoo.vgg import VGG as VGG
from posteriax.zoo.vgg import vgg_like as vgg_like
from posteriax.zoo.vit import ViT as ViT
from posteriax.zoo.vit import vit as vit
from posteriax.zoo.vit import vit_tiny as vit_tiny

__all__ = [
    "CNNLSTM",
    "LSTM",
    "MLP",
    "VGG",
    "BatchNorm",
    "Conv",
    "Dense",
    "Embedding",
    "FilterResponseNorm",
    "LSTMClassifier",
    "LayerNorm",
    "LeNet",
    "MortalityLSTM",
    "PreResNet",
    "Repeated",
    "ResNet18",
    "ResNet50",
    "ResNetFRN",
    "SelfAttention",
    "ViT",
    "WideResNet",
    "average_pool",
    "cnn_lstm",
    "lenet",
    "lenet5",
    "lstm",
    "max_pool",
    "mlp",
    "mortality_lstm",
    "preresnet",
    "resnet18",
    "resnet20",
    "resnet50",
    "uci_mlp",
    "vgg_like",
    "vit",
    "vit_tiny",
    "wide_resnet",
]
