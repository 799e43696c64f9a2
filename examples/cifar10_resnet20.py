"""ResNet-20 with filter response normalisation on CIFAR-10, by MAP, on a CPU.

    POSTERIAX_DATA=folder python examples/cifar10_resnet20.py [checkpoint folder]

Random crops and flips, SGD with momentum. The network averages over positions, so that it takes images of any size: it
is trained on images of half the width first, which cost a quarter, and then on the whole ones.

On the first 15,000 training images and 4,000 test images of the official order: 85.2 % correct (a standard error of
0.6), NLL 0.476, after 93 minutes of processor time, which is 46 minutes of two cores. After the first part, on images
of half the width: 74.7 %.
"""

import os
import sys
import time
from pathlib import Path

import jax
import numpy as np
import optax

import posteriax as px
from posteriax import priors as p

BATCH = 64
checkpoint = Path(sys.argv[1]) if len(sys.argv) > 1 else None

cifar = px.data.load("cifar10")
(x, y), (x_test, y_test) = cifar.train, cifar.test
mean, scale = x.mean(axis=(0, 1, 2)), x.std(axis=(0, 1, 2))
x, x_test = ((images - mean) / scale for images in (x, x_test))


def halved(images: np.ndarray) -> np.ndarray:
    """Images averaged over squares of two by two pixels."""
    n, height, width, channels = images.shape
    return images.reshape(n, height // 2, 2, width // 2, 2, channels).mean(axis=(2, 4), dtype=images.dtype)


def train(
    network, images: np.ndarray, epochs: int, rate: float, warm: float, padding: int, name: str
) -> px.posterior.Posterior:
    """SGD whose rate per example rises for a part of the run and falls for the rest."""
    steps = epochs * -(-len(y) // BATCH)
    rates = optax.cosine_onecycle_schedule(steps, rate / len(y), pct_start=warm, div_factor=10, final_div_factor=100)
    return px.fit(
        px.Problem(network, px.Categorical(), prior=p.Normal(scale=0.3)),
        (images, y),
        px.MAP(optax.sgd(rates, momentum=0.9, nesterov=True)),
        epochs=epochs,
        batch_size=BATCH,
        key=0,
        augment=[px.data.RandomCrop(padding), px.data.RandomFlip()],
        checkpoint=checkpoint and checkpoint / name,
    )


began = time.monotonic()
small = train(px.zoo.resnet20(classes=10, key=jax.random.key(0)), halved(x), 60, 0.1, 0.2, 2, "small")
posterior = train(small.network, x, 36, 0.05, 0.1, 4, "whole")
minutes = (time.monotonic() - began) / 60
processor = sum(os.times()[:2]) / 60  # minutes of all cores: what counts on a machine that does other work as well
took = f"{minutes:.1f} minutes ({processor:.1f} of processor time)"
print(f"{len(y):,} images in {took}: {px.evaluate(posterior.predict(x_test), y_test)}")
