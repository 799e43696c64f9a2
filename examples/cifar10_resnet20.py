"""ResNet-20 with filter response normalisation on CIFAR-10, by MAP, on a CPU within an hour.

    POSTERIAX_DATA=folder python examples/cifar10_resnet20.py [epochs] [checkpoint folder]

Random crops and flips, and Adam with a rate that falls along a cosine.
"""

import os
import sys
import time

import jax

import posteriax as px
from posteriax import priors as p

epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 40
checkpoint = sys.argv[2] if len(sys.argv) > 2 else None

cifar = px.data.load("cifar10")
problem = px.Problem(px.zoo.resnet20(classes=10, key=jax.random.key(0)), px.Categorical(), prior=p.Normal(scale=0.3))

began = time.monotonic()
posterior = px.fit(
    problem,
    cifar.train,
    px.MAP(),
    epochs=epochs,
    batch_size=128,
    key=0,
    augment=[px.data.RandomCrop(4), px.data.RandomFlip()],
    checkpoint=checkpoint,
)
minutes = (time.monotonic() - began) / 60
processor = sum(os.times()[:2]) / 60  # minutes of all cores: what counts on a machine that does other work as well
x_test, y_test = cifar.test
scores = px.evaluate(posterior.predict(x_test), y_test)
took = f"{minutes:.1f} minutes ({processor:.1f} of processor time)"
print(f"{len(cifar.train[1]):,} images, {epochs} epochs in {took}: {scores}")
