"""Posterior: what every method returns. Draw params from it, predict with it.

Two kinds cover all methods: one given by draws (MAP, HMC, deep ensembles), in draws.py, and one given by variational
parameters, in variational.py. Both have a leading axis of members, so an ensemble needs no third kind.
A posterior that draws its weights from another one and predicts with them differently derives from `WrappedPosterior`.
"""

import math
import os
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.sharding import Mesh

import posteriax
from posteriax import distributed
from posteriax._internal.checks import as_key, check_count, check_inputs
from posteriax._internal.memory import ChunkPlan
from posteriax._internal.pickling import dumps
from posteriax.families.arrays.random_array import RandomArray
from posteriax.likelihoods.predictive import Predictive, Sums
from posteriax.networks.network import Network, Params
from posteriax.posterior.prediction import Spread, apply_draws, plan_program, sum_draws
from posteriax.posterior.trace import Trace
from posteriax.problem import Inputs, Key, Latents, Problem

if TYPE_CHECKING:
    from posteriax.diagnostics.diagnosis import Diagnosis
    from posteriax.posterior.export.exporting import Export, Format

DEFAULT_DRAWS = 100


@dataclass(frozen=True, eq=False)
class Posterior:
    """The result of inference: draw params from it, predict with it.

    Args:
        problem: network, likelihood and prior.
        trace: what the run recorded.
    """

    problem: Problem
    trace: Trace

    @property
    def drawn_from(self) -> "Posterior":
        """The posterior that the weights are drawn from: this one, unless it wraps another."""
        return self

    @property
    @abstractmethod
    def support(self) -> int | None:
        """The number of distinct draws; None if there is no limit."""

    @property
    @abstractmethod
    def mean(self) -> Params:
        """The posterior mean of the network's params. (Not a good network by itself if there are several modes.)"""

    @property
    def network(self) -> Network:
        """The network with the posterior mean for its weights. For ``px.MAP`` this is the trained network.

        >>> import equinox as eqx, jax, posteriax as px
        >>> (x, y), _ = px.data.two_moons()
        >>> net = eqx.nn.MLP(2, 2, 16, 1, key=jax.random.key(0))
        >>> trained = px.fit(px.Problem(net, px.Categorical()), (x, y), px.MAP(), steps=50, key=0).network
        >>> last_layer = px.Problem(trained, px.Categorical(), fixed="!layers/1")
        >>> last_layer.network.num_parameters
        34
        """
        return replace(unfixed(self.problem.network), params=self.mean)

    @property
    @abstractmethod
    def num_parameters(self) -> int:
        """How many numbers describe the posterior."""

    @property
    def log_evidence(self) -> float | None:
        """log p(D), the marginal likelihood of the data in nats, where the method estimates it; otherwise None.

        :class:`px.Laplace` does, at temperature 1. Use it to compare priors, noise and networks on the same training
        data: the larger, the better they predicted these data. An ensemble has the largest of its members' estimates,
        each of which counts only the mass around its own mode; ``trace["log_evidence"]`` has them all.
        (:class:`px.VI` has a lower bound, ``trace["elbo"]``.)

        >>> import numpy as np, posteriax as px
        >>> net = lambda w, x: x @ w, np.zeros((1, 1), np.float32)
        >>> x, y = np.array([[1.0]]), np.array([[2.0]])
        >>> problem = px.Problem(net, px.Normal(scale=1.0))  # y = w x + noise: log p(y) = log N(2; 0, 1 + 1)
        >>> round(px.fit(problem, (x, y), px.Laplace(), epochs=1, key=0).log_evidence, 3)
        -2.266
        """
        if "log_evidence" not in self.trace:
            return None
        largest = float(np.max(self.trace["log_evidence"]))
        return None if math.isnan(largest) else largest

    @property
    def template(self) -> Latents:
        """The structure of one draw: arrays, or array types for leaves that are not plain arrays."""
        return self.problem.latents

    @abstractmethod
    def draw(self, key: jax.Array, indices: np.ndarray, total: int) -> Latents:
        """The draws with these indices out of `total`, in a leading axis, however they are split over calls."""

    def sample(self, key: Key, n: int) -> Params:
        """`n` draws of the network's params pytree, in a leading axis.

        A posterior given by draws returns them in random order, and repeats none before all have been returned once.
        Fixed leaves are the same in all draws: read-only NumPy views of one copy.
        """
        n, key = check_count("n", n), as_key(key)
        if any(isinstance(leaf, RandomArray) for leaf in _leaves(self.template)):
            raise TypeError("factors that are added to inputs and outputs cannot be sampled as params: use .predict(x)")
        if self.support is None:
            return self._all_params(self.draw(key, np.arange(n), n), n)
        rounds = [
            jax.random.permutation(jax.random.fold_in(key, r), self.support) for r in range(-(-n // self.support))
        ]
        return self._all_params(self.draw(key, np.concatenate(rounds)[:n], self.support), n)

    def predict(
        self, x: Inputs, draws: int | None = None, *, reduce: bool = False, key: Key = 0, mesh: Mesh | None = None
    ) -> Predictive:
        """Predictions for new inputs.

        Args:
            x: inputs, with a leading axis of N examples.
            draws: how many draws to average over; by default all, or 100 if there is no limit. At most as many as there
                are: more would only repeat them.
            reduce: keep only sums over the draws (probabilities, means, standard deviations, entropies), not the
                outputs of each: memory then does not grow with the number of draws.
            key: an int or a JAX key for random draws.
            mesh: ``px.distributed.mesh(members=2, data=4)`` splits draws over two groups of four devices, and examples
                over the devices of a group; with `reduce`, examples over all. By default the mesh of
                ``px.distributed.use_mesh``, or one device.

        Draws and examples are processed in chunks, so that working memory stays below 256 MB; without `reduce` the
        outputs of all draws, (S, N, ...), are returned in host memory.
        """
        x = check_inputs(x)
        spec = self.problem.output_spec(x)
        likelihood = self.problem.likelihood
        total = check_count("draws", draws if draws is not None else self.support or DEFAULT_DRAWS)
        total = min(total, self.support or total)
        program = sum_draws if reduce else apply_draws
        spread = Spread.over(
            distributed.current_mesh() if mesh is None else mesh,
            reduces=reduce,
            couples_examples=lambda: self.problem.couples_examples(x),
        )
        plan = plan_program(program, self.problem, x, total, self.template, spread=spread)
        if reduce:
            return likelihood.reduced_predictive(self._sums(plan, x, total, as_key(key)), spec.shape)
        return likelihood.predictive(*self._outputs(plan, x, spec, total, as_key(key)))

    def diagnose(self, x: Inputs | None = None, draws: int | None = None) -> "Diagnosis":
        """Whether it has converged: a table and a verdict to print. See :func:`posteriax.diagnostics.diagnose`.

        Args:
            x: test inputs, to compare chains by their predictions; without them only weights can be compared.
            draws: how many draws of each chain to examine, evenly spaced; all by default.
        """
        return posteriax.diagnostics.diagnose(self, x, draws)

    def to_arviz(self) -> Any:
        """Draws and sampler statistics as ArviZ's InferenceData, for its plots. Needs ArviZ, and chains of draws."""
        return posteriax.diagnostics.to_arviz(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the posterior to a file that :func:`px.load` reads back. Safetensors and JSON: no code in it."""
        from posteriax.posterior.file import save  # imports all kinds of posteriors, so it cannot come first

        save(self, path)

    def export(
        self,
        path: str | os.PathLike[str],
        x_example: Inputs,
        format: "Format | None" = None,
        *,
        draws: int | None = None,
        key: Key = 0,
        quantiles: Sequence[float] = (0.05, 0.25, 0.5, 0.75, 0.95),
        results: Sequence[str] | None = None,
    ) -> "Export":
        """Write everything that the posterior predicts, its draws inside, to a file that needs no posteriax.

        Args:
            path: the file, or for NumPy the folder. It is replaced only by a complete one that agrees with `predict`.
            x_example: some inputs, for their shapes and for that comparison.
            format: "stablehlo" (JAX loads it), "onnx" (needs the extra `onnx`) or "numpy" (a folder; dense networks);
                by default what the path ends in, or "stablehlo".
            draws: how many draws are inside; by default as for `predict`. File and time grow with it.
            key: an int or a JAX key for random draws.
            quantiles: their levels.
            results: names of those to keep; by default all. docs/export.md lists them.

        Returns:
            Size, and the largest difference from `predict`; print it.

        >>> import equinox as eqx, jax, tempfile, posteriax as px
        >>> net = eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0))
        >>> (x, y), _ = px.data.two_moons()
        >>> posterior = px.fit(px.Problem(net, px.Categorical()), (x, y), px.MAP(), steps=10, key=0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     exported = posterior.export(f"{folder}/moons.stablehlo", x)
        ...     again = px.load(f"{folder}/moons.stablehlo")
        >>> exported.largest_difference < 1e-5, again.predict(x[:3]).probs.shape
        (True, (3, 2))
        """
        from posteriax.posterior.export.exporting import export  # imports all kinds of posteriors

        return export(self, path, x_example, format, draws=draws, key=key, quantiles=quantiles, results=results)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle: the posterior as in its file, and the network as it was given to posteriax."""
        from posteriax.posterior.file import to_bytes, unpickle

        source = unfixed(self.problem.network).source
        if source is None:
            raise TypeError("this posterior's network was not made by px.network, so it cannot be pickled: use .save")
        return unpickle, (to_bytes(self), dumps(source))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._size()}, {self.problem.likelihood!r})"

    def _size(self) -> str:
        weights = f"{self.problem.network.num_parameters:,} weights"
        return weights if self.support is None else f"{self.support:,} draws of {weights}"

    def _all_params(self, draws: Latents, n: int) -> Params:
        return self.problem.network.all_params(draws.network, (n,))

    def _outputs(
        self, plan: ChunkPlan, x: Inputs, spec: jax.ShapeDtypeStruct, total: int, key: jax.Array
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        outputs = np.empty((total, *spec.shape), spec.dtype)
        latents = []
        for first in range(0, total, plan.draws):
            indices, kept = plan.chosen(first, total)
            chosen = self.draw(key, indices, total)
            latents.append(jax.tree.map(lambda leaf, kept=kept: np.asarray(leaf[:kept]), chosen.likelihood))
            for start, chunk in plan.chunks(x):
                computed = np.asarray(plan.run(chosen, chunk, kept))
                outputs[first : first + kept, start : start + plan.rows] = computed[:kept, : spec.shape[0] - start]
        return outputs, jax.tree.map(lambda *parts: np.concatenate(parts), *latents)

    def _sums(self, plan: ChunkPlan, x: Inputs, total: int, key: jax.Array) -> Sums:
        n = jax.tree.leaves(x)[0].shape[0]
        parts: dict[int, Any] = {}
        for first in range(0, total, plan.draws):
            indices, kept = plan.chosen(first, total)
            chosen = self.draw(key, indices, total)
            for start, chunk in plan.chunks(x):
                sums = jax.device_get(plan.run(chosen, chunk, kept))
                parts[start] = sums if start not in parts else jax.device_get(parts[start].join(sums))
        return jax.tree.map(lambda *rows: np.concatenate(rows)[:n] if rows[0].ndim else rows[0], *parts.values())


@dataclass(frozen=True, eq=False, repr=False)
class WrappedPosterior(Posterior):
    """A posterior whose weights are drawn from another one, and whose network predicts with them in another way.

    Subclasses define `draw`: what their problem's network takes in place of params.

    Args:
        weights: the posterior of the weights.
    """

    weights: Posterior

    @property
    def drawn_from(self) -> Posterior:
        return self.weights

    @property
    def support(self) -> int | None:
        return self.weights.support

    @property
    def mean(self) -> Params:
        return self.weights.mean

    @property
    def num_parameters(self) -> int:
        return self.weights.num_parameters

    @property
    def template(self) -> Latents:
        draws = jax.eval_shape(lambda: self.draw(jax.random.key(0), np.arange(1), 1))
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), draws)

    def sample(self, key: Key, n: int) -> Params:
        return self.weights.sample(key, n)


def unfixed(net: Network) -> Network:
    """The network with all its leaves, those that a problem fixes included."""
    return net if net.fixed is None else net.fixed.full_network


def _leaves(tree: Latents) -> list[Any]:
    return jax.tree.leaves(tree, is_leaf=lambda leaf: isinstance(leaf, RandomArray))
