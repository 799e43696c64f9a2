"""Laplace's approximation: a Gaussian at a mode, whose precision is the curvature of the log joint there.

    q(w) = N(w*, [ (G + P) / T ]^-1)        G: Gauss-Newton matrix of the data, P: curvature of -log p(w), at w*
    log p(D) ~ log p(D, w*) + (d / 2) log 2 pi - (1/2) log det(G + P)        at T = 1, over d weights

G is a sum over examples (gauss_newton.py), collected in exactly one epoch in which the weights stand still: the last
complete one after training; the first one if there is nothing to train.
(MacKay 1992, Ritter et al. 2018, Daxberger et al. 2021)
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from scipy.linalg import cho_solve, cholesky

from posteriax._internal.checks import check_choice, check_count
from posteriax._internal.leaf_paths import select_paths
from posteriax.data.batches import Batch
from posteriax.families.family import Family
from posteriax.families.full_covariance import FullCovariance
from posteriax.families.low_rank import LowRankPrecision
from posteriax.families.normal import Normal
from posteriax.families.point import Point
from posteriax.families.rotated_normal import RotatedNormal
from posteriax.methods.curvature import gauss_newton
from posteriax.methods.curvature.mode import find_mode, why_no_mode
from posteriax.methods.curvature.sketch import leading_eigenpairs
from posteriax.methods.curvature.structures import (
    Collected,
    CurvaturePlan,
    Structure,
    as_matrix,
    plan_curvature,
    prior_curvature,
)
from posteriax.methods.ensemble import same_for_all_members
from posteriax.methods.map import MAP, MAPKernel
from posteriax.methods.map import State as TrainedState
from posteriax.methods.method import Draws, Kernel, Method, Task
from posteriax.networks.leaf import Leaf
from posteriax.networks.tracing.linearity import is_linear
from posteriax.posterior.draws import DrawsPosterior
from posteriax.posterior.linearisation import linearised
from posteriax.posterior.posterior import Posterior
from posteriax.posterior.trace import Trace
from posteriax.posterior.variational import VariationalPosterior
from posteriax.problem import Latents, Problem

LOST = 1e-12  # of the largest eigenvalue: smaller ones are zeros with rounding errors


@dataclass(frozen=True, kw_only=True, eq=False)
class Laplace(Method):
    """A Gaussian at the most probable weights, with its width from the curvature there.

    Args:
        structure: of the covariance: "diagonal"; "kronecker", one factor for the inputs and one for the outputs of
            every layer, in whose joint basis the prior is exact too; "full", over all weights at once; "low-rank", the
            prior's, narrowed along the `rank` directions about which the data say most.
        over: which leaves are random, as a path pattern: ``"out/**"`` is a last-layer Laplace. The others are points.
        mode: where the mode comes from. "train" finds it like ``px.MAP()`` does (models that are linear in few
            weights by Newton steps, which need no more than one epoch); "network" takes the network's own weights,
            which have been trained elsewhere; a fitted posterior, such as that of ``px.MAP()``, gives its own. The last
            two take one epoch.
        predictive: "linearised" predicts with f(x, w*) + J(x) (w - w*), the model whose posterior the Gaussian is;
            "draws" with the network at draws of the weights, which for deep networks is usually worse.
        optimizer: of "train".
        rank: of "low-rank".

    The trace has `log_evidence`, the logarithm of the marginal likelihood p(D), to compare networks and priors by.

    >>> import equinox as eqx, jax, posteriax as px
    >>> (x, y), (x_test, _) = px.data.two_moons()
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical())
    >>> at_mode = px.fit(problem, (x, y), px.MAP(), epochs=20, key=0)
    >>> posterior = px.fit(problem, (x, y), px.Laplace(mode=at_mode), epochs=1, key=0)
    >>> posterior.predict(x_test).probs.shape
    (500, 2)
    """

    structure: Structure = "kronecker"
    over: str = "**"
    mode: Literal["train", "network"] | Posterior = "train"
    predictive: Literal["linearised", "draws"] = "linearised"
    optimizer: optax.GradientTransformation | None = None
    rank: int = 20
    fixed_length: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_choice("structure", self.structure, ("diagonal", "kronecker", "full", "low-rank"))
        check_count("rank", self.rank)
        check_choice("predictive", self.predictive, ("linearised", "draws"))
        if not isinstance(self.mode, Posterior):
            check_choice("mode", self.mode, ("train", "network"))
        elif not isinstance(self.mode, DrawsPosterior) or self.mode.draws_per_chain > 1:
            raise ValueError(f"mode must be a posterior of one point, such as that of px.MAP(), got {self.mode!r}")

    @property
    def start(self) -> str | Posterior:
        return self.mode if isinstance(self.mode, Posterior) else "network"

    def bind(self, task: Task) -> "LaplaceKernel":
        problem, epoch = task.problem, task.steps_per_epoch
        problem.require_density("Laplace")
        if task.couples_examples:
            raise ValueError(
                "the network's outputs for one example depend on the others in its batch (batch statistics), so the "
                f"curvature of its likelihood is not a sum over examples. {problem.network.how_to_uncouple}"
            )
        newton = self.mode == "train" and not why_no_mode(task) and is_linear(problem.network, task.example)
        if self.mode == "train" and not newton:
            # batches of two epochs overlap, so the curvature must not be collected across their border
            training = (task.steps // epoch - 1) * epoch
            if training < 1:
                raise ValueError(
                    "Laplace trains first and needs one more epoch for the curvature: use epochs=2 or more"
                )
        else:
            training = 0
            if self.mode != "train" and task.steps != epoch:
                raise ValueError("the mode is given, so Laplace needs one epoch for the curvature: use epochs=1")
            if task.steps < epoch:
                raise ValueError(
                    f"Laplace needs one epoch for the curvature, {epoch} steps, but the run has {task.steps}: use "
                    f"epochs=1"
                )
        chosen = select_paths(self.over, problem.leaf_names[: len(jax.tree.leaves(problem.network.params))])
        plan = plan_curvature(self.structure, task, chosen, self.rank)
        notes = (*plan.notes, *(("the mode was found by Newton steps",) if newton else ()))
        if task.steps > training + epoch:
            notes += (f"the steps after number {training + epoch:,} were not needed: one epoch gives the curvature",)
        trainer = MAP(self.optimizer).bind(replace(task, steps=max(training, 1)))
        return LaplaceKernel(
            method=self, task=task, notes=notes, trainer=trainer, training=training, newton=newton, plan=plan
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class LaplaceKernel(Kernel):
    method: Laplace
    trainer: MAPKernel
    training: int  # steps before the curvature is collected, for one epoch
    newton: bool
    plan: CurvaturePlan

    def init(self, key: jax.Array, start: Latents, batch: Batch) -> "State":
        if self.newton:
            if len(batch.y) < self.task.num_examples:
                raise ValueError("the mode of a linear model is found from the whole data set: give arrays (x, y)")
            mode = find_mode(lambda latents: self.problem.log_joint(latents, batch), start)
            start = ravel_pytree(start)[1](mode.value)
        train, collect = jax.random.split(key)
        return State(self.trainer.init(train, start, batch), jnp.zeros((), jnp.int32), self.plan.nothing(collect))

    def step(self, key: jax.Array, state: "State", batch: Batch) -> tuple["State", "Info"]:
        problem, epoch = self.problem, self.task.steps_per_epoch

        def train() -> tuple[TrainedState, Collected, jax.Array, jax.Array]:
            trained, info = self.trainer.step(key, state.trained, batch)
            return trained, state.collected, info.log_joint, info.nll_per_example

        def stand_still() -> tuple[TrainedState, Collected, jax.Array, jax.Array]:
            latents = state.trained.latents
            # an epoch of batches has the whole data set `epoch` times over
            share = batch._replace(weight=batch.weight / epoch)
            log_likelihood = problem.log_likelihood(latents, share)
            collected = collect(latents, share, log_likelihood)
            joint = (epoch * log_likelihood + problem.log_prior(latents)) / problem.temperature
            return state.trained, collected, joint, -epoch * log_likelihood / self.task.counted_examples

        def collect(latents: Latents, share: Batch, log_likelihood: jax.Array) -> Collected:
            add = lambda: self.plan.add(state.collected, latents, share, log_likelihood)  # noqa: E731
            end = self.training + epoch
            if end == self.task.steps:
                return add()
            return jax.lax.cond(same_for_all_members(state.step < end), add, lambda: state.collected)

        if self.training == 0:
            trained, collected, joint, nll = stand_still()
        else:
            trained_enough = same_for_all_members(state.step >= self.training)
            trained, collected, joint, nll = jax.lax.cond(trained_enough, stand_still, train)
        return State(trained, state.step + 1, collected), Info(joint, nll)

    def finish(self, states: "State", draws: Draws, trace: Trace) -> Posterior:
        posterior = _gaussian_posterior(self.plan, self.problem, states.trained.latents, states.collected, trace)
        return linearised(posterior) if self.method.predictive == "linearised" else posterior


class State(NamedTuple):
    trained: TrainedState
    step: jax.Array
    collected: Collected


class Info(NamedTuple):
    log_joint: jax.Array  # its estimate from the step's batch
    nll_per_example: jax.Array


def _gaussian_posterior(
    plan: CurvaturePlan, problem: Problem, modes: Latents, collected: Collected, trace: Trace
) -> VariationalPosterior:
    """The posterior of all members, with the log evidence of each in the trace."""
    members = jax.tree.leaves(modes)[0].shape[0]
    by_member = [jax.tree.map(lambda a, m=m: np.asarray(a[m]), (modes, collected)) for m in range(members)]
    # one program for all leaves: a curvature by itself takes some twenty small ones
    curvatures = jax.jit(lambda leaves: list(map(prior_curvature, problem.leaf_priors, leaves)))
    gaussians = [_member_gaussian(plan, problem, curvatures, *member) for member in by_member]
    families, parameters = gaussians[0][0], [gaussian[1] for gaussian in gaussians]
    variational = jax.tree.map(lambda *leaves: np.stack(leaves), *parameters)
    evidence = np.array(
        [_log_evidence(problem, families, q, *member) for q, member in zip(parameters, by_member, strict=True)]
    )
    arrays = {**trace.arrays, "log_evidence": evidence if members > 1 else evidence[0]}
    return VariationalPosterior(problem, replace(trace, arrays=arrays), families, variational)


def _member_gaussian(
    plan: CurvaturePlan,
    problem: Problem,
    curvatures: Callable[[list[Any]], list[jax.Array]],
    mode: Latents,
    collected: Collected,
) -> tuple[dict[str, Family], dict[str, Any]]:
    """The family and its parameters, for each leaf or block of leaves."""
    names, leaves = problem.leaf_names, jax.tree.leaves(mode)
    precisions = [np.asarray(curvature, np.float64) for curvature in curvatures(leaves)]
    families: dict[str, Family] = {name: Point() for name in names}
    variational: dict[str, Any] = {name: {"value": leaf} for name, leaf in zip(names, leaves, strict=True)}
    full, diagonal, layers = collected.curvature
    temperature = problem.temperature
    for group, matrix in zip(plan.full, full, strict=True):
        over: Literal["network", "leaf"] = "network" if len(group) > 1 else "leaf"
        flat = np.concatenate([precisions[i].reshape(-1) for i in group])
        covariance = temperature * _inverse(as_matrix(matrix), flat, names[group[0]])
        mean = np.concatenate([leaves[i].reshape(-1) for i in group]) if over == "network" else leaves[group[0]]
        for i in group:
            families[names[i]] = FullCovariance(over)
            variational.pop(names[i])
        variational[names[group[0]]] = {"mean": mean, **_triangle(covariance)}
    for i, values in zip(plan.diagonal, diagonal, strict=True):
        variance = temperature / (np.asarray(values, np.float64) + precisions[i])
        families[names[i]] = Normal()
        variational[names[i]] = {"mean": leaves[i], "log_scale": (0.5 * np.log(variance)).astype(np.float32)}
    for i, sums in layers.items():
        families[names[i]] = RotatedNormal()
        precision = float(precisions[i].mean())
        variational[names[i]] = {"mean": leaves[i], **_rotated(sums, problem.leaf_infos[i], precision, temperature)}
    if collected.sketch is not None:
        along, vectors = leading_eigenpairs(collected.sketch, plan.rank)
        family = LowRankPrecision(plan.rank, "network")
        for i in plan.low_rank:
            families[names[i]] = family
            variational.pop(names[i])
        prior = np.concatenate([precisions[i].reshape(-1) for i in plan.low_rank])
        variational[names[plan.low_rank[0]]] = {
            "mean": np.concatenate([leaves[i].reshape(-1) for i in plan.low_rank]),
            "log_scale": (0.5 * np.log(temperature / prior)).astype(np.float32),
            "directions": (vectors * np.sqrt(along)).astype(np.float32),
        }
    return families, variational


def _inverse(matrix: np.ndarray, precision: np.ndarray, name: str) -> np.ndarray:
    """(G + P)^-1. Eigenvalues of G that are lost in float32 count as 0 if it would not be positive otherwise."""
    with_prior = matrix + np.diag(precision)
    if precision.min() == 0:
        values = np.linalg.eigvalsh(with_prior)
        if values[0] < LOST * values[-1]:
            raise ValueError(
                f"the curvature of {name} is singular: the data do not determine all weights, and the prior has no "
                f"curvature at the mode. Use a prior that has, such as p.Normal()"
            )
    try:
        factor = cholesky(with_prior, lower=True)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(matrix)
        known = np.where(values > np.finfo(np.float32).eps * values[-1], values, 0.0)
        factor = cholesky((vectors * known) @ vectors.T + np.diag(precision), lower=True)
    return cho_solve((factor, True), np.eye(len(matrix)))


def _triangle(covariance: np.ndarray) -> dict[str, np.ndarray]:
    """The parameters of q.FullCovariance."""
    factor = np.linalg.cholesky((covariance + covariance.T) / 2)
    diagonal = np.diag(factor)
    below = (factor / diagonal[:, None])[np.tril_indices(len(factor), -1)]
    return {"log_diagonal": np.log(diagonal).astype(np.float32), "lower": below.astype(np.float32)}


def _rotated(sums: gauss_newton.Kronecker, leaf: Leaf, precision: float, temperature: float) -> dict[str, np.ndarray]:
    """The parameters of q.RotatedNormal: A (x) B + precision, inverted in the basis of its eigenvectors."""
    inputs = np.asarray(sums.inputs, np.float64) / float(sums.positions)
    outputs = np.asarray(sums.outputs, np.float64)
    (a, by_inputs), (b, by_outputs) = (np.linalg.eigh(matrix) for matrix in (inputs, outputs))
    first, second = (b, a) if gauss_newton.outputs_first(leaf) else (a, b)
    left, right = (by_outputs, by_inputs) if gauss_newton.outputs_first(leaf) else (by_inputs, by_outputs)
    variance = temperature / (np.maximum(np.outer(first, second), 0.0) + precision)
    arrays = {"log_scale": 0.5 * np.log(variance), "left": left, "right": right}
    return {name: value.astype(np.float32) for name, value in arrays.items()}


def _log_evidence(
    problem: Problem,
    families: dict[str, Family],
    variational: dict[str, Any],
    mode: Latents,
    collected: Collected,
) -> float:
    """log p(D, w*) + H(q) - d / 2, which is the formula above; NaN at a temperature other than 1."""
    if problem.temperature != 1.0:
        return float("nan")
    blocks = VariationalPosterior(problem, Trace({}), families, variational).blocks
    random = [block for block in blocks if block.family.random]
    entropy = sum(float(block.family.entropy(variational[block.name])) for block in random)
    size = sum(np.size(block.family.mean(variational[block.name])) for block in random)
    return float(collected.log_likelihood) + float(problem.log_prior(mode)) + entropy - size / 2
