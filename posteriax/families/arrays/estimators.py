"""Choosing the estimator of each leaf: how its noise enters the network.

| estimator | noise | exact for |
| --- | --- | --- |
| weight | one draw of the leaf, shared by the batch | everything |
| factor | the same, contracted by its factors: for families of products (Rank1, Dropout) | everything |
| flipout | one draw, with random signs per example | a leaf used once, with an axis of examples |
| local | each output drawn from its own mean and variance | a product with one row per example; embeddings |

*Exact* means that the outputs of each example have precisely their distribution under the posterior; `flipout` and
`local` only make the examples of a batch (nearly) independent, which lowers the variance of gradients. `auto` picks the
exact estimator with the least variance for its cost; for families of products, factors drawn per example. Requested by
name, `local` is also used for convolutions and sequences, as in the literature: each output is right, but outputs at
different positions lose their correlation.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from posteriax.networks.tracing.uses import Use

Estimator = Literal["auto", "weight", "factor", "flipout", "local"]
ESTIMATORS: tuple[Estimator, ...] = ("auto", "weight", "factor", "flipout", "local")


class EstimatorPlan(NamedTuple):
    """The estimator of one leaf, the axis of examples it needs, and the reason if it had to be a plain draw.

    `factors` says how the factors of a family of products are drawn: "drawn" (as a plain draw of the leaf), "shared" by
    the batch or "per example"; `factor_axis` is the axis of examples in the data they multiply.
    """

    estimator: str = "weight"
    example_axis: int | None = None
    note: str = ""
    factors: str = "drawn"
    factor_axis: int | None = None


def plan_estimators(
    estimator: Estimator, uses: Sequence[Use], has_mean: Sequence[bool] | None = None
) -> list[EstimatorPlan]:
    """An estimator for every leaf.

    Args:
        estimator: the requested one.
        uses: how the network uses each leaf.
        has_mean: whether each leaf's family has a mean, so that a draw is a perturbation of it; by default all have.

    >>> plan_estimators("auto", [Use("dot_general", example_axis=0), Use(None, reason="it is used 2 times")])
    [EstimatorPlan(estimator='local', example_axis=0, ...), EstimatorPlan(estimator='weight', ... 2 times', ...)]
    """
    perturbs = [True] * len(uses) if has_mean is None else has_mean
    return [_plan_factors(estimator, use, _plan(estimator, use, p)) for use, p in zip(uses, perturbs, strict=True)]


def _plan(estimator: Estimator, use: Use, has_mean: bool) -> EstimatorPlan:
    if estimator in ("weight", "factor"):
        return EstimatorPlan()
    if use.primitive is None:
        return EstimatorPlan(note=use.reason)
    if use.example_axis is not None:
        by_sign = use.primitive == "add"  # for a bias flipout is as good as local, and a sign is cheaper than a draw
        chosen = "flipout" if by_sign else _cheapest(use, has_mean) if estimator == "auto" else estimator
        return EstimatorPlan() if chosen == "weight" else EstimatorPlan(chosen, use.example_axis)
    by_output = use.primitive in ("dot_general", "conv_general_dilated") and use.meets_examples
    if estimator == "local" and by_output:  # examples and positions share an axis: only if requested by name
        return EstimatorPlan("local")
    return EstimatorPlan(note="the array it is multiplied with has no separate axis of examples")


def _plan_factors(estimator: Estimator, use: Use, plan: EstimatorPlan) -> EstimatorPlan:
    """Factors, once drawn, may be used repeatedly, even in a loop, provided Quax can pass them through the program."""
    if estimator == "weight" or not use.dispatchable:
        return plan
    met = use.in_loop or use
    contracts = met.primitive in ("dot_general", "conv_general_dilated") and met.example_axis is not None
    if not contracts:
        return plan._replace(factors="shared")
    kind = "shared" if estimator == "factor" else "per example"
    return plan._replace(factors=kind, factor_axis=met.example_axis)


def _cheapest(use: Use, has_mean: bool) -> str:
    """The exact estimator with the least variance x cost of a minibatch's gradient.

    Around a mean, the noise of a convolution's draw is a small part of the variance, most of which comes from the
    choice of examples: it is not worth flipout's second convolution. (`python -m benchmarks estimators`;
    docs/decisions, convolutions on AVX2)
    """
    if use.primitive == "conv_general_dilated" and has_mean:
        return "weight"
    exact_local = use.primitive == "gather" or (use.primitive == "dot_general" and not use.other_axes)
    return "local" if exact_local else "flipout"
