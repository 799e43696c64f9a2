"""A family for all leaves serves every leaf, however odd; one that was given to a leaf by name fits or is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from every_family import FAMILIES, Case

import posteriax as px
from posteriax import families as q
from posteriax.data import Batch
from posteriax.methods import Task

SHAPES = {
    "token": (1, 1, 4),
    "positions": (1, 4, 4),
    "narrow": (1, 6),
    "rows": (4, 1),
    "kernel": (3, 4, 4),
    "image": (2, 2, 1, 3),
    "scalar": (),
    "gain": (4,),
    "sum": (4,),
    "head": (4, 1),
}


def network(w, x):
    """Every kind of leaf once. x: (examples, 3, 4)."""
    x = jnp.concatenate([jnp.tile(w["token"], (x.shape[0], 1, 1)), x], axis=1) + w["positions"]
    x = jax.lax.conv_general_dilated(x, w["kernel"], (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"))
    image = jax.lax.conv_general_dilated(
        x[..., None], w["image"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    x = jnp.tanh(x * w["gain"] * w["scalar"] + image.mean(axis=-1))
    one = x.mean(axis=1)
    narrow = jnp.tanh((one @ w["rows"]) @ w["narrow"])
    return one @ w["head"] + narrow.sum(axis=-1, keepdims=True) + (one @ w["sum"])[:, None]


def params():
    keys = jax.random.split(jax.random.key(0), len(SHAPES))
    return {name: jax.random.normal(key, SHAPES[name]) for name, key in zip(SHAPES, keys, strict=True)}


X = np.asarray(jax.random.normal(jax.random.key(1), (6, 3, 4)))
Y = np.linspace(-1, 1, 6)[:, None].astype(np.float32)

JOINT = {"LowRank, joint": Case(q.LowRank(3, "network"))}
EVERY = [
    pytest.param(case.family, id=name, marks=() if name == "KTied" else pytest.mark.slow)
    for name, case in (FAMILIES | JOINT).items()
]


def target_of():
    net = px.network((network, params()), example=X)
    problem = px.Problem(net, px.Normal(scale=1.0))
    return problem, Task(problem=problem, example=jax.ShapeDtypeStruct((3, 4), jnp.float32), num_examples=6, steps=2)


@pytest.mark.slow
@pytest.mark.parametrize("family", EVERY)
def test_a_family_for_all_leaves_serves_every_leaf(family):
    """A step is finite everywhere, and draws have the leaves' shapes."""
    problem, task = target_of()
    method = px.VI(family)
    kernel = method.bind(task)
    batch = Batch(jnp.asarray(X), jnp.asarray(Y), jnp.ones(6))

    @jax.jit
    def run(key):
        state = kernel.init(key, problem.latents, batch)
        state, info = kernel.step(key, state, batch)
        return jax.tree.map(lambda leaf: leaf[None], state), info

    members, info = run(jax.random.key(1))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((members.variational, info)))
    draws = kernel.finish(members, None, px.posterior.Trace({})).sample(0, 2)
    assert {name: leaf.shape[1:] for name, leaf in draws.items()} == SHAPES


def test_k_tied_falls_back_to_the_rank_there_is_and_says_so():
    _, task = target_of()
    notes = px.VI(q.KTied(2)).bind(task).notes
    for name, shape in (("narrow", (1, 6)), ("rows", (4, 1)), ("head", (4, 1)), ("sum", (4, 1))):
        expected = f"{name}: the scales of a {shape} matrix have rank 1 at most, so it gets q.KTied(k=1)"
        assert any(note.startswith(expected) for note in notes)
    assert not any(note.startswith(("token", "positions", "gain", "kernel")) and "rank" in note for note in notes)
    assert any(
        "narrow" in note for note in px.VI({"**": q.Point(), "n*": q.KTied(2)}).bind(task).notes
    )  # no name of it
    with pytest.raises(ValueError, match=r"KTied for narrow \(1, 6\): .* rank 1 at most.*another family"):
        px.VI({"**": q.Point(), "narrow": q.KTied(2)}).bind(task)


def test_a_leaf_without_inputs_is_a_bias_to_every_family():
    """Tokens and positions are added to the data or stand beside them: no input enters, so that none is dropped."""
    infos = {leaf.path: leaf for leaf in target_of()[0].leaf_infos}
    assert {name for name, leaf in infos.items() if leaf.is_bias} == {"token", "positions", "scalar", "gain"}
    assert isinstance(q.Dropout(0.5).for_leaf(infos["token"]), q.Point)
    assert isinstance(q.Rank1(2).for_leaf(infos["positions"]), q.PointPerComponent)


@pytest.mark.slow
def test_additive_factors_on_an_embedding_are_points():
    tokens = np.arange(6) % 5
    net = (lambda w, x: w["t"][x] @ w["k"], {"t": jnp.ones((5, 3)), "k": jnp.ones((3, 2))})
    problem = px.Problem(net, px.Categorical())
    method = px.VI(q.Rank1(2, form="additive"))
    posterior = px.fit(problem, (tokens, np.arange(6) % 2), method, steps=1, key=0)
    assert isinstance(posterior.families["t"], q.PointPerComponent)
    assert any(note.startswith("t: its rows are looked up") for note in posterior.trace.notes)
