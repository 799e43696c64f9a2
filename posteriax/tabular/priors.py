"""The prior of a network that is chosen for the data: by the marginal likelihood, or as the user says."""

from typing import Any

import posteriax as px
from posteriax import priors as p
from posteriax.tabular.messages import TableError
from posteriax.tabular.point_noise import underestimates_noise

TUNED = "tuned"
ROUNDS = 100
FEW_ROUNDS = 20  # enough for the scales alone; the noise of many rows takes longer to settle, and is not needed


def prior_of(text: str) -> p.Prior:
    """The prior that `--prior` names; for "tuned", the one that tuning starts from.

    >>> prior_of("he"), prior_of("0.5")
    (HeNormal(gain=2.0, bias_scale=1.0), Normal(scale=0.5, loc=0.0))
    """
    if text in (TUNED, "he"):
        return p.HeNormal()
    try:
        return p.Normal(scale=float(text))
    except ValueError:
        raise TableError(
            f"--prior must be tuned, he, or the standard deviation of all weights, such as 0.5; got {text!r}"
        ) from None


def tuned_prior(problem: px.Problem, data: Any, seed: int) -> tuple[Any, float | None, str]:
    """Prior scales, one for each leaf, under which the data are most probable, the noise, and a line about them.

    The noise is None unless that at the most probable weights would be too small. If the scales cannot be found, the
    prior is the problem's own, and the line says why.
    """
    few_rows = underestimates_noise(problem, len(data[1]))
    try:
        tuned = p.tune(problem, data, noise="learned", key=seed, rounds=ROUNDS if few_rows else FEW_ROUNDS)
    except (FloatingPointError, ValueError, RuntimeError) as error:
        return problem.prior, None, f"the prior could not be tuned ({error}): N(0, 2 / fan-in) is used"
    scales = [scale for name, scale in tuned.tuning.scales.items() if "bias" not in name]
    shown = ", ".join(f"{scale:.2g}" for scale in scales)
    return (
        tuned.prior,
        tuned.tuning.noise if few_rows else None,
        f"prior: the standard deviations of the layers' weights that make the data most probable, {shown}",
    )
