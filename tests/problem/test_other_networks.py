"""Ten networks of other people's making, unchanged, under every kind of method."""

import jax
import numpy as np
import optax
import other_networks
import pytest
from other_networks import CASES, N, Y

import posteriax as px
from posteriax import families as q

METHODS = {
    "MAP": (px.MAP(optax.adam(1e-2)), {"steps": 60}),
    "mean-field": (px.VI(q.Normal()), {"steps": 2}),
    "k-tied": (px.VI(q.KTied(2)), {"steps": 2}),
    "rank-1": (px.VI(q.Rank1(2)), {"steps": 2}),
    "SWAG": (px.SWAG(), {"epochs": 4}),
    "SGHMC": (px.SGHMC(warmup_epochs=1, epochs_per_draw=1), {"draws": 2}),
    "HMC": (px.HMC(warmup=2, step_size=1e-3, trajectory=3e-3, start="network"), {"draws": 2}),
}
# every network with every method; the quickest of them, which must also learn, every day
RUNS = [
    pytest.param(
        name, method, id=f"{name}, {method}", marks=() if (name, method) == ("Haiku MLP", "MAP") else pytest.mark.slow
    )
    for name in CASES
    for method in METHODS
]


def arrays(net):
    """All arrays that a network holds, of any library."""
    if hasattr(net, "variables"):
        return [np.asarray(v) for v in net.variables]
    from flax import nnx

    tree = nnx.state(net) if isinstance(net, nnx.Module) else net
    return [
        np.asarray(jax.random.key_data(a) if jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key) else a)
        for a in jax.tree.leaves(tree)
        if hasattr(a, "dtype")
    ]


@pytest.mark.parametrize(("name", "method"), RUNS)
@pytest.mark.filterwarnings("ignore:.*its prior follows its use")  # the library's, known from tests of their own
def test_it_is_fitted_predicted_saved_and_loaded(name, method, tmp_path):
    case = CASES[name]()
    before = arrays(case.net)
    problem, (how, length) = case.problem, METHODS[method]
    data = case.x, Y
    if method == "HMC" and case.coupled:
        with pytest.raises(ValueError, match="depend on the other examples of its batch"):
            px.fit(problem, data, how, key=0, **length)
        return
    if not how.full_batch:
        length = {**length, "batch_size": 12}
    posterior = px.fit(problem, data, how, key=0, **length)
    assert any("couple the examples" in note for note in posterior.trace.notes) == case.coupled
    predicted = posterior.predict(case.x, draws=3)
    assert predicted.probs.shape == (N, 3)
    np.testing.assert_allclose(predicted.probs.sum(axis=-1), 1.0, rtol=1e-5)
    if method == "MAP":
        fitted = posterior.problem  # which has read the program
        assert fitted.log_joint(posterior.mean, data) > fitted.log_joint(fitted.latents, data) + 1.0  # nats
    posterior.save(tmp_path / "run.posterior")
    again = px.load(tmp_path / "run.posterior", px.network(case.net, call=case.call))
    np.testing.assert_array_equal(again.predict(case.x, draws=3).outputs, predicted.outputs)
    for one, other in zip(before, arrays(case.net), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Flax NNX CNN", "Equinox ResNet", "Haiku ResNet", "Keras CNN"])
def test_batch_statistics_of_every_draw_can_be_measured(name):
    case = CASES[name]()
    posterior = px.fit(case.problem, (case.x, Y), px.VI(q.Normal()), steps=2, key=0, batch_size=12)
    measured = px.posterior.with_batch_statistics(posterior, case.x, batch_size=12)
    together = measured.predict(case.x, draws=2).probs
    alone = measured.predict(jax.tree.map(lambda a: a[:5], case.x), draws=2).probs
    np.testing.assert_allclose(together[:5], alone, atol=1e-5)
    assert np.abs(together - posterior.predict(case.x, draws=2).probs).max() > 1e-4


@pytest.mark.slow
def test_attention_and_embeddings_have_their_axes():
    for name, path, fan_in in (
        ("Flax Linen ViT", "EncoderBlock_0/MultiHeadDotProductAttention_0/query/kernel", 8),
        ("Flax Linen LSTM", "Embed_0/embedding", 1),
        ("Equinox BERT", "tokens/weight", 1),
        ("Equinox BERT", "layers/0/attention/query_proj/weight", 6),
        ("Keras two inputs", "embedding/embeddings", 1),
    ):
        case = other_networks.CASES[name]()
        infos = {leaf.path: leaf for leaf in px.network(case.net, example=case.x).leaf_infos}
        assert infos[path].fan_in == fan_in
