"""How long the kappa of LeNet's layers takes, for 1,000 images. About three minutes on two cores.

python examples/kappa_of_lenet.py
"""

import time

import equinox as eqx
import jax
import jax.numpy as jnp

import posteriax as px
from posteriax import families as q

(x, y), _ = px.data.fashion_small()
x, y = x.reshape(-1, 1, 28, 28)[:1000], y[:1000]
keys = jax.random.split(jax.random.key(0), 4)
pool, softplus = eqx.nn.MaxPool2d(2, 2), eqx.nn.Lambda(jax.nn.softplus)
first, second = eqx.nn.Conv2d(1, 20, 5, key=keys[0]), eqx.nn.Conv2d(20, 50, 5, key=keys[1])
dense, last = eqx.nn.Linear(800, 500, key=keys[2]), eqx.nn.Linear(500, 10, key=keys[3])
net = eqx.nn.Sequential(
    [first, softplus, pool, second, softplus, pool, eqx.nn.Lambda(jnp.ravel), dense, softplus, last]
)
posterior = px.fit(px.Problem(net, px.Categorical()), (x, y), px.VI(q.Normal()), epochs=1, key=0)
for name in ("layers/7/weight", "layers/9/weight", "layers/3/weight"):
    began = time.monotonic()
    kappa = px.analysis.kappa(posterior, (x, y), name)
    print(f"{name} {kappa[name].shape[1:]}: {time.monotonic() - began:.1f} s", flush=True)
