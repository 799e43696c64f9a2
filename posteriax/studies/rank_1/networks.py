"""The networks of the study, each as wide as its method needs to have the same number of parameters."""

from typing import Any

import jax
import numpy as np

from posteriax import priors as p
from posteriax import zoo
from posteriax.problem import Bernoulli, Categorical, Problem
from posteriax.problem import network as with_example
from posteriax.studies.rank_1.names import BATCH_ENSEMBLE, DEEP, DROPOUT, EQUAL, MEAN_FIELD
from posteriax.studies.rank_1.settings import Images, Mortality, Settings
from posteriax.studies.rank_1.sizes import (
    Layers,
    closest,
    lstm_layers,
    mlp_layers,
    near,
    parameters,
    wide_resnet_layers,
)

WRN = "WRN"


def layers_of(plan: Images | Mortality, shape: Any, widths: tuple[int, ...], classes: int) -> Layers:
    """Layers of the network with these widths, for inputs of this shape."""
    if isinstance(plan, Mortality):
        variables, static = shape
        return lstm_layers(widths[0], variables, static)
    if plan.network == WRN:
        return wide_resnet_layers(widths, plan.depth, plan.widen, shape[-1], classes)
    return mlp_layers(int(np.prod(shape)), widths, classes)


def widths_for(method: str, plan: Images | Mortality, settings: Settings, shape: Any, classes: int) -> tuple[int, ...]:
    """The widths at which a method has as many parameters as the rank-1 Gaussian network, all members together.

    Mean-field and dropout have the network of the deterministic baseline, and mean-field a standard deviation for every
    weight. Variants of the rank-1 network have its widths.
    """
    own = (plan.units,) if isinstance(plan, Mortality) else plan.widths
    matched = isinstance(plan, Mortality) or plan.matched
    if not matched or method not in (DEEP, EQUAL, BATCH_ENSEMBLE, DROPOUT, MEAN_FIELD):
        return own
    members = settings.members

    def count(widths: tuple[int, ...]) -> int:
        layers = layers_of(plan, shape, widths, classes)
        if method == BATCH_ENSEMBLE:
            return parameters(layers, components=members, per_factor=1)
        return (members if method == EQUAL else 1) * parameters(layers)

    target = parameters(layers_of(plan, shape, own, classes), components=members, per_factor=2)
    return closest(near(own), target, count, own)


def prior_scale_of(method: str, plan: Images | Mortality) -> float:
    """The scale of the prior of all weights that are not factors."""
    if method in (DEEP, EQUAL, DROPOUT):
        return plan.prior_scale
    return {BATCH_ENSEMBLE: plan.batch_scale, MEAN_FIELD: plan.mean_field_scale}.get(method, plan.rank_1_scale)


def image_problem(
    method: str, plan: Images, settings: Settings, shape: tuple[int, ...], classes: int, seed: int
) -> Problem:
    """An image classifier with He's initial weights."""
    widths, key = widths_for(method, plan, settings, shape, classes), jax.random.key(seed)
    net: Any
    if plan.network == WRN:
        smaller = method == EQUAL and not plan.matched  # the paper's WRN-28-5
        widen = plan.widen // 2 if smaller else plan.widen
        net = zoo.wide_resnet(
            depth=plan.depth,
            widen=widen,
            channels=shape[-1],
            classes=classes,
            stages=(widths[0], widths[1], widths[2]),
            key=key,
        )
    else:
        if method == EQUAL and not plan.matched:
            widths = tuple(width // settings.members for width in widths)
        net = zoo.mlp(inputs=int(np.prod(shape)), hidden=widths, classes=classes, key=key)
        net = with_example(net, example=np.zeros(shape, np.float32))
    return Problem(net, Categorical(), prior=p.Normal(scale=prior_scale_of(method, plan)))


def mortality_problem(method: str, plan: Mortality, settings: Settings, shape: Any, seed: int) -> Problem:
    """The LSTM over records with missing values, one logit."""
    units, (variables, static) = widths_for(method, plan, settings, shape, 1)[0], shape
    net = zoo.mortality_lstm(variables=variables, static=static, units=units, key=jax.random.key(seed))
    return Problem(net, Bernoulli(), prior=p.Normal(scale=prior_scale_of(method, plan)))
