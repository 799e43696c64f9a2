"""The papers' architectures, one file each: plain Equinox modules with the papers' initialisation.

Images are channels-last, (height, width, channels). Networks with batch normalisation come as pairs
``(network, state)``, which ``px.Problem`` takes as they are.

>>> import jax, posteriax as px
>>> problem = px.Problem(px.zoo.resnet20(classes=10, key=jax.random.key(0)), px.Categorical())
>>> problem.network.num_parameters
274042
"""

from posteriax.zoo.cnn_lstm import CNNLSTM, cnn_lstm
from posteriax.zoo.lenet import LeNet, lenet, lenet5
from posteriax.zoo.lstm_classifier import LSTMClassifier, lstm
from posteriax.zoo.mlp import MLP, mlp, uci_mlp
from posteriax.zoo.mortality_lstm import MortalityLSTM, mortality_lstm
from posteriax.zoo.parts import (
    LSTM,
    BatchNorm,
    Conv,
    Dense,
    Embedding,
    FilterResponseNorm,
    LayerNorm,
    Repeated,
    SelfAttention,
    average_pool,
    max_pool,
)
from posteriax.zoo.preresnet import PreResNet, preresnet
from posteriax.zoo.resnet18 import ResNet18, resnet18
from posteriax.zoo.resnet20 import ResNetFRN, resnet20
from posteriax.zoo.resnet50 import ResNet50, resnet50
from posteriax.zoo.vgg import VGG, vgg_like
from posteriax.zoo.vit import ViT, vit, vit_tiny
from posteriax.zoo.wide_resnet import WideResNet, wide_resnet

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
