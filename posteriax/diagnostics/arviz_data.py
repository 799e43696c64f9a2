"""Draws and the sampler's record as ArviZ's InferenceData, for its plots and tables."""

from typing import Any

import jax
import numpy as np

from posteriax.diagnostics.diagnosis import is_sampled
from posteriax.diagnostics.sampler import after_warmup
from posteriax.posterior.draws import DrawsPosterior
from posteriax.posterior.posterior import Posterior


def to_arviz(posterior: Posterior) -> Any:
    """The draws and what the sampler recorded with them, without the warm-up.

    Args:
        posterior: one that was sampled.

    Returns:
        InferenceData with the groups `posterior` (a variable for every leaf, by its path with dots for slashes, all in
        memory) and `sample_stats`: all that the sampler recorded, under the ArviZ names that its method declares.

    >>> import posteriax as px
    >>> from posteriax.problem import Latents
    >>> net = (lambda params, x: x @ params["fc"]["w"], {"fc": {"w": np.zeros((3, 1), np.float32)}})
    >>> draws = Latents({"fc": {"w": np.random.default_rng(0).normal(size=(4, 100, 3, 1))}}, {})
    >>> posterior = DrawsPosterior(px.Problem(net, px.Normal(scale=1.0)), px.posterior.Trace({}), draws)
    >>> posterior.to_arviz().posterior["fc.w"].shape
    (4, 100, 3, 1)
    """
    source = posterior.drawn_from
    if not isinstance(source, DrawsPosterior) or not is_sampled(source):
        raise TypeError("ArviZ looks at chains of draws, and this posterior has none: take draws by .sample(key, n)")
    try:
        import arviz
    except ImportError as error:
        raise ImportError("to_arviz needs ArviZ: pip install 'posteriax[arviz]'") from error
    leaves = jax.tree.leaves(source.draws)
    draws = leaves[0].shape[1]
    names = [name.replace("/", ".") for name in source.problem.leaf_names]  # netCDF files allow no slashes
    variables = {name: np.asarray(leaf) for name, leaf in zip(names, leaves, strict=True)}
    recorded, arviz_names = after_warmup(posterior.trace), posterior.trace.arviz_names
    stats = {arviz_names.get(name, name): _at_kept_draws(values, draws) for name, values in recorded.items()}
    return arviz.from_dict(posterior=variables, sample_stats=stats or None)


def _at_kept_draws(values: np.ndarray, draws: int) -> np.ndarray:
    """What was recorded with the kept draws, the last of every `thin` steps; `values` are (chains, steps)."""
    thin = values.shape[1] // draws
    return values[:, thin - 1 :: thin][:, :draws]
