"""The program that is exported: from inputs to everything that a posterior predicts, for any number of examples.

    outputs[s] = f(x, w_s)   for every draw       results = the likelihood's summary of all outputs

The draws are constants of the program.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.extend.core import Jaxpr, JaxprEqn, Literal

from posteriax._internal.checks import as_key, check_count, check_inputs
from posteriax.likelihoods.likelihood import Likelihood
from posteriax.likelihoods.mixtures import check_levels
from posteriax.networks.tracing.program import TRIAL_SIZES
from posteriax.posterior.posterior import DEFAULT_DRAWS, Posterior
from posteriax.posterior.prediction import outputs_of
from posteriax.problem import Inputs, Key, Latents

VERSION = 1  # of what a file says about itself
OUTPUTS = "outputs"
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
EXAMPLES_TO_CHECK = 64  # of the example inputs

NOTHING = ("copy", "copy_p", "stop_gradient")  # operations that a translation leaves out

Results = dict[str, Any]  # arrays by name
Length = tuple[int, int]  # a and b of a length a n + b, for n examples


@dataclass(frozen=True, eq=False)
class PredictiveProgram:
    """A posterior's predictions as one function. Built by :func:`predictive_program`.

    Args:
        posterior: as given.
        draws: the draws that it averages over, in a leading axis.
        levels: of the quantiles.
        results: the names of what it computes.
        example: inputs like those that it will get, of at most `EXAMPLES_TO_CHECK` examples.
    """

    posterior: Posterior
    draws: Latents
    levels: tuple[float, ...]
    results: tuple[str, ...]
    example: Inputs

    @property
    def likelihood(self) -> Likelihood:
        return self.posterior.problem.likelihood

    @property
    def count(self) -> int:
        """How many draws there are."""
        return jax.tree.leaves(self.draws)[0].shape[0]

    def outputs(self, x: Inputs) -> jax.Array:
        """The network's outputs for every draw, (S, N, ...)."""
        problem, params = self.posterior.problem, self.draws.network
        if problem.network.fixed is not None:  # what depends on fixed leaves alone is then computed once
            return jax.vmap(lambda draw: outputs_of(problem, draw, x))(params)
        return jax.lax.map(lambda draw: outputs_of(problem, draw, x), params)

    def __call__(self, x: Inputs) -> Results:
        outputs = self.outputs(x)
        computed = {OUTPUTS: outputs, **self.likelihood.summary(self.draws.likelihood, outputs, self.levels)}
        return {name: computed[name] for name in self.results}

    def spec(self, size: Any) -> Inputs:
        """Shapes and dtypes of inputs of `size` examples, a number or a symbol."""
        return jax.tree.map(lambda a: jax.ShapeDtypeStruct((size, *a.shape[1:]), a.dtype), self.example)

    def spec_of_example(self) -> Inputs:
        """Shapes and dtypes of one example."""
        return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), self.example)

    def plain_latents(self) -> dict[str, Any]:
        """The likelihood's own latents of every draw, as JSON holds them."""
        return {name: np.asarray(values).tolist() for name, values in self.draws.likelihood.items()}


def needed_equations(pair: tuple[Jaxpr, Jaxpr]) -> list[tuple[JaxprEqn, JaxprEqn]]:
    """The operations of a program, as traced for two sizes, that its outputs need, in order."""
    small, large = pair
    needed = {atom for atom in small.outvars if not isinstance(atom, Literal)}
    kept = []
    for eqn, other in zip(reversed(small.eqns), reversed(large.eqns), strict=True):
        if not needed.isdisjoint(eqn.outvars):
            needed.update(atom for atom in eqn.invars if not isinstance(atom, Literal))
            kept.append((eqn, other))
    return kept[::-1]


def predictive_program(
    posterior: Posterior,
    x_example: Inputs,
    *,
    draws: int | None,
    key: Key,
    quantiles: Sequence[float],
    results: Sequence[str] | None,
) -> PredictiveProgram:
    """What `posterior` predicts for inputs like `x_example`, checked."""
    x = check_inputs(x_example)
    x = jax.tree.map(lambda a: np.asarray(a[:EXAMPLES_TO_CHECK]).astype(jax.dtypes.canonicalize_dtype(a.dtype)), x)
    problem = posterior.problem
    problem.output_spec(x)  # raises for inputs that the network does not take
    if problem.couples_examples(x):
        raise ValueError(
            f"the network's outputs for one example depend on the others in its batch, so an exported model would "
            f"predict something else for every batch. {problem.network.how_to_uncouple}"
        )
    total = check_count("draws", draws if draws is not None else posterior.support or DEFAULT_DRAWS)
    total = min(total, posterior.support or total)
    chosen = posterior.draw(as_key(key), np.arange(total), total)
    levels = tuple(float(level) for level in check_levels(quantiles).reshape(-1))
    program = PredictiveProgram(posterior, chosen, levels, (), x)
    outputs = jax.eval_shape(program.outputs, program.spec(2))
    names: list[str] = []  # in their own order, which a traced dictionary would lose
    jax.eval_shape(lambda o: names.extend(program.likelihood.summary(chosen.likelihood, o, levels)), outputs)
    known = (*names, OUTPUTS)
    wanted = known if results is None else tuple(results)
    if unknown := [name for name in wanted if name not in known]:
        raise ValueError(f"there is no result {unknown[0]!r}: results are {', '.join(known)}")
    return PredictiveProgram(posterior, chosen, levels, wanted, x)


def lengths_by_examples(small: Sequence[int], large: Sequence[int]) -> list[Length]:
    """How each length of a shape depends on the number of examples, from those of a program traced for both sizes.

    >>> low, high = TRIAL_SIZES
    >>> lengths_by_examples((low, 7, 2 * low + 1), (high, 7, 2 * high + 1))
    [(1, 0), (0, 7), (2, 1)]
    """
    step = TRIAL_SIZES[1] - TRIAL_SIZES[0]
    scales = [(high - low) // step for low, high in zip(small, large, strict=True)]
    return [(scale, low - scale * TRIAL_SIZES[0]) for scale, low in zip(scales, small, strict=True)]
