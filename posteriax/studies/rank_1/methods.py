"""How each method is built: families by path, mixtures, ensembles, and the optimiser."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import optax

from posteriax import families as q
from posteriax.methods import MAP, VI, Ensemble
from posteriax.studies.rank_1.names import (
    BATCH_ENSEMBLE,
    CAUCHY,
    DEEP,
    DROPOUT,
    EQUAL,
    GAUSSIAN,
    HALF_CAUCHY,
    INPUT,
    LOG_NORMAL,
    MEAN_FIELD,
    MIXTURE,
    OUTPUT,
)
from posteriax.studies.rank_1.settings import Images, Mortality, Settings

CHANGES: Mapping[str, Mapping[str, Any]] = {
    GAUSSIAN: {},
    BATCH_ENSEMBLE: {"noise": "point"},
    CAUCHY: {"noise": "cauchy"},
    INPUT: {"place": "input"},
    OUTPUT: {"place": "output"},
    MIXTURE: {"likelihood": "mixture"},
    LOG_NORMAL: {"noise": "log_normal"},
    HALF_CAUCHY: {"noise": "half_cauchy", "prior_scale": 1.0},  # the prior of a factor around 1 must reach it
}
NORMS = "**/norm/*"


def components_of(method: str, settings: Settings) -> int:
    """Components of a mixture or members of an ensemble; 1 for one network with random weights."""
    if method in (DROPOUT, MEAN_FIELD):
        return 1
    return int(method.removeprefix("K = ")) if method.startswith("K = ") else settings.members


def family_of(method: str, settings: Settings) -> dict[str, q.Family]:
    """The variational families, by path; batch normalisations are point estimates that all components share."""
    own: q.Family
    if method == DROPOUT:
        own = q.Dropout(settings.dropout)
    elif method == MEAN_FIELD:
        own = q.Normal()
    else:
        scale = settings.cauchy_scale if method == CAUCHY else settings.factor_scale
        own_prior: Any = {} if method == HALF_CAUCHY else {"prior_scale": scale}
        # the authors start BatchEnsemble around 1, whatever the start of rank-1 factors
        around = "normal" if method == BATCH_ENSEMBLE else settings.start
        start: Any = {"start": around, "start_value": settings.start_value}
        changes = CHANGES.get(method, {})
        positive = changes.get("noise") in ("log_normal", "half_cauchy")  # these start around 1, whatever is asked for
        own = q.Rank1(components_of(method, settings), **({} if positive else start), **own_prior, **changes)
    return {"**": own}


def build_method(method: str, plan: Images | Mortality, settings: Settings, *, norms: bool, examples: int) -> Any:
    """What is fitted. `norms` says whether the network has batch normalisations."""
    rate = plan.rate if isinstance(plan, Images) else 0.0
    optimizer = falling_sgd(rate, plan.batch_size, examples, plan.steps) if rate else None
    if method in (DEEP, EQUAL):
        return Ensemble(MAP(optimizer), settings.members)
    families = family_of(method, settings) | ({NORMS: q.Point()} if norms else {})
    ramp = max(1.0, plan.annealing * plan.steps)
    annealed = method not in (BATCH_ENSEMBLE, DROPOUT)  # these have no KL, only weight decay
    return VI(
        families,
        estimator="flipout" if method == MEAN_FIELD else "auto",
        optimizer=optimizer,
        kl_schedule=(lambda step: jnp.minimum(1.0, (step + 1) / ramp)) if annealed else None,
    )


def falling_sgd(rate: float, batch_size: int, examples: int, steps: int) -> optax.GradientTransformation:
    """The paper's optimiser: momentum, a warm-up of one epoch, and three falls to a fifth.

    The objective here is a sum over the training set, the paper's a mean.
    """
    full = rate * batch_size / 128 / examples
    warm = max(1, min(steps // 2, examples // batch_size))
    falling = optax.piecewise_constant_schedule(
        full, {round(share * steps) - warm: 0.2 for share in (0.4, 0.8, 0.9) if round(share * steps) > warm}
    )
    schedule = optax.join_schedules([optax.linear_schedule(0.0, full, warm), falling], [warm])
    return optax.sgd(schedule, momentum=0.9, nesterov=True)
