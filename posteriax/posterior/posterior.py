"""Posteriors: what every method returns. They draw params, and predict.

Two kinds hold all methods' results: a posterior given by draws (MAP, HMC, deep ensembles) and one given by
variational parameters. Both have a leading axis of members, so that an ensemble is no third kind.
"""

from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from posteriax._internal.checks import as_key, check_count, check_inputs
from posteriax._internal.compiler import jit
from posteriax.families import Block, Family, Variational, blocks_of
from posteriax.families.arrays import RandomArray
from posteriax.posterior.prediction import PredictionPlan, plan_prediction
from posteriax.posterior.predictive.classes import ClassPredictive, ReducedClassPredictive
from posteriax.posterior.predictive.normals import NormalPredictive, ReducedNormalPredictive
from posteriax.posterior.predictive.protocol import Predictive
from posteriax.posterior.stored_draws import blocks_of_draws
from posteriax.posterior.trace import Trace
from posteriax.problem import Normal, Params, Problem, Unknowns

if TYPE_CHECKING:
    from posteriax.diagnostics import Diagnosis

DEFAULT_DRAWS = 100


@dataclass(frozen=True, eq=False)
class Posterior:
    """What was inferred: draw params from it, predict with it.

    Args:
        problem: what was asked.
        trace: what the run recorded.
    """

    problem: Problem
    trace: Trace

    @property
    @abstractmethod
    def support(self) -> int | None:
        """How many different draws there are; None if there is no end of them."""

    @property
    @abstractmethod
    def mean(self) -> Params:
        """The posterior mean of the network's params. (Not a good network by itself where there are several modes.)"""

    @property
    @abstractmethod
    def num_parameters(self) -> int:
        """How many numbers the posterior is made of."""

    @property
    def template(self) -> Unknowns:
        """Shapes and kinds of one draw: arrays, or array types for what is no plain array."""
        return self.problem.unknowns

    @abstractmethod
    def draw(self, key: jax.Array, indices: np.ndarray, total: int) -> Unknowns:
        """Those of `total` draws that `indices` names, with a leading axis; the same whether taken at once or not."""

    def sample(self, key: Any, n: int) -> Params:
        """`n` draws of the network's own params pytree, in a leading axis.

        A posterior that consists of draws gives them in random order, none a second time before all were given once.
        """
        n, key = check_count("n", n), as_key(key)
        if any(isinstance(leaf, RandomArray) for leaf in _leaves(self.template)):
            raise TypeError("factors that are added to inputs and outputs are no params to sample: use .predict(x)")
        if self.support is None:
            return self.draw(key, np.arange(n), n).network
        rounds = [
            jax.random.permutation(jax.random.fold_in(key, r), self.support) for r in range(-(-n // self.support))
        ]
        return self.draw(key, np.concatenate(rounds)[:n], self.support).network

    def predict(self, x: Any, draws: int | None = None, *, reduce: bool = False, key: Any = 0) -> Predictive:
        """Predictions for new inputs.

        Args:
            x: inputs, with a leading axis of N examples.
            draws: how many draws to average over; by default all there are, or 100 if there is no end of them.
                More than there are would only repeat them, so it stops there.
            reduce: keep only sums over the draws (probabilities, means, standard deviations, entropies), not the
                outputs of each: the memory then does not grow with the draws at all.
            key: what random draws are made from.

        Draws and examples are taken in chunks, so that the working memory stays below 256 MB whatever their number;
        without `reduce` the outputs of all draws, (S, N, ...), are returned in host memory.
        """
        x = check_inputs(x)
        spec = self.problem.output_spec(x)
        likelihood = self.problem.likelihood
        total = check_count("draws", draws if draws is not None else self.support or DEFAULT_DRAWS)
        total = min(total, self.support or total)
        plan = plan_prediction(self.problem, x, total, self.template, reduce=reduce)
        of_class = not isinstance(likelihood, Normal)
        if reduce:
            sums = self._reduced(plan, x, total, as_key(key))
            return (ReducedClassPredictive if of_class else ReducedNormalPredictive)(likelihood, sums, spec.shape)  # type: ignore[arg-type]
        outputs, unknowns = self._outputs(plan, x, spec, total, as_key(key))
        if of_class:
            return ClassPredictive(likelihood, outputs)
        return NormalPredictive(likelihood, outputs, unknowns)  # type: ignore[arg-type]

    def diagnose(self, x: Any = None, draws: int | None = None) -> "Diagnosis":
        """Can it be trusted? A table and a verdict to print: see :func:`posteriax.diagnostics.diagnose`.

        Args:
            x: test inputs, to compare chains by what they predict; without them only weights can be compared.
            draws: how many draws of each chain to look at, evenly spread; all by default.
        """
        from posteriax.diagnostics import diagnose  # it knows all kinds of posteriors, so it comes after them

        return diagnose(self, x, draws)

    def to_arviz(self) -> Any:
        """Draws and sampler statistics as ArviZ's InferenceData, for its plots. Needs ArviZ, and chains of draws."""
        from posteriax.diagnostics import to_arviz

        return to_arviz(self)

    def save(self, path: Any) -> None:
        """Write the posterior to a file that :func:`px.load` reads back. Safetensors and JSON: no code in it."""
        from posteriax.posterior.file import save  # it knows all kinds of posteriors, so it comes after them

        save(self, path)

    def _outputs(
        self, plan: PredictionPlan, x: Any, spec: Any, total: int, key: jax.Array
    ) -> tuple[np.ndarray, dict[str, Any]]:
        outputs = np.empty((total, *spec.shape), spec.dtype)
        own = []
        for first in range(0, total, plan.draws):
            kept = min(plan.draws, total - first)
            chosen = self._chosen(plan, first, total, key)
            own.append(jax.tree.map(lambda leaf, kept=kept: np.asarray(leaf[:kept]), chosen.likelihood))
            for start, chunk in plan.chunks(x):
                computed = np.asarray(plan.run(chosen, chunk, kept))
                outputs[first : first + kept, start : start + plan.rows] = computed[:kept, : spec.shape[0] - start]
        return outputs, jax.tree.map(lambda *parts: np.concatenate(parts), *own)

    def _reduced(self, plan: PredictionPlan, x: Any, total: int, key: jax.Array) -> Any:
        n = jax.tree.leaves(x)[0].shape[0]
        parts: dict[int, Any] = {}
        for first in range(0, total, plan.draws):
            chosen = self._chosen(plan, first, total, key)
            for start, chunk in plan.chunks(x):
                sums = jax.device_get(plan.run(chosen, chunk, min(plan.draws, total - first)))
                parts[start] = sums if start not in parts else jax.device_get(parts[start].plus(sums))
        whole = jax.tree.map(lambda *rows: np.concatenate(rows)[:n] if rows[0].ndim else rows[0], *parts.values())
        return whole

    def _chosen(self, plan: PredictionPlan, first: int, total: int, key: jax.Array) -> Unknowns:
        # the last chunk repeats its last draw, so that one compiled program serves all
        return self.draw(key, np.minimum(np.arange(first, first + plan.draws), total - 1), total)


@dataclass(frozen=True, eq=False)
class DrawsPosterior(Posterior):
    """A posterior given by draws: the states of chains, the members of an ensemble, or a single point.

    Args:
        draws: all unknowns with two leading axes, (chains or members, draws of each): arrays, or for large runs with a
            checkpoint :class:`~posteriax.posterior.stored_draws.StoredDraws`, which are read from its folder.
    """

    draws: Unknowns

    @property
    def support(self) -> int:
        chains, each = jax.tree.leaves(self.draws)[0].shape[:2]
        return chains * each

    @property
    def mean(self) -> Params:
        return jax.tree.map(_mean_of_draws, self.draws.network)

    @property
    def num_parameters(self) -> int:
        return sum(leaf.size for leaf in jax.tree.leaves(self.draws))

    def draw(self, key: jax.Array, indices: np.ndarray, total: int) -> Unknowns:
        # evenly spread over chains and along them; repeated evenly where there are fewer draws than asked for
        chosen = (np.asarray(indices) * self.support) // total if total < self.support else indices % self.support
        each = jax.tree.leaves(self.draws)[0].shape[1]
        return jax.tree.map(lambda leaf: jnp.asarray(leaf[chosen // each, chosen % each]), self.draws)


@dataclass(frozen=True, eq=False)
class VariationalPosterior(Posterior):
    """A posterior given by variational parameters; an even mixture if there are several members.

    Args:
        families: the family of every leaf, by path.
        variational: the parameters of every block of leaves, by the path of its first leaf, with a leading axis of
            members.
    """

    families: dict[str, Family]
    variational: dict[str, Variational]

    @property
    def members(self) -> int:
        return jax.tree.leaves(self.variational)[0].shape[0]

    @property
    def components(self) -> int:
        """How many components each member has, if its families are of a mixture."""
        return max(family.components or 1 for family in self.families.values())

    @property
    def blocks(self) -> tuple[Block, ...]:
        return blocks_of(tuple(self.families.values()), self.problem.leaf_infos)

    @property
    def support(self) -> int | None:
        endless = any(family.random for family in self.families.values())
        return None if endless else self.members * self.components

    @property
    def template(self) -> Unknowns:
        draws = jax.eval_shape(lambda: self.draw(jax.random.key(0), np.arange(1), 1))
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), draws)

    @property
    def mean(self) -> Params:
        means: list[Any] = [None] * len(self.families)
        for block in self.blocks:
            joined = jax.vmap(block.family.mean)(self.variational[block.name]).mean(axis=0)
            for i, leaf in zip(block.indices, block.part(joined), strict=True):
                means[i] = leaf
        return jax.tree.unflatten(jax.tree.structure(self.problem.unknowns), means).network

    @property
    def num_parameters(self) -> int:
        return sum(leaf.size for leaf in jax.tree.leaves(self.variational))

    def draw(self, key: jax.Array, indices: np.ndarray, total: int) -> Unknowns:
        # draws go round the members, and round the components of each
        members, components = indices % self.members, indices // self.members % self.components
        choices = (jnp.asarray(choice) for choice in (indices, members, components))
        variational = {block.name: self.variational[block.name] for block in self.blocks}
        leaves = _draw_leaves(self.blocks, variational, key, *choices)
        return jax.tree.unflatten(jax.tree.structure(self.problem.unknowns), leaves)


@partial(jit, static_argnums=0)
def _draw_leaves(
    blocks: tuple[Block, ...],
    variational: dict[str, Variational],
    key: jax.Array,
    indices: jax.Array,
    members: jax.Array,
    components: jax.Array,
) -> list[Any]:
    """Draw number `index` of every leaf from that member and component, for all indices."""

    def one(index: jax.Array, member: jax.Array, component: jax.Array) -> list[Any]:
        keys = jax.random.split(jax.random.fold_in(key, index), len(blocks))
        drawn: dict[int, Any] = {}
        for block, block_key in zip(blocks, keys, strict=True):
            own = jax.tree.map(lambda leaf: leaf[member], variational[block.name])
            value = block.family.sample(block.family.component(own, component), block_key)
            drawn |= dict(zip(block.indices, block.part(value), strict=True))
        return [drawn[i] for i in range(len(drawn))]

    return jax.vmap(one)(indices, members, components)


def _mean_of_draws(leaf: Any) -> jax.Array:
    total = sum(block.sum(axis=(0, 1), dtype=np.float64) for block in blocks_of_draws(leaf))
    return jnp.asarray(total / (leaf.shape[0] * leaf.shape[1]), leaf.dtype)


def _leaves(tree: Any) -> list[Any]:
    return jax.tree.leaves(tree, is_leaf=lambda leaf: isinstance(leaf, RandomArray))
