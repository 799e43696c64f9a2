"""HMC on the last layer of a LeNet-5: 5,010 weights, 10,000 images of MNIST.

python examples/last_layer_hmc.py [draws of each chain]

About nine minutes of processor time for 2 x 1,000 draws: the rest of the network is computed once. First trains by MAP.
"""

import os
import sys
import time

import jax

import posteriax as px
from posteriax import priors as p

jax.config.update("jax_num_cpu_devices", 2)  # a core for each chain
CHAINS, WARMUP = 2, 200
draws = int(sys.argv[1]) if len(sys.argv) > 1 else 1000

mnist = px.data.load("mnist")
(x, y), (x_test, y_test) = mnist.train, mnist.test
x, y = x[:10_000], y[:10_000]


def timed(what, run):
    began, before = time.monotonic(), os.times()
    result = run()
    after = os.times()
    processor = after.user + after.system - before.user - before.system
    print(f"{what}: {time.monotonic() - began:.0f} s ({processor:.0f} s of processor time)", flush=True)
    return result


net = px.zoo.lenet5(key=jax.random.key(0))
problem = px.Problem(net, px.Categorical(), prior=p.Normal(0.1))
mode = timed("MAP", lambda: px.fit(problem, (x, y), px.MAP(), epochs=4, batch_size=128, key=0))

head = px.Problem(mode.network, px.Categorical(), prior=p.Normal(0.1), fixed="!out")
# with jitter, no direction has a period that every trajectory matches, after which it would be back where it started
hmc = px.HMC(warmup=WARMUP, jitter=0.5)
posterior = timed("HMC", lambda: px.fit(head, (x, y), hmc, draws=draws, chains=CHAINS, key=1))
print(*posterior.trace.notes, sep="\n")

leapfrogs = posterior.trace["leapfrogs"]
print(f"leapfrogs of all chains: {leapfrogs[:, :WARMUP].sum():,} to warm up, {leapfrogs[:, WARMUP:].sum():,} to sample")
print(f"leapfrogs per draw: {leapfrogs[:, WARMUP:].mean():.0f}")
for count in (draws // 4, draws // 2, draws):
    first = px.posterior.DrawsPosterior(
        posterior.problem, posterior.trace, jax.tree.map(lambda a, n=count: a[:, :n], posterior.draws)
    )
    agreement = first.diagnose(x_test).predictions
    rhats = f"{agreement.worst_rhat:.4f} at worst, {agreement.median_rhat:.4f} median"
    print(f"{CHAINS} x {count} draws: R-hat of predictions {rhats}")
print(posterior.diagnose(x_test))
scores = {name: px.evaluate(fitted.predict(x_test), y_test) for name, fitted in (("MAP", mode), ("HMC", posterior))}
print(
    *(f"{name}: {', '.join(f'{k} {v:.4f}' for k, v in by_score.items())}" for name, by_score in scores.items()),
    sep="\n",
)
