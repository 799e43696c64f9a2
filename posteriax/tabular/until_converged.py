"""Run a method unattended: until it has converged, within a time limit, with gentler settings if it fails.

:class:`Budget` shares the time of several runs out among them.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from posteriax.diagnostics.chain_agreement import sample_indices
from posteriax.evaluation.comparison import RunEnd
from posteriax.methods.ensemble import Ensemble
from posteriax.posterior.draws import DrawsPosterior
from posteriax.posterior.posterior import Posterior
from posteriax.posterior.trace import Trace
from posteriax.problem import Problem
from posteriax.run.fitting import fit
from posteriax.run.stopping import StopRule
from posteriax.run.until_level import UntilLevel
from posteriax.tabular.point_noise import with_inferred_noise, with_settled_noise
from posteriax.tabular.recipes import Circumstances, MethodOrName, RecipeRun, recipe_of
from posteriax.tabular.reference import sample_reference, status_of

ROWS_TO_CHECK = 500
POINTS_TO_COMPARE = 200  # training rows, at which chains are compared by their predictions
DRAWS_TO_CHECK = 30
WORSE_THAN_START = 0.1  # nats per training example: a network may have been trained before
WORSE_THAN_MODE = 0.5  # nats per training example by which draws around a mode may be worse than the mode itself
TIME_TO_SAMPLE = 600.0  # seconds, if no limit is given: a sampler has no natural end


class Budget:
    """Seconds, shared out to named runs in proportion to their weights.

    Each run is given its share of what is left when it starts, so that the time that a run does not need goes to those
    after it, and the last one gets the rest.

    Args:
        seconds: in all.
        weights: of the runs, by name.
        clock: for tests.

    >>> now = iter([0.0, 10.0, 70.0])
    >>> budget = Budget(100.0, {"map": 1, "hmc": 3}, clock=lambda: next(now))
    >>> budget.share("map"), budget.share("hmc")
    (22.5, 30.0)
    """

    def __init__(self, seconds: float, weights: Mapping[str, float], clock: Callable[[], float] = time.monotonic):
        self.seconds, self.weights, self.clock = seconds, dict(weights), clock
        self.began = clock()

    def left(self) -> float:
        """Seconds that are left; 0 if there are none."""
        return max(self.seconds - (self.clock() - self.began), 0.0)

    def share(self, name: str) -> float:
        """Seconds for a run that starts now. Each run asks once."""
        total = sum(self.weights.values())
        return self.left() * self.weights.pop(name) / total


def seconds_of(text: str) -> float:
    """A time such as "10m" in seconds.

    >>> seconds_of("90"), seconds_of("90s"), seconds_of("10m"), seconds_of("1.5h")
    (90.0, 90.0, 600.0, 5400.0)
    """
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1.0)
    try:
        seconds = float(number) * unit
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < float("inf"):
        raise ValueError(f"a time is a number of seconds, or such as 90s, 10m or 1h; got {text!r}")
    return seconds


class MethodFailed(RuntimeError):
    """A method failed with all of its settings; `outcome` says how."""

    def __init__(self, method: object, outcome: RunEnd):
        super().__init__(f"{method} failed: {'; '.join(outcome.details)}")
        self.outcome = outcome


def fit_until_converged(
    problem: Problem,
    data: Any,
    method: MethodOrName,
    *,
    key: Any,
    seconds: float | None = None,
    images: bool = False,
    mode: RunEnd | None = None,
    length: Mapping[str, Any] | None = None,
    stop: StopRule | None = None,
    progress: bool | None = None,
) -> RunEnd:
    """Run a method until it has converged or its time is up, and check the result.

    Methods that keep single sets of weights get the noise of the marginal likelihood where the most probable one would
    be too small (point_noise.py), unless `length` or `stop` says when to end.

    A run whose values become infinite, or whose predictions of the training rows are worse than those of the untrained
    network, is repeated with gentler settings where there are any; if that fails too, its status is "failed".

    Args:
        problem: network, likelihood and prior.
        data: ``(x, y)`` or ``(x, y, weight)``, arrays.
        method: by name ("map", "mean-field", "swag", ...), or an object such as ``px.VI()``.
        key: an int or a JAX key.
        seconds: the time limit; by default none, and ten minutes for samplers. Where it ends a run, the result depends
            on the speed of the machine.
        images: whether examples are images.
        mode: the result of "map" for the same prior and data, for methods that start there; by default it is fitted.
        length: of the run, as ``px.fit`` takes it: ``{"steps": 2000}``; by default until it has converged. For
            "laplace", of the search for the mode.
        stop: such as ``px.evaluation.EarlyStopping(...)``, in place of :class:`px.run.UntilLevel`.
        progress: show a progress bar; by default if standard error is a terminal.

    >>> import equinox as eqx, jax, posteriax as px
    >>> (x, y), _ = px.data.two_moons(train=100)
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical())
    >>> fit_until_converged(problem, (x, y), "map", key=0).status
    'converged'
    """
    began, recipe = time.monotonic(), recipe_of(method)
    if stop is None or not stop.holds_out:  # the prior must not depend on rows that are held out
        problem = problem.for_data(data)
    if recipe.is_reference and length is None:
        points, limit = points_to_compare(data[0]), TIME_TO_SAMPLE if seconds is None else seconds
        (run,) = recipe.attempts(Circumstances(len(data[1]), images), None)
        return sample_reference(problem, data, points, seconds=limit, key=key, method=run.method, progress=progress)
    until_level = length is None and stop is None
    tried: list[str] = []
    if recipe.at_points and until_level:
        problem, notes = with_settled_noise(problem, data, key, None if mode is None else mode.posterior)
        tried += notes
    start: RunEnd | None = None
    if recipe.around_mode or (recipe.from_mode and until_level):
        half = None if seconds is None else seconds / 2
        start = mode
        if start is None or start.posterior is None:
            start = fit_until_converged(
                problem,
                data,
                "map",
                key=key,
                seconds=half,
                images=images,
                length=length if recipe.one_pass else None,
                progress=progress,
            )
    around = start if recipe.around_mode else None
    if around is not None and around.posterior is None:
        return replace(around, details=("the most probable weights could not be found", *around.details))
    begin_at = None if start is None or start.posterior is None else with_inferred_noise(start.posterior, problem)
    at_mode = None if around is None else begin_at
    for run in recipe.attempts(Circumstances(len(data[1]), images), begin_at):
        left = None if seconds is None else max(seconds - (time.monotonic() - began), 1.0)
        arguments = _arguments(run, left, None if recipe.one_pass else length, stop)
        try:
            posterior = fit(problem, data, run.method, key=key, progress=progress, **arguments)
        except (FloatingPointError, RuntimeError) as error:
            tried.append(f"failed: {error}")
            continue
        if wrong := why_unusable(posterior, problem, data, at_mode):
            tried.append(f"failed: {wrong}")
            continue
        return replace(_ended(posterior, data, around, tried), seconds=time.monotonic() - began)
    return RunEnd("failed", tuple(tried), time.monotonic() - began)


def _arguments(
    run: RecipeRun, seconds: float | None, length: Mapping[str, Any] | None, stop: StopRule | None
) -> dict[str, Any]:
    """What `px.fit` is given besides the method."""
    inner = run.method.method if isinstance(run.method, Ensemble) else run.method
    if stop is not None:
        return dict(length or run.arguments) | {"stop": stop}
    if length is not None:
        return dict(length)
    if inner.samples or inner.fixed_length:
        return run.arguments
    return run.arguments | {"stop": UntilLevel(seconds=seconds)}


def _ended(posterior: Posterior, data: Any, mode: RunEnd | None, tried: list[str]) -> RunEnd:
    """Whether a usable posterior has converged. One around a mode has if the search for the mode has."""
    if mode is not None:
        return replace(mode, posterior=posterior, details=(*tried, *posterior.trace.notes))
    diagnosis = posterior.diagnose(points_to_compare(data[0]))
    details = (*tried, *posterior.trace.notes, *diagnosis.verdict.splitlines())
    return RunEnd(status_of(diagnosis), details, posterior=posterior)


def points_to_compare(x: Any) -> Any:
    """A seeded sample of rows at which a run is judged: by the rule that ends it, by its status and by the estimators'
    warning, which might disagree at different rows."""
    rows = sample_indices(jax.tree.leaves(x)[0].shape[0], POINTS_TO_COMPARE)
    return jax.tree.map(lambda leaf: np.asarray(leaf)[rows], x)


def why_unusable(posterior: Posterior, problem: Problem, data: Any, mode: Posterior | None = None) -> str:
    """Why a posterior must not be shown as a result; empty if it is usable.

    Args:
        posterior: what a method returned.
        problem: what was inferred, with the untrained network.
        data: the training data.
        mode: the most probable weights, if the posterior is one around them.
    """
    weight = np.asarray(data[2], np.float64) if len(data) > 2 else np.ones(len(data[1]))
    chosen = np.random.default_rng(0).permutation(np.flatnonzero(weight))[:ROWS_TO_CHECK]
    x, y = jax.tree.map(lambda leaf: np.asarray(leaf)[chosen], data[0]), np.asarray(data[1])[chosen]

    def nll(candidate: Posterior) -> float:  # in which rows count as they do in training
        return -float(np.average(candidate.predict(x, DRAWS_TO_CHECK).log_prob(y), weights=weight[chosen]))

    reached, untrained = nll(posterior), nll(_untrained(problem.for_data(data)))
    if not np.isfinite(reached) or reached > untrained + WORSE_THAN_START:
        return (
            f"its predictions of the training rows are worse than those of the untrained network: negative log "
            f"likelihood {reached:.3g} instead of {untrained:.3g}"
        )
    if mode is not None and reached > (at_mode := nll(mode)) + WORSE_THAN_MODE:
        return (
            f"its predictions of the training rows are much worse than those of the mode it started at: negative log "
            f"likelihood {reached:.3g} instead of {at_mode:.3g}"
        )
    return ""


def _untrained(problem: Problem) -> Posterior:
    return DrawsPosterior(problem, Trace({}), jax.tree.map(lambda leaf: np.asarray(leaf)[None, None], problem.latents))
