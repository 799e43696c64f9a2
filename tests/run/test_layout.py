"""The layout of a run over devices: members are the same bits on any, and a split batch differs by rounding only."""

import re

import equinox as eqx
import jax
import numpy as np
import optax
import pytest

import posteriax as px
from benchmarks.driver import Driver
from posteriax import families as q

pytestmark = pytest.mark.usefixtures("two_devices")

NET = eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0))
ADAM = optax.adam(1e-2)
# A step of SGD adds at most (learning rate) * (rounding of a gradient), and multiplies what was there by at most
# 1 + (learning rate) * (curvature). Adam divides by the gradient's size: of a gradient near 0 it keeps only the sign.
SGD = optax.sgd(1e-2)
METHODS = {
    "VI, flipout": (px.VI(q.Normal(), "flipout", SGD), {"steps": 20}),
    "MAP": (px.MAP(SGD), {"steps": 20}),
    "VI, one draw of the weights": (px.VI(q.Normal(), "weight", SGD), {"steps": 20}),
    "VI, local": (px.VI(q.Normal(), "local", SGD), {"steps": 20}),
    "VI, rank-1": (px.VI(q.Rank1(2), optimizer=SGD), {"steps": 20}),
    "SGHMC": (px.SGHMC(1e-5, warmup_epochs=2, epochs_per_draw=1), {"draws": 3}),
    "SWAG": (px.SWAG(learning_rate=0.01, start_learning_rate=0.01, momentum=0.0, rank=2), {"epochs": 6}),
}
# each of them compiles other arithmetic; `in bits` leaves no room for one that rounds differently
MEMBERS = {
    "HMC": (px.HMC(warmup=20, step_size=0.01), {"draws": 10, "chains": 4}),
    "VI": (px.Ensemble(px.VI(q.Normal()), 2), {"steps": 50, "batch_size": 20}),
    "NUTS": (px.NUTS(warmup=20, max_doublings=4), {"draws": 10, "chains": 4}),
    "SGHMC": (px.SGHMC(1e-4, warmup_epochs=2, epochs_per_draw=2), {"draws": 5, "chains": 4, "batch_size": 20}),
    "MCLMC": (px.MCLMC(warmup=100, thin=5), {"draws": 10, "chains": 2}),
    "AdjustedMCLMC": (px.AdjustedMCLMC(warmup=60, max_steps=50), {"draws": 10, "chains": 2}),
    "MAP": (px.Ensemble(px.MAP(), 2), {"steps": 50, "batch_size": 20}),
}


def with_others_slow(cases, *every_day):
    """The names of cases, all of which but a few are slow."""
    return [name if name in every_day else pytest.param(name, marks=pytest.mark.slow) for name in cases]


@pytest.fixture(scope="module")
def problem():
    return px.Problem(NET, px.Categorical())


def results(posterior):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(posterior.sample(0, 5))]


def assert_same(one, two):
    """Sums of some hundred terms round at 1e-6 of their size; steps let that grow tenfold (`SGD`)."""
    for a, b in zip(results(one), results(two), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", with_others_slow(METHODS, "VI, flipout"))
def test_a_batch_split_over_devices_gives_the_same_posterior(name, problem, moons):
    method, length = METHODS[name]
    one, two = (
        px.fit(problem, moons[0], method, key=0, batch_size=20, mesh=mesh, **length)
        for mesh in (px.distributed.mesh(), px.distributed.mesh(data=2))
    )
    assert_same(one, two)


def test_members_that_step_together_differ_from_those_in_turn_by_rounding_only(problem, moons):
    in_turn, together = (
        px.fit(problem, moons[0], px.Ensemble(px.MAP(SGD), 3, together=together), steps=20, key=0, batch_size=20)
        for together in (None, True)
    )
    assert_same(in_turn, together)


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [
        pytest.param(px.VI(q.Rank1(2)), id="VI, rank-1"),
        pytest.param(px.MAP(), id="MAP", marks=pytest.mark.slow),
        pytest.param(px.VI(q.Normal(), "local"), id="VI, local", marks=pytest.mark.slow),
        pytest.param(px.VI(q.Normal(), "flipout"), id="VI, flipout", marks=pytest.mark.slow),
        pytest.param(px.SGHMC(1e-5), id="SGHMC", marks=pytest.mark.slow),
    ],
)
def test_a_step_over_a_split_batch_adds_up_gradients_and_exchanges_nothing_else(method, problem, moons):
    driver = Driver(problem, method, moons[0], batch_size=20, mesh=px.distributed.mesh(data=2))
    steps = driver.program.chunk.lower(driver.keys, driver.states, driver.data, np.int32(0), np.int32(1))
    compiled = steps.compile().as_text()
    exchanges = re.findall(r" (all-\w+|reduce-scatter|collective-\w+)(?:-start)?\(", compiled)
    assert exchanges == ["all-reduce"]


@pytest.mark.parametrize("name", with_others_slow(MEMBERS, "SGHMC"))  # HMC's every day in distributed/test_processes.py
def test_members_are_the_same_bits_on_any_number_of_devices(name, problem, moons):
    method, length = MEMBERS[name]
    one, two = (
        px.fit(problem, moons[0], method, key=0, mesh=mesh, **length)
        for mesh in (px.distributed.mesh(), px.distributed.mesh(members=2))
    )
    for a, b in zip(results(one), results(two), strict=True):
        np.testing.assert_array_equal(a, b)
    for field in one.trace:
        np.testing.assert_array_equal(one.trace[field], two.trace[field])


@pytest.mark.as_shipped
def test_members_start_with_the_same_bits_on_any_number_of_devices():
    """The start draws, and could be fused with putting what was drawn in its place among the members."""
    rng = np.random.default_rng(0)
    data = rng.normal(size=(46, 5)).astype(np.float32), rng.normal(size=46).astype(np.float32)
    problem = px.Problem(eqx.nn.MLP(5, 1, 10, 2, key=jax.random.key(1)), px.Normal(scale=1.0))
    vi = px.Ensemble(px.VI(q.KTied(2), optimizer=optax.sgd(0.0)), 2)
    one, two = (
        px.fit(problem, data, vi, steps=1, key=0, mesh=mesh).variational
        for mesh in (px.distributed.mesh(), px.distributed.mesh(members=2))
    )
    assert jax.tree.all(jax.tree.map(np.array_equal, one, two))


@pytest.mark.slow
def test_members_of_a_wider_network_are_the_same_bits_on_any_number_of_devices():
    """Its products are large enough that XLA could divide them among threads, or fuse them otherwise."""
    rng = np.random.default_rng(0)
    data = rng.normal(size=(200, 784)).astype(np.float32), rng.integers(0, 10, 200)
    problem = px.Problem(eqx.nn.MLP(784, 10, 400, 2, key=jax.random.key(0)), px.Categorical())
    hmc = px.HMC(step_size=1e-3, trajectory=0.02, warmup=2, start="network")
    one, two = (
        px.fit(problem, data, hmc, draws=2, chains=2, key=0, mesh=mesh)
        for mesh in (px.distributed.mesh(), px.distributed.mesh(members=2))
    )
    for a, b in zip(results(one), results(two), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_augmented_batches_and_batches_from_the_host_are_split_too(problem, moons, tmp_path):
    x, y = moons[0]
    np.save(tmp_path / "x.npy", x)
    on_disk = np.load(tmp_path / "x.npy", mmap_mode="r")
    loader = [(x[i : i + 20], y[i : i + 20]) for i in range(0, 60, 20)]
    jitter = lambda key, x: x + 0.1 * jax.random.normal(key, x.shape)  # noqa: E731
    for data, options in (
        ((x, y), {"batch_size": 20, "augment": jitter}),
        ((on_disk, y), {"batch_size": 20}),
        (loader, {}),
    ):
        one, two = (
            px.fit(problem, data, px.VI(optimizer=SGD), steps=20, key=0, mesh=mesh, **options)
            for mesh in (px.distributed.mesh(), px.distributed.mesh(data=2))
        )
        assert_same(one, two)


def test_a_split_batch_is_computed_on_both_devices_and_summed(problem, moons):
    """Each device multiplies only its part of the batch, and gradients are added across devices."""
    from posteriax.run.feeding import Supply
    from posteriax.run.fitting import RunRequest, prepare_run

    request = RunRequest(
        problem=problem,
        data=moons[0],
        method=px.MAP(ADAM),
        key=0,
        steps=5,
        batch_size=20,
        mesh=px.distributed.mesh(data=2),
    )
    prepared = prepare_run(request)
    program = prepared.program
    data = Supply(prepared.data, program).take(0, 1)
    keys, states = program.begin(prepared.key, data)
    text = program.chunk.lower(keys, states, data, np.int32(0), np.int32(1)).compile().as_text()
    assert "all-reduce" in text
    assert "f32[10,8]" in text and "f32[20,8]" not in text


@pytest.mark.slow
def test_sharded_parameters_are_held_in_parts_and_give_the_same_posterior(problem, moons):
    """Mean, scale and Adam's moments of the weights are on either device by halves, in every step."""
    from posteriax.run import fitting

    seen = []
    run_steps = fitting.run_steps

    def look(program, supply, keys, run, *rest):
        run_steps(program, supply, keys, run, *rest)
        seen.append((program.chunk._cache_size(), run.states))

    fit = lambda **where: px.fit(  # noqa: E731
        problem, moons[0], px.VI(q.Normal(), optimizer=ADAM), steps=20, key=0, batch_size=20, **where
    )
    fitting.run_steps = look
    try:
        sharded = fit(mesh=px.distributed.mesh(data=2), shard="**/weight")
    finally:
        fitting.run_steps = run_steps
    ((programs, states),) = seen
    assert programs == 1
    weights = [leaf for name, own in states.variational.items() for leaf in own.values() if name.endswith("weight")]
    moments = [leaf for leaf in jax.tree.leaves(states.optimizer) if leaf.ndim == 3]
    assert len(weights) == 4 and len(moments) >= 8
    for leaf in weights + moments:
        assert leaf.addressable_shards[0].data.size * 2 == leaf.size
    biases = [leaf for name, own in states.variational.items() for leaf in own.values() if name.endswith("bias")]
    assert all(leaf.addressable_shards[0].data.size == leaf.size for leaf in biases)
    assert_same(fit(), sharded)


def test_an_impossible_mesh_is_an_error(problem, moons):
    fit = lambda method, mesh, **options: px.fit(problem, moons[0], method, key=0, mesh=mesh, **options)  # noqa: E731
    too_many = jax.device_count() + 1
    with pytest.raises(ValueError, match=f"needs {too_many} devices, but there are {too_many - 1}"):
        px.distributed.mesh(data=too_many)
    with pytest.raises(ValueError, match="over 2 devices, which does not divide the 3 members"):
        fit(px.Ensemble(px.MAP(), 3), px.distributed.mesh(members=2), steps=1)
    with pytest.raises(ValueError, match="over 2 devices, but a batch has 1 examples"):
        fit(px.MAP(), px.distributed.mesh(data=2), steps=1, batch_size=1)
    with pytest.raises(ValueError, match="does not divide its 15 examples"):
        fit(px.MAP(), px.distributed.mesh(data=2), steps=1, batch_size=16)
    with pytest.raises(TypeError, match=r"mesh must be px\.distributed\.mesh"):
        fit(px.MAP(), 2, steps=1)
    with pytest.raises(ValueError, match="shard= splits parameters over the devices that share the data"):
        fit(px.MAP(), px.distributed.mesh(), steps=1, shard="**/weight")
    with pytest.raises(ValueError, match='shard="kernel" matches no leaf'):
        fit(px.MAP(), px.distributed.mesh(data=2), steps=1, shard="kernel")
    with pytest.raises(ValueError, match="shard= is for methods that use minibatches"):
        fit(px.HMC(), px.distributed.mesh(data=2), draws=1, shard="**/weight")
    one = tuple(a[:1] for a in moons[0])
    with pytest.raises(ValueError, match="over 2 devices, but there are 1 examples"):
        px.fit(problem, one, px.HMC(), draws=1, key=0, mesh=px.distributed.mesh(data=2))
