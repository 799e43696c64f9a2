"""Priors chosen by the marginal likelihood."""

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from posteriax.methods.curvature.tuning import TunedProblem


def tune(
    problem: Any,
    data: Any,
    *,
    per: Literal["leaf", "network", "none"] = "leaf",
    structure: Literal["auto", "full", "kronecker", "diagonal"] = "auto",
    noise: Literal["fixed", "learned"] = "fixed",
    start: Any = "network",
    rounds: int = 100,
    key: Any = 0,
) -> "TunedProblem":
    """The problem with the prior scales, and the noise, under which the data are most probable.

    Maximises Laplace's approximation of the marginal likelihood p(D), in rounds that move the weights towards the mode
    and then the scales to where the derivatives of the evidence vanish (MacKay 1992; Immer et al. 2021).

    Args:
        problem: with Gaussian priors, ``p.Normal()`` or ``p.HeNormal()``; their scales are where the search starts.
        data: ``(x, y)`` or ``(x, y, weight)``, arrays. Standardise the columns first.
        per: "leaf", a scale for each leaf; "network", one factor for the scales of all leaves; or "none", which leaves
            the prior as it is and chooses only the noise.
        structure: of the curvature: "full", "kronecker" or "diagonal"; "auto" takes the first if it is small enough.
        noise: what becomes of ``px.Normal(scale="learned")``, whose scale is tuned as well: "fixed" keeps the chosen
            one, ``px.Normal(scale=0.12)``; "learned" leaves it to be inferred with the weights.
        start: "network", the network's own weights, or a posterior of one point such as that of ``px.MAP()``.
        rounds: at most; the search ends when the scales have settled.
        key: an int or a JAX key, for the minibatches of large data.

    Returns:
        A :class:`px.Problem` whose `tuning` says what was chosen (print it), and whose `mode` has the weights that
        were found on the way, for ``px.Laplace(mode=tuned.mode)``.

    >>> import equinox as eqx, jax, posteriax as px
    >>> from posteriax import priors as p
    >>> (x, y), _ = px.data.two_moons(train=50)
    >>> problem = px.Problem(eqx.nn.MLP(2, 2, 4, 1, key=jax.random.key(0)), px.Categorical(), p.HeNormal())
    >>> tuned = p.tune(problem, (x, y), rounds=2)
    >>> sorted(tuned.prior)
    ['layers/0/bias', 'layers/0/weight', 'layers/1/bias', 'layers/1/weight']
    """
    from posteriax.methods.curvature.tuning import tune_prior  # a room above this one

    return tune_prior(problem, data, per=per, structure=structure, noise=noise, start=start, rounds=rounds, key=key)
