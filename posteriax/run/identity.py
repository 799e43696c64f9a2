"""What a run's result depends on: a checkpoint is resumed only by the run that wrote it."""

import hashlib
import re
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from posteriax import __about__
from posteriax._internal.leaf_paths import describe_leaves
from posteriax._internal.settings import to_plain
from posteriax.data import Augmentation
from posteriax.methods import Members
from posteriax.problem import Problem


def identity_of(
    members: Members, key: jax.Array, data: Any, batch: Any, augment: Augmentation | None = None
) -> dict[str, str]:
    """What a run's result depends on, by name. Functions are identified by the computation of one step."""
    kernel, task = members.kernel, members.kernel.task
    problem = task.problem
    if task.data_axis is not None:  # the axis exists only on the devices
        kernel = kernel.method.bind(replace(task, data_axis=None))
    start = jax.eval_shape(kernel.init, key, problem.latents, batch)
    step = str(jax.make_jaxpr(kernel.step)(key, start, batch))
    # a sampler's run may be extended later: its steps do not depend on how many follow
    length = {} if kernel.method.samples else {"steps": str(task.steps)}
    if augment is not None:
        length["augmentation"] = str(augment)
        step += str(jax.make_jaxpr(augment)(key, batch.x))
    return length | {
        "method": kernel.method.name,
        "members": str(members.count),
        "warm-up": str(task.warmup),
        "steps from draw to draw": str(task.thin),
        "batch size": str(len(batch.weight)),
        "examples": str(task.num_examples),
        "key": str(np.asarray(jax.random.key_data(key)).tolist()),
        "temperature": str(problem.temperature),
        "prior": _plain(problem),
        "network": ", ".join(describe_leaves(problem.network.params)),
        "starting weights": digest_of((problem.network.params, members.starts.draws)),
        **({} if problem.network.fixed is None else {"fixed leaves": digest_of(problem.network.fixed.values)}),
        "data": digest_of(data),
        "computation of a step": hashlib.sha256(re.sub(r"0x[0-9a-f]+", "", step).encode()).hexdigest(),
        "versions": f"posteriax {__about__.__version__}, jax {jax.__version__}",
    }


def _plain(problem: Problem) -> str:
    try:
        text = str(to_plain(problem.prior))
    except TypeError:  # a user's own prior: the computation of a step identifies it
        return type(problem.prior).__name__
    return text if len(text) < 1000 else hashlib.sha256(text.encode()).hexdigest()


def digest_of(tree: Any) -> str:
    """A digest of all arrays of a tree, with their shapes and dtypes."""
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(tree):
        array = np.ascontiguousarray(leaf)
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(array.view(np.uint8).data if array.size else b"")
    return digest.hexdigest()
