"""Laplace's approximation: a Gaussian at a mode, whose precision is the curvature of the log joint there.

    q(w) = N(w*, [ (G + P) / T ]^-1)        G: Gauss-Newton matrix of the data, P: curvature of -log p(w), at w*
    log p(D) ~ log p(D, w*) + (d / 2) log 2 pi - (1/2) log det(G + P)        at T = 1, over d weights

G is a sum over examples (gauss_newton.py), collected in exactly one epoch in which the weights stand still: the last
whole one after training; the first one if there is nothing to train.
(MacKay 1992, Ritter et al. 2018, Daxberger et al. 2021)
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from posteriax._internal.checks import check_choice, check_count
from posteriax._internal.leaf_paths import select_paths
from posteriax.data.batches import Batch
from posteriax.methods.curvature import mode
from posteriax.methods.curvature.structures import Collected, Structure, gaussian_of, structure_of
from posteriax.methods.ensemble import same_for_all_members
from posteriax.methods.map import MAP, MAPKernel
from posteriax.methods.method import Kernel, Method, Task
from posteriax.methods.vi_start import why_no_mode
from posteriax.posterior.draws import DrawsPosterior
from posteriax.posterior.linearisation import linearised
from posteriax.posterior.posterior import Posterior
from posteriax.posterior.trace import Trace
from posteriax.problem import Latents


@dataclass(frozen=True, kw_only=True, eq=False)
class Laplace(Method):
    """A Gaussian at the most probable weights, as wide as the curvature there says.

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
    def start(self) -> Any:
        return self.mode if isinstance(self.mode, Posterior) else "network"

    def bind(self, task: Task) -> "LaplaceKernel":
        problem, epoch = task.problem, task.steps_per_epoch
        problem.require_density("Laplace")
        if task.couples_examples:
            raise ValueError(
                "the network's outputs for one example depend on the others in its batch (batch statistics), so the "
                f"curvature of its likelihood is not a sum over examples. {problem.network.how_to_uncouple}"
            )
        newton = self.mode == "train" and not why_no_mode(task) and mode.is_linear(problem.network, task.example)
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
        plan = structure_of(self.structure, task, chosen, self.rank)
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
    plan: Any

    def init(self, key: jax.Array, start: Latents, batch: Batch) -> "State":
        if self.newton:
            if len(batch.y) < self.task.num_examples:
                raise ValueError("the mode of a linear model is found from the whole data set: give arrays (x, y)")
            found = mode.find_mode(lambda latents: self.problem.log_joint(latents, batch), start)
            start = ravel_pytree(start)[1](found.value)
        train, collect = jax.random.split(key)
        return State(self.trainer.init(train, start, batch), jnp.zeros((), jnp.int32), self.plan.nothing(collect))

    def step(self, key: jax.Array, state: "State", batch: Batch) -> tuple["State", "Info"]:
        problem, epoch = self.problem, self.task.steps_per_epoch

        def train() -> tuple[Any, Collected, jax.Array, jax.Array]:
            trained, info = self.trainer.step(key, state.trained, batch)
            return trained, state.collected, info.log_joint, info.nll_per_example

        def stand_still() -> tuple[Any, Collected, jax.Array, jax.Array]:
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

    def finish(self, states: "State", draws: Any, trace: Trace) -> Posterior:
        posterior = gaussian_of(self.plan, self.problem, states.trained.latents, states.collected, trace)
        return linearised(posterior) if self.method.predictive == "linearised" else posterior


class State(NamedTuple):
    trained: Any
    step: jax.Array
    collected: Collected


class Info(NamedTuple):
    log_joint: jax.Array  # its estimate from the step's batch
    nll_per_example: jax.Array
