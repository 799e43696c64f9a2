"""The networks of the study, the posteriors of their layers, and how they are trained.

Weights outside of the variance layers are point estimates under N(0, 1). A short run passes through the phase
transition, which takes the paper's runs many thousands of steps, because log alpha is held first, so that the means
learn, and then has a large rate and an Adam with a short memory of squared gradients (b2): the gradient of the KL
falls as 1 / alpha, and with the usual memory of a thousand steps the first gradients would keep all later steps
small. If log alpha rises slowly instead, the weights keep signs that agree within a unit, and the means go on
predicting well although the noise does too.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from posteriax import families as q
from posteriax import priors as p
from posteriax import zoo
from posteriax.data import RandomCrop, RandomFlip
from posteriax.likelihoods import Categorical
from posteriax.methods import VI
from posteriax.posterior import Posterior, VariationalPosterior
from posteriax.problem import Problem
from posteriax.run import Watch
from posteriax.studies.variance_networks.settings import VarianceSettings
from posteriax.studies.workbench import Examples, Workbench

Families = dict[str, q.Family]  # by pattern of the leaves' paths
LAYER = "dense/weight"  # the first dense layer, in LeNet-5 and in the VGG-like network
STUDENT_DF = 1e-16
ADDITIVE_SCALE = 2e-3  # with weights of about 0.02, alpha starts near exp(-5), as in the other parameterisations
# the coarse label of each fine one: what the paper calls CIFAR-100 has these 20 labels
COARSE = (
    *(4, 1, 14, 8, 0, 6, 7, 7, 18, 3, 3, 14, 9, 18, 7, 11, 3, 9, 7, 11, 6, 11, 5, 10, 7, 6, 13, 15, 3, 15, 0, 11, 1),
    *(10, 12, 14, 16, 9, 11, 5, 5, 19, 8, 8, 15, 13, 14, 17, 18, 10, 16, 4, 17, 4, 2, 0, 17, 4, 18, 17, 10, 3, 2, 12),
    *(12, 16, 12, 1, 9, 19, 2, 10, 0, 1, 16, 12, 9, 13, 15, 13, 16, 19, 2, 4, 6, 19, 5, 5, 8, 19, 18, 1, 2, 15, 6, 0),
    *(17, 8, 14, 13),
)


class VarianceLayer(NamedTuple):
    """How the weights of the variance layers are distributed, their prior, and the activation behind the dense one."""

    family: q.Family
    prior: p.Prior
    activation: Callable[[jax.Array], jax.Array] = jax.nn.relu


def layer(method: str, settings: VarianceSettings) -> VarianceLayer:
    """The layer that a method is named after."""
    start = settings.log_alpha
    return {
        "layer": VarianceLayer(q.MultiplicativeNormal("layer", start), p.LogUniform()),
        "neuron": VarianceLayer(q.MultiplicativeNormal("neuron", start), p.LogUniform()),
        "weight": VarianceLayer(q.MultiplicativeNormal("weight", start), p.LogUniform()),
        "additive": VarianceLayer(q.Normal(ADDITIVE_SCALE), p.LogUniform()),
        "student-t": VarianceLayer(q.MultiplicativeNormal("layer", start), p.StudentT(df=STUDENT_DF)),
        "softplus": VarianceLayer(q.MultiplicativeNormal("layer", start), p.LogUniform(), jax.nn.softplus),
        # a ReLU would drop half of the units of a zero-mean layer at random
        "zero-mean": VarianceLayer(q.ZeroMeanNormal(), p.LogUniform(), jnp.abs),
        "dropout": VarianceLayer(q.Point(), p.Normal(scale=1.0)),
    }[method]


def load_images(bench: Workbench, name: str, examples: int, test: int) -> tuple[Examples, Examples]:
    """The first training and test examples (0: all), with an axis of channels and pixels in [0, 1]."""
    loaded = bench.load(name)
    both = []
    for (x, y), count in ((loaded.train, examples), (loaded.test, test)):
        x, y = x[: count or None], y[: count or None]
        x = x[..., None] if x.ndim == 3 else x
        both.append((x, np.asarray(COARSE, np.int32)[y] if name.endswith("cifar100") else y))
    return both[0], both[1]


def lenet_problem(
    method: str, settings: VarianceSettings, seed: int, *, table: bool = False
) -> tuple[Problem, Families]:
    """LeNet-5 and the families of its leaves; `table` for the network of the accuracy table."""
    chosen = layer(method, settings)
    layers = settings.variance_layers if table and method == "layer" else LAYER
    net = zoo.lenet5(
        channels=settings.channels if table else settings.subset_channels,
        hidden=settings.hidden if table else settings.subset_hidden,
        activation=chosen.activation,
        key=jax.random.key(seed),
    )
    families: Families = {"**": q.Point(), layers: chosen.family}
    if method == "dropout":
        families["out/weight"] = q.Dropout(0.5)  # of the hidden units
    return Problem(net, Categorical(), {"**": p.Normal(scale=1.0), layers: chosen.prior}), families


def vgg_problem(method: str, classes: int, settings: VarianceSettings, seed: int) -> tuple[Problem, Families]:
    """The VGG-like network: dropout of 0.3 to 0.5, or variance layers in its last stage and its dense layer.

    Dropout removes whole channels of a convolution here, single activations in the paper.
    """
    chosen = layer(method, settings)
    net = zoo.vgg_like(width=settings.vgg_width, classes=classes, key=jax.random.key(seed))
    families: Families = {"**": q.Point(), "out/weight": q.Dropout(0.5)}
    for stage, (rate, count) in enumerate(((0.3, 2), (0.4, 2), (0.4, 3), (0.4, 3))):
        families |= {f"convolutions/{stage}/{i}/weight": q.Dropout(rate) for i in range(1, count)}
    if method == "dropout":
        families[LAYER] = q.Dropout(0.5)
        return Problem(net, Categorical(), p.Normal(scale=1.0)), families
    variance = (LAYER,) if method == "zero-mean" else (LAYER, "convolutions/4/*/weight")
    families |= dict.fromkeys(variance, chosen.family)
    prior = {"**": p.Normal(scale=1.0)} | dict.fromkeys(variance, chosen.prior)
    return Problem(net, Categorical(), prior), families


def rates(method: str, settings: VarianceSettings, steps: int) -> optax.GradientTransformation:
    """Adam with rates that fall to 0 linearly, and one of its own for log alpha or log scales."""
    zero_mean = method == "zero-mean"  # log scales, with no transition to pass
    free = {"weight": settings.free_rate, "additive": settings.free_rate / 2}  # log alpha is twice a log scale
    noise = settings.scale_rate if zero_mean else free.get(method, settings.noise_rate)
    held = 0 if zero_mean else settings.held * steps

    def falling(rate: float, start: float = 0) -> optax.Schedule:
        return lambda step: jnp.where(step < start, 0.0, rate * (1 - step / steps))

    quick = optax.adam(falling(noise, held), b1=settings.momentum, b2=settings.memory)
    slow = optax.adam(falling(settings.rate), b1=settings.momentum)

    def kinds(tree: Any) -> Any:
        named = {"log_alpha": "noise", "log_scale": "noise"}
        return {leaf: {name: named.get(name, "weights") for name in params} for leaf, params in tree.items()}

    return optax.multi_transform({"noise": quick, "weights": slow}, kinds)


def train(
    bench: Workbench,
    method: str,
    problem: Problem,
    families: Families,
    examples: Examples,
    settings: VarianceSettings,
    *,
    epochs: int,
    batch_size: int,
    key: int,
    watch: Callable[[Posterior], dict[str, float]] | None = None,
) -> VariationalPosterior:
    """A fit by variational inference, with the local reparameterisation of dense layers."""
    steps = epochs * -(-len(examples[1]) // batch_size)
    return bench.fit_variational(
        problem,
        examples,
        VI(families, optimizer=rates(method, settings, steps)),
        epochs=epochs,
        batch_size=batch_size,
        key=key,
        watch=None if watch is None else Watch(watch, every=max(1, steps // settings.watched)),
        augment=(RandomCrop(4), RandomFlip()) if examples[0].shape[-1] == 3 else None,
    )
