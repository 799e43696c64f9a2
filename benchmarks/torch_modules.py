"""Networks as people write them in PyTorch, for tests and benchmarks of the adapter.

ResNet and MobileNet have the modules and names of torchvision's, so that its weights can be loaded.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class MLP(nn.Sequential):
    def __init__(self, inputs: int = 784, width: int = 400, outputs: int = 10):
        super().__init__(
            nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outputs)
        )


class GroupNormCNN(nn.Module):
    def __init__(self, channels: int = 3, outputs: int = 10, width: int = 32, dropout: float = 0.1):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(channels, width, 3, padding=1), nn.GroupNorm(4, width)
        self.conv2, self.norm2 = nn.Conv2d(width, 2 * width, 3, padding=1), nn.GroupNorm(4, 2 * width)
        self.pool, self.dropout = nn.MaxPool2d(2), nn.Dropout(dropout)
        self.fc = nn.Linear(2 * width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(F.relu(self.norm1(self.conv1(x))))
        x = self.pool(F.relu(self.norm2(self.conv2(x))))
        return self.fc(self.dropout(x.mean((2, 3))))


class BatchNormNet(nn.Module):
    def __init__(self, inputs: int = 8, width: int = 50, outputs: int = 3):
        super().__init__()
        self.hidden, self.norm, self.out = nn.Linear(inputs, width), nn.BatchNorm1d(width), nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(F.relu(self.norm(self.hidden(x))))


# -- torchvision's ResNet-18 -------------------------------------------------------------------------------------------


class BasicBlock(nn.Module):
    def __init__(self, inplanes: int, planes: int, stride: int, downsample: nn.Module | None):
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


class ResNet18(nn.Module):
    def __init__(self, num_classes: int = 1000):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.inplanes = 64
        self.layer1, self.layer2 = self._layer(64, 1), self._layer(128, 2)
        self.layer3, self.layer4 = self._layer(256, 2), self._layer(512, 2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(512, num_classes)

    def _layer(self, planes: int, stride: int) -> nn.Sequential:
        downsample = None
        if stride != 1 or self.inplanes != planes:
            conv = nn.Conv2d(self.inplanes, planes, 1, stride, bias=False)
            downsample = nn.Sequential(conv, nn.BatchNorm2d(planes))
        first = BasicBlock(self.inplanes, planes, stride, downsample)
        self.inplanes = planes
        return nn.Sequential(first, BasicBlock(planes, planes, 1, None))

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


# -- torchvision's MobileNetV2 -----------------------------------------------------------------------------------------


class Conv2dNormActivation(nn.Sequential):
    def __init__(self, inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1):
        conv = nn.Conv2d(inputs, outputs, kernel, stride, (kernel - 1) // 2, groups=groups, bias=False)
        super().__init__(conv, nn.BatchNorm2d(outputs), nn.ReLU6(inplace=True))


class InvertedResidual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, expand_ratio: int):
        super().__init__()
        hidden = inputs * expand_ratio
        layers: list[nn.Module] = [] if expand_ratio == 1 else [Conv2dNormActivation(inputs, hidden, kernel=1)]
        layers += [
            Conv2dNormActivation(hidden, hidden, stride=stride, groups=hidden),
            nn.Conv2d(hidden, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        ]
        self.conv = nn.Sequential(*layers)
        self.use_res_connect = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x) if self.use_res_connect else self.conv(x)


class MobileNetV2(nn.Module):
    def __init__(self, num_classes: int = 1000):
        super().__init__()
        settings = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2)]
        features: list[nn.Module] = [Conv2dNormActivation(3, 32, stride=2)]
        inputs = 32
        for expand_ratio, outputs, count, stride in [*settings, (6, 320, 1, 1)]:
            for i in range(count):
                features.append(InvertedResidual(inputs, outputs, stride if i == 0 else 1, expand_ratio))
                inputs = outputs
        features.append(Conv2dNormActivation(inputs, 1280, kernel=1))
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, num_classes))

    def forward(self, x: Tensor) -> Tensor:
        x = F.adaptive_avg_pool2d(self.features(x), (1, 1))
        return self.classifier(torch.flatten(x, 1))


# -- sequences ---------------------------------------------------------------------------------------------------------


class SelfAttention(nn.Module):
    def __init__(self, width: int, heads: int, block_size: int, dropout: float):
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.attn_dropout, self.resid_dropout = nn.Dropout(dropout), nn.Dropout(dropout)
        self.register_buffer("bias", torch.tril(torch.ones(block_size, block_size)).view(1, 1, block_size, block_size))
        self.heads, self.width = heads, width

    def forward(self, x: Tensor) -> Tensor:
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.width, dim=2)
        q, k, v = (a.view(B, T, self.heads, C // self.heads).transpose(1, 2) for a in (q, k, v))
        att = (q @ k.transpose(-2, -1)) * (1.0 / (C // self.heads) ** 0.5)
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        y = self.attn_dropout(F.softmax(att, dim=-1)) @ v
        return self.resid_dropout(self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C)))


class GPTBlock(nn.Module):
    def __init__(self, width: int, heads: int, block_size: int, dropout: float):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = SelfAttention(width, heads, block_size, dropout)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width), nn.Dropout(dropout)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """Predicts the token that follows a sequence. The head is tied to the tokens' embedding."""

    def __init__(
        self,
        vocabulary: int = 65,
        block_size: int = 32,
        width: int = 64,
        heads: int = 4,
        layers: int = 2,
        p: float = 0.0,
    ):
        super().__init__()
        self.wte, self.wpe, self.drop = nn.Embedding(vocabulary, width), nn.Embedding(block_size, width), nn.Dropout(p)
        self.h = nn.ModuleList([GPTBlock(width, heads, block_size, p) for _ in range(layers)])
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.size(1), device=tokens.device)
        x = self.drop(self.wte(tokens) + self.wpe(positions))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x)[:, -1])


class BERT(nn.Module):
    """Classifies sequences: an encoder of nn.TransformerEncoder, with a mask of padding."""

    def __init__(
        self,
        vocabulary: int = 100,
        length: int = 24,
        width: int = 64,
        heads: int = 4,
        layers: int = 2,
        outputs: int = 3,
    ):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width, padding_idx=0), nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.1, "gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.pooler, self.head = nn.Linear(width, width), nn.Linear(width, outputs)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        x = self.encoder(x, src_key_padding_mask=tokens == 0)
        return self.head(torch.tanh(self.pooler(x[:, 0])))


class LSTMClassifier(nn.Module):
    def __init__(self, inputs: int = 6, width: int = 64, outputs: int = 4, layers: int = 2):
        super().__init__()
        self.lstm = nn.LSTM(inputs, width, layers, batch_first=True, dropout=0.1, bidirectional=True)
        self.fc = nn.Linear(2 * width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        outputs, _ = self.lstm(x)
        return self.fc(outputs[:, -1])


# -- an image for an image ---------------------------------------------------------------------------------------------


class DoubleConv(nn.Sequential):
    def __init__(self, inputs: int, outputs: int):
        layers: list[Any] = []
        for before in (inputs, outputs):
            layers += [nn.Conv2d(before, outputs, 3, padding=1, bias=False), nn.GroupNorm(4, outputs), nn.ReLU(True)]
        super().__init__(*layers)


class UNet(nn.Module):
    def __init__(self, channels: int = 1, outputs: int = 1, width: int = 16):
        super().__init__()
        self.inc, self.down1, self.down2 = (
            DoubleConv(channels, width),
            DoubleConv(width, 2 * width),
            DoubleConv(2 * width, 4 * width),
        )
        self.up1, self.conv1 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2), DoubleConv(4 * width, 2 * width)
        self.up2, self.conv2 = nn.Upsample(scale_factor=2, mode="bilinear"), DoubleConv(3 * width, width)
        self.outc = nn.Conv2d(width, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        x1 = self.inc(x)
        x2 = self.down1(F.max_pool2d(x1, 2))
        x3 = self.down2(F.max_pool2d(x2, 2))
        x = self.conv1(torch.cat([x2, self.up1(x3)], 1))
        x = self.conv2(torch.cat([x1, self.up2(x)], 1))
        return self.outc(x)


def flattened(module: nn.Module) -> nn.Module:
    """A module whose outputs are one row for each example, as a likelihood takes them."""
    return nn.Sequential(module, nn.Flatten())
