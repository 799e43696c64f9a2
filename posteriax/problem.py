"""Problem: what is to be inferred, as one log joint.

    log_joint(w) = [ sum_i log p(y_i | x_i, w) + log p(w) ] / T

summed over all examples, in nats. Every method optimises or samples exactly this. A batch carries the weight of each of
its examples (how many examples of the data set it stands for), so there is no other scale to get wrong.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from posteriax._internal.checks import (
    KeyLike,
    as_key,
    check_count,
    check_data,
    check_inputs,
    check_positive,
    check_weights,
)
from posteriax._internal.leaf_paths import choose_by_path, describe_leaves, leaf_paths
from posteriax._internal.memory import ChunkPlan, needed_bytes, plan_chunks
from posteriax.data.batches import Batch, Examples, full_batch
from posteriax.data.batches import Inputs as Inputs
from posteriax.data.target_scale import TargetMoments
from posteriax.likelihoods.likelihood import Likelihood, LikelihoodLatents
from posteriax.likelihoods.predictive import Predictive
from posteriax.networks.fixed_leaves import as_patterns, fix_leaves
from posteriax.networks.leaf import Leaf
from posteriax.networks.network import ADD_AXIS, Network, Params, input_hint, is_single_example, network
from posteriax.networks.tracing.coupling import couples_examples
from posteriax.networks.tracing.fixed_part import FixedPart, find_fixed_part
from posteriax.networks.tracing.program import spec_of_example
from posteriax.priors.prior import Prior, as_prior, has_density, typical_scale
from posteriax.priors.standard import Normal

Data = Any  # (x, y), (x, y, weight) or a Batch
Key = KeyLike  # a seed or a JAX key


class Latents(NamedTuple):
    """Everything that is inferred: the network's params and the likelihood's own parameters (usually none)."""

    network: Params
    likelihood: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Problem:
    """A network, a likelihood, a prior and a temperature.

    Args:
        network: anything that :func:`px.network` takes.
        likelihood: what the outputs mean, such as ``px.Categorical()`` or ``px.Normal(scale=...)``.
        prior: one prior for all leaves, or a dictionary by path pattern (see :func:`px.paths`).
        temperature: T in the log joint, which divides both terms; 1 is Bayes' rule, below 1 is a cold posterior.
        fixed: leaves that keep the network's weights and are not inferred, such as a pre-trained part: one path pattern
            or several, ``"encoder/**"``; ``"!head"`` fixes all leaves but those. See docs/networks.md.

    >>> import equinox as eqx, jax, posteriax as px
    >>> from posteriax import priors as p
    >>> net = eqx.nn.Linear(3, 2, key=jax.random.key(0))
    >>> problem = px.Problem(net, px.Categorical(), prior={"**": p.HeNormal(), "bias": p.Normal(0.1)})
    >>> data = jax.numpy.ones((5, 3)), jax.numpy.zeros(5, int)
    >>> bool(problem.log_joint(problem.network.params, data) < 0)
    True
    """

    network: Any  # a Network once constructed
    likelihood: Likelihood
    prior: Prior | Mapping[str, Prior] = Normal(scale=1.0)
    temperature: float = 1.0
    fixed: str | Sequence[str] = ()
    priors: Latents = field(init=False, repr=False)  # a NumPyro distribution for each leaf of `latents`
    leaf_scales: tuple[float, ...] = field(init=False, repr=False)  # a typical scale of each leaf under its prior

    def __post_init__(self) -> None:
        check_positive("temperature", self.temperature)
        if not isinstance(self.likelihood, Likelihood):
            raise TypeError(
                f"likelihood must be one such as px.Categorical() or px.Normal(scale=...), or your own, derived from "
                f"px.likelihoods.ClassLikelihood or px.likelihoods.NumberLikelihood; got {self.likelihood!r}"
            )
        net = fix_leaves(network(self.network), self.fixed)
        object.__setattr__(self, "fixed", as_patterns(self.fixed))
        object.__setattr__(self, "network", net)
        object.__setattr__(self, "priors", Latents(_priors(net, self.prior), self.likelihood.priors()))
        object.__setattr__(self, "leaf_scales", tuple(map(typical_scale, self.leaf_priors)))

    @property
    def latents(self) -> Latents:
        """All latent variables at their initial values."""
        return Latents(self.network.params, self.likelihood.latents())

    @property
    def leaf_names(self) -> list[str]:
        """A path for each leaf of `latents`; those of the likelihood are ``likelihood/...``."""
        likelihood_paths = [f"likelihood/{path}" for path in leaf_paths(self.likelihood.latents())]
        return leaf_paths(self.network.params) + likelihood_paths

    @property
    def leaf_infos(self) -> list[Leaf]:
        """What priors and families may know about each leaf of `latents`, in flattening order."""
        latents = self.likelihood.latents()
        names = [f"likelihood/{path}" for path in leaf_paths(latents)]
        return self.network.leaf_infos + [
            Leaf(name, jnp.shape(leaf)) for name, leaf in zip(names, jax.tree.leaves(latents), strict=True)
        ]

    def reading(self, x: Inputs) -> "tuple[Problem, tuple[str, ...]]":
        """The problem with the axes of its network's leaves read off the program, for inputs like `x`.

        Also returns a note for each leaf whose prior changes because its axes differ from the convention. A problem
        whose axes are already known is returned unchanged.
        """
        if self.network.axes is not None:
            return self, ()
        net = self.network.reading(x)
        priors, rules = self.leaf_priors, _rules(net, self.prior)
        notes = []
        for i, (before, leaf) in enumerate(zip(self.network.leaf_infos, net.leaf_infos, strict=True)):
            if (before.known_axes, before.is_bias) == (leaf.known_axes, leaf.is_bias):
                continue
            prior = rules[i].distribution(leaf)
            if not _same(prior, priors[i]):
                notes.append(
                    f"{leaf.path} {leaf.shape}: its prior follows its use in the program, {_roles(leaf)}. The problem "
                    f"itself, which has seen no data, follows the library's convention; px.network(net, example=x) "
                    f"reads the program from the start"
                )
                priors[i] = prior
        read = copy.copy(self)
        structure = jax.tree.structure(self.latents)
        object.__setattr__(read, "network", net)
        object.__setattr__(read, "priors", jax.tree.unflatten(structure, priors))
        object.__setattr__(read, "leaf_scales", tuple(map(typical_scale, priors)) if notes else self.leaf_scales)
        return read, tuple(notes)

    def for_target_scale(self, scale: float) -> "Problem":
        """The problem for targets of this standard deviation, which the prior of a learned noise depends on."""
        if not self.likelihood.needs_target_scale:
            return self
        informed, likelihood = copy.copy(self), self.likelihood.for_target_scale(scale)
        object.__setattr__(informed, "likelihood", likelihood)
        object.__setattr__(informed, "priors", self.priors._replace(likelihood=likelihood.priors()))
        object.__setattr__(informed, "leaf_scales", tuple(map(typical_scale, informed.leaf_priors)))
        return informed

    def for_data(self, data: Data) -> "Problem":
        """The problem with what its likelihood reads off the targets of a data set, as :func:`px.fit` makes it.

        That is the prior of a learned noise, which is centred at the targets' standard deviation. A problem whose
        likelihood needs nothing, or knows it already, is returned unchanged.

        >>> import numpy as np, posteriax as px
        >>> problem = px.Problem((lambda w, x: x @ w, np.zeros((2, 1), np.float32)), px.Normal("learned"))
        >>> problem.for_data((np.ones((4, 2)), np.array([0.0, 0.0, 400.0, 400.0]))).likelihood.scale_prior
        (200.0, 3.0)
        """
        if not self.likelihood.needs_target_scale:
            return self
        examples = self.check_weighted(data)
        return self.for_target_scale(TargetMoments.from_targets(examples.y, examples.weight).scale)

    def require_density(self, method: str) -> None:
        """Raise if the prior of any leaf has no density."""
        for name, prior in zip(self.leaf_names, self.leaf_priors, strict=True):
            if not has_density(prior):
                raise ValueError(
                    f"{method} needs priors with a density, but {name} has {type(prior).__name__}, which only works "
                    f"with px.VI and Gaussian families; use another prior, such as p.Normal(scale=1.0)"
                )

    @property
    def leaf_priors(self) -> list[dist.Distribution]:
        """The prior of each leaf of `latents`, in flattening order."""
        return jax.tree.leaves(self.priors, is_leaf=lambda node: isinstance(node, dist.Distribution))

    def outputs(self, params: Params, x: Inputs, *, key: jax.Array | None = None) -> jax.Array:
        return self.network.apply(params, x, key=key)

    def log_likelihood(self, latents: Latents | Params, data: Data, *, key: jax.Array | None = None) -> jax.Array:
        """sum_i weight_i log p(y_i | x_i, w): for the whole data set, or its estimate from a minibatch."""
        latents, batch = self._latents(latents), self._batch(data)
        outputs = self.outputs(latents.network, batch.x, key=key)
        return self.log_likelihood_of_outputs(latents, outputs, batch)

    def log_likelihood_of_outputs(self, latents: Latents, outputs: jax.Array, batch: Batch) -> jax.Array:
        return jnp.vdot(batch.weight, self.likelihood.log_prob(latents.likelihood, outputs, batch.y))

    def log_prior(self, latents: Latents | Params) -> jax.Array:
        """log p(w), summed over all leaves."""
        leaves = jax.tree.leaves(self._latents(latents))
        return sum(prior.log_prob(leaf).sum() for prior, leaf in zip(self.leaf_priors, leaves, strict=True))

    def log_joint(self, latents: Latents | Params, data: Data, *, key: jax.Array | None = None) -> jax.Array:
        """[log-likelihood + log-prior] / T.

        A problem reads nothing off this data: the prior of a learned noise is centred at 1 until :func:`px.fit`, or
        :meth:`for_data`, has read the targets. The problem of a fitted posterior has.

        Args:
            latents: the network's params, or :class:`Latents`.
            data: ``(x, y)`` for a whole data set, ``(x, y, weight)`` if each example counts as `weight` of them, or a
                :class:`Batch`.
            key: for the network's own randomness; None for a deterministic pass.
        """
        return (self.log_likelihood(latents, data, key=key) + self.log_prior(latents)) / self.temperature

    def prior_predictive(self, x: Inputs, draws: int = 100, *, key: Key = 0) -> Predictive:
        """Predictions from draws of the prior: what the problem expects of `x` before it has seen data.

            p(y | x) ~ 1/S sum_s p(y | x, w_s),        w_s ~ p(w)

        Of the same class as those of a posterior, with the same means, intervals, entropies and scores. The prior of a
        learned noise depends on the targets: use ``problem.for_data((x, y)).prior_predictive(x)``.

        Args:
            x: inputs, with a leading axis of N examples.
            draws: how many draws of the prior.
            key: an int or a JAX key.

        >>> import numpy as np, posteriax as px
        >>> from posteriax import priors as p
        >>> net = lambda w, x: x @ w, np.zeros((1, 1), np.float32)
        >>> problem = px.Problem(net, px.Normal(scale=1.0), prior=p.Normal(scale=2.0))
        >>> predictive = problem.prior_predictive(np.array([[0.0], [1.0]]), draws=2000)
        >>> predictive.std[:, 0].round(1).tolist()  # sqrt(1 + 4 x^2)
        [1.0, 2.2...]
        """
        x = check_inputs(x)
        spec, total = self.output_spec(x), check_count("draws", draws)
        problem, _ = self.reading(jax.tree.map(lambda a: a[:2], x))  # the prior that `px.fit` takes
        problem.require_density("a prior predictive")
        keys = jax.random.split(as_key(key), total)
        plan = problem._plan_prior_outputs(keys, x)
        outputs, latents = np.empty((total, *spec.shape), spec.dtype), []
        for first in range(0, total, plan.draws):
            indices, kept = plan.chosen(first, total)
            for start, chunk in plan.chunks(x):
                computed, chunk_latents = jax.device_get(plan.run(keys[indices], chunk))
                outputs[first : first + kept, start : start + plan.rows] = computed[:kept, : spec.shape[0] - start]
            latents.append(jax.tree.map(lambda leaf, kept=kept: leaf[:kept], chunk_latents))
        return self.likelihood.predictive(outputs, jax.tree.map(lambda *parts: np.concatenate(parts), *latents))

    def _plan_prior_outputs(self, keys: jax.Array, x: Inputs) -> ChunkPlan:
        """Outputs and likelihood latents of draws of the prior, for as many draws and examples as memory allows."""

        def outputs(keys: jax.Array, x: Inputs) -> tuple[jax.Array, LikelihoodLatents]:
            def draw(key: jax.Array) -> tuple[jax.Array, LikelihoodLatents]:
                latents = self.sample_prior(key)
                return self.outputs(latents.network, x), latents.likelihood

            return jax.lax.map(draw, keys)  # one after another: the weights of one draw in memory

        def compiled(draws: int, rows: int) -> tuple[Any, int]:
            examples = jax.tree.map(
                lambda a: jax.ShapeDtypeStruct((rows, *a.shape[1:]), jax.dtypes.canonicalize_dtype(a.dtype)), x
            )
            run = jax.jit(outputs).lower(jax.ShapeDtypeStruct((draws,), keys.dtype), examples).compile()
            return run, needed_bytes(run)

        return plan_chunks(
            compiled,
            draws=len(keys),
            examples=jax.tree.leaves(x)[0].shape[0],
            draw_bytes=0,  # weights are drawn one set at a time, inside the program
            couples_examples=lambda: self.couples_examples(x),
        )

    def sample_prior(self, key: jax.Array) -> Latents:
        """One draw of all latent variables from their priors."""
        self.require_density("a start from the prior")
        leaves, treedef = jax.tree.flatten(self.latents)
        keys = jax.random.split(key, len(leaves))
        draws = [
            jnp.broadcast_to(prior.sample(k, _missing(prior, leaf)), leaf.shape).astype(leaf.dtype)
            for prior, leaf, k in zip(self.leaf_priors, leaves, keys, strict=True)
        ]
        return jax.tree.unflatten(treedef, draws)

    def check(self, data: Data) -> tuple[Inputs, np.ndarray]:
        """`(x, y)` as host arrays, checked against the network and the likelihood."""
        x, y = check_data(data)
        return x, self.likelihood.check(self.output_spec(x), y)

    def check_weighted(self, data: Data) -> Examples:
        """`(x, y)` or `(x, y, weight)` as host arrays, checked; without weights, `weight` is None."""
        if not (isinstance(data, (tuple, list)) and len(data) == 3):
            return Examples(*self.check(data))
        x, y = self.check((data[0], data[1]))
        return Examples(x, y, check_weights(data[2], len(y)))

    def couples_examples(self, x: Inputs) -> bool:
        """Whether the outputs for one example depend on the others in its batch. Found once, for the first `x` that
        has several examples; the answer is kept."""
        if "_couples_examples" not in self.__dict__ and jax.tree.leaves(x)[0].shape[0] > 1:
            object.__setattr__(self, "_couples_examples", couples_examples(self.network, x))
        return self.__dict__.get("_couples_examples", False)

    def fixed_part(self, x: Inputs, *, training: bool = False) -> FixedPart | None:
        """What the network computes from inputs like `x` and fixed leaves only, if that is worth computing once.

        Args:
            x: inputs, with a leading axis of examples, or their shapes.
            training: whether the network is also called with a key.
        """
        if self.network.fixed is None:
            return None
        example = spec_of_example(x)
        leaves, structure = jax.tree.flatten(example)
        known = self.__dict__.setdefault("_fixed_parts", {})
        asked = (structure, training, *((leaf.shape, leaf.dtype) for leaf in leaves))
        if asked not in known:
            known[asked] = find_fixed_part(self.network.programs, example, training=training)
        return known[asked]

    def output_spec(self, x: Inputs) -> jax.ShapeDtypeStruct:
        """Shape and dtype of the outputs for `x`, without computing them."""
        specs = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, jax.dtypes.canonicalize_dtype(a.dtype)), x)
        try:
            outputs = jax.eval_shape(self.network.apply, self.network.params, specs)
        except Exception as error:
            shapes = ", ".join(f"{leaf.shape} {leaf.dtype}" for leaf in jax.tree.leaves(specs))
            first_line = str(error).strip().split("\n")[0]
            hint = input_hint(self.network.apply, self.network.params, specs)
            raise ValueError(f"the network fails for x of shape {shapes}: {first_line.rstrip('.')}{hint}") from error
        n = jax.tree.leaves(specs)[0].shape[0]
        if not hasattr(outputs, "shape") or not outputs.shape or outputs.shape[0] != n:
            got = getattr(outputs, "shape", type(outputs).__name__)
            hint = "For a network that takes one example at a time, use px.network(net, batched=False)"
            if is_single_example(self.network.apply, self.network.params, specs):
                hint = ADD_AXIS
            raise ValueError(
                f"the network must return one array with a leading axis of {n} examples, got {got}. {hint}."
            )
        return outputs

    def _latents(self, latents: Latents | Params) -> Latents:
        if isinstance(latents, Latents):
            return latents
        return Latents(self.network.inferred(latents), self.likelihood.latents())

    def _batch(self, data: Data) -> Batch:
        if isinstance(data, Batch):
            return data
        return jax.tree.map(jnp.asarray, full_batch(self.check_weighted(data)))


def _rules(net: Network, prior: Prior | Mapping[str, Prior]) -> list[Prior]:
    """The prior that applies to each leaf of a network."""
    names = leaf_paths(net.params)
    if not isinstance(prior, Mapping):
        return [as_prior(prior)] * len(names)
    return choose_by_path(
        {pattern: as_prior(value, f"prior {pattern!r}") for pattern, value in prior.items()},
        names,
        "prior",
        leaves=describe_leaves(net.params),
    )


def _priors(net: Network, prior: Prior | Mapping[str, Prior]) -> Params:
    """The distribution of each leaf, in the structure of the network's params."""
    distributions = [rule.distribution(leaf) for rule, leaf in zip(_rules(net, prior), net.leaf_infos, strict=True)]
    return jax.tree.unflatten(jax.tree.structure(net.params), distributions)


def _roles(leaf: Leaf) -> str:
    if leaf.is_bias:
        return "where it has no inputs"
    return f"where its axes {list(leaf.in_axes)} are inputs"


def _same(a: dist.Distribution, b: dist.Distribution) -> bool:
    """Whether two distributions from the same prior are equal."""
    leaves, others = jax.tree.leaves(a), jax.tree.leaves(b)
    if hash(jax.tree.structure(a)) != hash(jax.tree.structure(b)):
        return False
    return all(jnp.shape(x) == jnp.shape(y) and np.array_equal(x, y) for x, y in zip(leaves, others, strict=True))


def _missing(prior: dist.Distribution, leaf: jax.Array) -> tuple[int, ...]:
    """The sample shape needed to fill the leaf: empty, or the leaf's own shape for a scalar prior."""
    shape = prior.batch_shape + prior.event_shape
    if shape == leaf.shape:
        return ()
    if shape == ():
        return leaf.shape
    raise ValueError(f"cannot draw a leaf of shape {leaf.shape} from a prior of shape {shape}")
