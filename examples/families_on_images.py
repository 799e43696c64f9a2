"""Four facts about variational families, on the part of Fashion-MNIST that ships with posteriax. About ten minutes.

    python examples/families_on_images.py

1. Tying the scales of a weight matrix to rank 2 or 3 costs nothing at half the parameters, if training is long enough
   for the scales to be learned at all.
2. The scales that mean-field finds have rank 2, not 1: truncation to one singular value hurts, to two it does not.
3. A rank-1 mixture is better than the deterministic network it perturbs.
4. A layer may hold all its information in its variances: at its means, all zero, the network guesses; its draws do not.
"""

import time

import equinox as eqx
import jax
import numpy as np

import posteriax as px
from posteriax import families as q
from posteriax import priors as p

(images, y), (images_test, y_test) = px.data.fashion_small()
images, images_test = (a.reshape(len(a), -1) for a in (images, images_test))  # pixels in [0, 1]
x, x_test = 2 * images - 1, 2 * images_test - 1
net = eqx.nn.MLP(784, 10, width_size=400, depth=2, key=jax.random.key(0))
problem = px.Problem(net, px.Categorical(), prior=p.Normal(scale=0.2))


def report(name: str, posterior: px.posterior.Posterior, draws: int = 100, inputs: np.ndarray = x_test) -> np.ndarray:
    """Print the scores and return the per-example loss."""
    predictive = posterior.predict(inputs, draws=draws)
    losses = -np.log(np.asarray(predictive.probs)[np.arange(len(y_test)), y_test])
    scores = px.evaluate(predictive, y_test)
    error = losses.std() / np.sqrt(len(losses))
    print(
        f"{name:34s} accuracy {scores['accuracy']:.3f}   nll {losses.mean():.3f} +- {error:.3f}   "
        f"{posterior.num_parameters:,} parameters",
        flush=True,
    )
    return losses


def fit(method: px.VI | px.MAP, epochs: int, problem: px.Problem = problem) -> px.posterior.Posterior:
    return px.fit(problem, (x, y), method, epochs=epochs, key=0)


began = time.monotonic()
mean_field = fit(px.VI(q.Normal()), epochs=200)
untied = report("mean-field", mean_field)
for k in (1, 2, 3):
    report(f"  its scales truncated to rank {k}", px.analysis.truncate(mean_field, k))
for k in (2, 3):
    difference = report(f"KTied({k})", fit(px.VI(q.KTied(k)), epochs=200)) - untied
    error = difference.std() / np.sqrt(len(difference))
    print(f"  its nll less that of mean-field: {difference.mean():+.3f} +- {error:.3f}")

report("deterministic (MAP)", fit(px.MAP(), epochs=100))
# half of the factors start at -1, which the prior around +1 penalises, so the KL is phased in slowly
rank1 = px.VI(q.Rank1(4, start="sign"), estimator="factor", kl_schedule=px.methods.LinearKL(epochs=80))
report("Rank1(4)", fit(rank1, epochs=100))

# a variance layer sees the squares of its inputs, so the pixels stay in [0, 1] here
middle = "layers/1/weight"
ordinary = px.Problem(net, px.Categorical())
report("ordinary network (MAP)", px.fit(ordinary, (images, y), px.MAP(), epochs=60, key=0), inputs=images_test)
variances = px.Problem(net, px.Categorical(), {"**": p.Normal(scale=1.0), middle: p.LogUniform()})
method = px.VI({"**": q.Point(), middle: q.ZeroMeanNormal()})
zero_mean = px.fit(variances, (images, y), method, epochs=60, key=0)
report("zero-mean middle layer, 1 draw", zero_mean, draws=1, inputs=images_test)
report("zero-mean middle layer, 200 draws", zero_mean, draws=200, inputs=images_test)
report("  with its scales shuffled", px.analysis.permute(zero_mean, middle), draws=200, inputs=images_test)
guess = problem.network.apply(zero_mean.mean, images_test).argmax(axis=1)
print(f"  with its means alone: accuracy {(np.asarray(guess) == y_test).mean():.3f}")
print(f"{(time.monotonic() - began) / 60:.1f} minutes")
