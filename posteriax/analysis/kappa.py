"""kappa: how much the noise of each weight costs the likelihood.

    kappa = sigma^2 d2(-log p(D | w)) / dw^2      at the posterior's mean, summed over the data, in nats

To second order, the noise of a weight costs half its kappa: weights with a small kappa can be fixed or removed. The
phase transition of variance networks begins when weights with kappa above 10^1.5 appear. (Neklyudov et al. 2018,
section 5, eq. 16)

The diagonal of the Hessian is computed without the Hessian. A weight w_kc of a dense layer or a convolution enters the
pre-activations b linearly, through the inputs a at each position p of example n:  b_npc = sum_k a_npk w_kc. So exactly

    d2L / dw_kc^2  =  sum_n sum_pq a_npk a_nqk  d2L / (db_npc db_nqc)

which in a dense layer, with its one position, is  sum_n a_nk^2 d2L / db_nc^2. Examples are independent, so one
Hessian-vector product with respect to the pre-activations gives a column for every example at once: the layer needs
one product per pre-activation instead of one per weight. A leaf with fewer weights than that, or used in another way,
takes products with respect to its weights. Kinks (ReLU) contribute no curvature.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from posteriax._internal.memory import CURVATURE_BYTES, fitting
from posteriax._internal.plot_style import PALETTE, Figure, subplots
from posteriax.analysis.leaves import chosen_weights, member_mean, require_variational, with_leaf
from posteriax.data.batches import Batch, Data, Inputs
from posteriax.families.arrays.layer_product import LayerProduct, apply_with_perturbations
from posteriax.networks.leaf import Leaf
from posteriax.networks.tracing.program import spec_of_example
from posteriax.networks.tracing.uses import Use, find_uses
from posteriax.posterior.posterior import Posterior
from posteriax.problem import Latents, Problem

SMALLEST = 1e-25  # plotted in place of 0
MOST_PRODUCTS = 20_000  # Hessian-vector products for one leaf
AT_ONCE = 16  # products in one vmap
EXAMPLES = 100  # at most, in one chunk


@dataclass(frozen=True, eq=False)
class Kappa(Mapping[str, np.ndarray]):
    """kappa of every weight, by leaf: (members, ...) in the leaf's shape.

    Negative where the log-likelihood is convex in the weight.
    """

    leaves: dict[str, np.ndarray]

    def __getitem__(self, name: str) -> np.ndarray:
        return self.leaves[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.leaves)

    def __len__(self) -> int:
        return len(self.leaves)

    def threshold(self, keep: float) -> float:
        """The |kappa| that a share `keep` of all weights reaches; fewer weights, if the others have a kappa of 0."""
        if not 0.0 < keep <= 1.0:
            raise ValueError(f"keep must lie in (0, 1], got {keep}")
        values = np.concatenate([np.abs(kappas).reshape(-1) for kappas in self.leaves.values()])
        if keep == 1.0:
            return 0.0
        positive = values[values > 0]
        smallest = positive.min() if positive.size else np.inf
        return float(max(np.quantile(values, 1.0 - keep, method="higher"), smallest))

    def plot(self, threshold: float | None = None) -> Figure:
        """Histograms of log10 |kappa| by leaf; returns the figure. Zeros are omitted, and counted in the legend."""
        figure, ((axis,),) = subplots(1, 1, 5.0, 3.2)
        logs = {name: np.log10(np.maximum(np.abs(k).reshape(-1), SMALLEST)) for name, k in self.leaves.items()}
        shown = {name: values[values > np.log10(SMALLEST)] for name, values in logs.items()}
        everything = np.concatenate(list(shown.values()))
        bins = np.linspace(everything.min(), everything.max() + 1e-9, 61) if everything.size else 10
        for i, (name, values) in enumerate(shown.items()):
            zeros = len(logs[name]) - len(values)
            label = name + (f" ({zeros:,} of {len(logs[name]):,} are 0)" if zeros else "")
            colour = PALETTE[i % len(PALETTE)]
            axis.hist(values, bins=bins, histtype="stepfilled", alpha=0.5, color=colour, label=label)
        if threshold is not None:
            axis.axvline(np.log10(threshold), color="0.2", linewidth=1)
            axis.text(np.log10(threshold), axis.get_ylim()[1], " threshold", va="top", fontsize="small")
        axis.set(xlabel="log10 |κ|", ylabel="weights")
        axis.legend(frameon=False, fontsize="small")
        return figure


def kappa(posterior: Posterior, data: Data, leaves: str | Sequence[str] = "**") -> Kappa:
    """kappa of every weight that a pattern matches.

    Args:
        posterior: from VI, with families whose variances are known.
        data: ``(x, y)``: the training data, or part of it.
        leaves: a pattern of leaves; biases are skipped.

    >>> import equinox as eqx, jax, posteriax as px
    >>> from posteriax import families as q
    >>> (x, y), _ = px.data.two_moons()
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical())
    >>> posterior = px.fit(problem, (x, y), px.VI(q.Normal()), steps=10, key=0)
    >>> px.analysis.kappa(posterior, (x, y))["layers/0/weight"].shape
    (1, 8, 2)
    """
    fitted = require_variational(posterior)
    kappas = {}
    for leaf in chosen_weights(fitted.problem, leaves):
        family = fitted.families[leaf.path]
        if family.joint or family.components or leaf.path not in fitted.variational:
            raise TypeError(f"kappa needs the variance of each weight, which {family!r} does not have")
        try:
            variance = np.asarray(jax.vmap(family.variance)(fitted.variational[leaf.path]), np.float64)
        except NotImplementedError as error:
            raise TypeError(f"kappa needs the variance of each weight: {error}") from error
        means = [member_mean(fitted, member) for member in range(fitted.members)]
        curvatures = [curvature_diagonal(fitted.problem, mean, data, leaf) for mean in means]
        kappas[leaf.path] = variance * np.stack(curvatures)
    return Kappa(kappas)


def curvature_diagonal(problem: Problem, latents: Latents, data: Data, leaf: Leaf) -> np.ndarray:
    """d2(-log p(D | w)) / dw^2 for every entry of a leaf, summed over the data.

    Args:
        problem: network and likelihood.
        latents: the point at which to evaluate it.
        data: ``(x, y)``.
        leaf: the leaf.

    Raises:
        ValueError: if it would take too many Hessian-vector products, or the network couples examples.
    """
    x, y = problem.check(data)
    if problem.couples_examples(x):
        raise ValueError(
            "the network's outputs for one example depend on the others in its batch (batch statistics), so the "
            f"curvature of its likelihood is not a sum over examples. {problem.network.how_to_uncouple}"
        )
    index, weights = problem.leaf_names.index(leaf.path), math.prod(leaf.shape)
    use = find_uses(problem.network.programs, spec_of_example(x))[index]
    layer = _layer(problem, latents, x, index, use)
    by_push = layer is not None and layer.pushes < weights
    products = layer.pushes if layer is not None and by_push else weights
    if products > MOST_PRODUCTS:
        why = f" ({use.reason}, so each weight needs one)" if use.reason else ""
        raise ValueError(
            f"the curvature of {leaf.path} {leaf.shape} would take {products:,} Hessian-vector products{why}; the "
            f"limit is {MOST_PRODUCTS:,}: choose smaller leaves"
        )
    patch = 4 * layer.inputs * (layer.positions + 2 * AT_ONCE) if layer is not None and by_push else 1
    size = fitting(CURVATURE_BYTES, patch, min(EXAMPLES, len(y)))
    total = np.zeros(leaf.shape)
    for start in range(0, len(y), size):
        rows = np.minimum(np.arange(start, start + size), len(y) - 1)
        weight = (np.arange(start, start + size) < len(y)).astype(np.float32)
        chunk_x, chunk_y = jax.tree.map(lambda a, r=rows: jnp.asarray(a[r]), (x, y))
        chunk = Batch(chunk_x, chunk_y, jnp.asarray(weight))
        run = partial(_by_push, problem, index, use) if by_push else partial(_by_weights, problem, index)
        total += np.asarray(run(latents, chunk), np.float64)
    return total


class _Layer(NamedTuple):
    """Positions and channels of a layer's pre-activations, and the number of inputs that each sums over."""

    positions: int
    channels: int
    inputs: int

    @property
    def pushes(self) -> int:
        return self.positions * self.channels


def _layer(problem: Problem, latents: Latents, x: Inputs, index: int, use: Use) -> _Layer | None:
    """The layer, or None if the identity above does not apply to this leaf."""
    if use.primitive not in ("dot_general", "conv_general_dilated") or use.example_axis is None:
        return None
    few = jax.tree.map(lambda a: jax.ShapeDtypeStruct((2, *a.shape[1:]), jnp.asarray(a[:0]).dtype), x)
    layers: list[_Layer] = []

    def patches(u: Latents, a: Inputs) -> jax.Array:
        met = _meet(problem, u, a, index, use)
        if not met.is_layer:
            raise ValueError("each input of the leaf must contribute to one output only")
        patches = met.patches()
        layers.append(_Layer(patches.shape[1], met.channels, patches.shape[2]))
        return patches

    try:
        jax.eval_shape(patches, latents, few)
    except (ValueError, jax.errors.UnexpectedTracerError):  # the latter: the leaf is used inside a jitted function
        return None
    return layers[0]


def _meet(problem: Problem, latents: Latents, x: Inputs, index: int, use: Use) -> LayerProduct:
    _, met = apply_with_perturbations(problem.network.apply, latents.network, x, {index: use}, {})
    if index not in met:
        raise ValueError("the product of the leaf with data was not found")
    return met[index]


@partial(jax.jit, static_argnums=(0, 1, 2))
def _by_push(problem: Problem, index: int, use: Use, latents: Latents, batch: Batch) -> jax.Array:
    met = _meet(problem, latents, batch.x, index, use)
    patches, value, shape, channels = met.patches(), met.array.value, met.shape, met.channels
    examples, positions, inputs = patches.shape

    def loss(push: jax.Array) -> jax.Array:
        outputs, _ = apply_with_perturbations(
            problem.network.apply, latents.network, batch.x, {index: use}, {index: push}
        )
        return -problem.log_likelihood_of_outputs(latents, outputs, batch)

    _, product = jax.linearize(jax.grad(loss), jnp.zeros(shape, value.dtype))

    def diagonal_part(number: jax.Array) -> jax.Array:
        position, channel = number // channels, number % channels
        pushed = jnp.zeros((examples, positions, channels), value.dtype).at[:, position, channel].set(1.0)
        column = met.by_position(product(met.as_product(pushed, shape)))[:, :, channel]
        return jnp.einsum("nk,nqk,nq->k", patches[:, position], patches, column)

    def add(total: jax.Array, numbers: jax.Array) -> tuple[jax.Array, None]:
        valid = numbers < positions * channels
        parts = jax.vmap(diagonal_part)(jnp.where(valid, numbers, 0)) * valid[:, None]
        return total.at[:, numbers % channels].add(parts.T), None

    groups = jnp.arange(-(-positions * channels // AT_ONCE) * AT_ONCE).reshape(-1, AT_ONCE)
    diagonal, _ = jax.lax.scan(add, jnp.zeros((inputs, channels), value.dtype), groups)
    leaf = jax.tree.leaves(latents)[index]
    return jnp.zeros(leaf.size, leaf.dtype).at[met.entries()].set(diagonal).reshape(leaf.shape)


@partial(jax.jit, static_argnums=(0, 1))
def _by_weights(problem: Problem, index: int, latents: Latents, batch: Batch) -> jax.Array:
    leaf = jax.tree.leaves(latents)[index]

    def loss(value: jax.Array) -> jax.Array:
        return -problem.log_likelihood(with_leaf(latents, index, value), batch)

    _, product = jax.linearize(jax.grad(loss), leaf)

    def diagonal_entry(number: jax.Array) -> jax.Array:
        pushed = jnp.zeros(leaf.size, leaf.dtype).at[number].set(1.0)
        return product(pushed.reshape(leaf.shape)).reshape(-1)[number]

    return jax.lax.map(diagonal_entry, jnp.arange(leaf.size), batch_size=AT_ONCE).reshape(leaf.shape)
