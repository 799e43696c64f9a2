"""Data that do not fit on the device: memory maps, large arrays, and loaders of a user's own batches."""

import equinox as eqx
import jax
import numpy as np
import optax
import pytest

import posteriax as px
from posteriax.data import sources
from posteriax.data.batches import Minibatches


@pytest.fixture(scope="module")
def problem():
    return px.Problem(eqx.nn.MLP(2, 2, 8, 1, key=jax.random.key(0)), px.Categorical())


def final(posterior):
    leaves = jax.tree.leaves(posterior.draws if hasattr(posterior, "draws") else posterior.variational)
    return np.concatenate([np.ravel(leaf) for leaf in leaves])


@pytest.fixture
def mapped(moons, tmp_path):
    (x, y), _ = moons
    np.save(tmp_path / "x.npy", x)
    return np.load(tmp_path / "x.npy", mmap_mode="r"), y


@pytest.mark.slow
def test_a_memory_map_gives_the_result_of_data_on_the_device(problem, moons, mapped):
    resident = px.fit(problem, moons[0], px.MAP(), steps=30, batch_size=25, key=0)
    streamed = px.fit(problem, mapped, px.MAP(), steps=30, batch_size=25, key=0)
    # the same batches, in another order of rows: equal to rounding
    np.testing.assert_allclose(final(streamed), final(resident), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(streamed.trace["nll_per_example"][0], resident.trace["nll_per_example"][0], rtol=1e-4)


def test_host_batches_are_the_devices_batches(moons):
    (x, y), _ = moons
    key = jax.random.key(3)
    batches = Minibatches.of(60, 25)
    data = x, y, np.linspace(0.0, 3.0, 60, dtype=np.float32)
    host = sources.HostArrays(data, batches, key)
    for step, batch in enumerate(host.batches(0, 7)):
        device = batches.take(data, batches.order(key, step // 3), step % 3)
        assert sorted(map(tuple, batch.x.tolist())) == sorted(map(tuple, np.asarray(device.x).tolist()))
        assert sorted(batch.weight.tolist()) == sorted(np.asarray(device.weight).tolist())
        assert (batch.y * batch.weight).sum() == pytest.approx(float((device.y * device.weight).sum()), rel=1e-6)
    later = list(host.batches(4, 7))
    np.testing.assert_array_equal(later[0].x, list(host.batches(0, 7))[4].x)


def test_large_arrays_stay_on_the_host(moons, monkeypatch):
    (x, _), _ = moons
    assert not sources.is_large(x)
    monkeypatch.setattr(sources, "RESIDENT_BYTES", 100)
    assert sources.is_large(x)


class Batches:
    """Shuffled by epoch alone, with a short last batch."""

    def __init__(self, data, size):
        self.data, self.size, self.epoch = data, size, 0

    def __len__(self):
        return -(-len(self.data[1]) // self.size)

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        order = np.random.default_rng(self.epoch).permutation(len(self.data[1]))
        for i in range(len(self)):
            rows = order[i * self.size : (i + 1) * self.size]
            yield tuple(a[rows] for a in self.data)


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_a_loader_has_the_scale_of_the_data_set(problem, moons, weighted):
    """With the weights held still, the steps of an epoch average to the full value."""
    data = (*moons[0], np.linspace(0.0, 3.0, 60)) if weighted else moons[0]
    loader = Batches(data, 25)
    trace = px.fit(problem, loader, px.MAP(optax.sgd(0.0)), epochs=2, key=0).trace
    truth = float(problem.log_joint(problem.network.params, data))
    assert trace["log_joint"].shape == (6,)
    assert trace["log_joint"][:3].mean() == pytest.approx(truth, rel=1e-5)
    assert trace["log_joint"][3:].mean() == pytest.approx(truth, rel=1e-5)


def test_a_list_of_batches_is_a_loader(problem, moons):
    x, y = moons[0]
    batches = [(x[:40], y[:40]), (x[40:], y[40:])]
    traces = [
        px.fit(problem, data, px.MAP(), epochs=2, key=0).trace["log_joint"] for data in (batches, iter_again(batches))
    ]
    np.testing.assert_array_equal(*traces)


def iter_again(batches):
    """A loader that is no list."""

    class Again:
        def __len__(self):
            return len(batches)

        def __iter__(self):
            return iter(batches)

    return Again()


@pytest.mark.slow
def test_a_loaders_run_resumes_in_the_middle_of_an_epoch(problem, moons, tmp_path, monkeypatch):
    whole = px.fit(problem, Batches(moons[0], 7), px.MAP(), steps=25, key=0)

    class Tired(Exception):
        pass

    class UntilNow(Batches):
        def __iter__(self):
            for i, batch in enumerate(super().__iter__()):
                if self.epoch == 1 and i == 4:
                    raise Tired
                yield batch

    monkeypatch.setattr("posteriax.run.program.STEPS_PER_CHUNK", 3)
    where = {"checkpoint": tmp_path, "checkpoint_every": 1e-9}
    with pytest.raises(Tired):
        px.fit(problem, UntilNow(moons[0], 7), px.MAP(), steps=25, key=0, **where)
    resumed = px.fit(problem, Batches(moons[0], 7), px.MAP(), steps=25, key=0, **where)
    np.testing.assert_allclose(final(resumed), final(whole), rtol=1e-5, atol=1e-7)
    assert resumed.trace["log_joint"].shape == (25,)


def test_loaders_are_checked(problem, moons):
    with pytest.raises(ValueError, match="HMC needs the whole data set at every step: give arrays"):
        px.fit(problem, Batches(moons[0], 25), px.HMC(), draws=2, key=0)
    with pytest.raises(ValueError, match="leave batch_size out"):
        px.fit(problem, Batches(moons[0], 25), px.MAP(), steps=2, batch_size=5, key=0)
    with pytest.raises(ValueError, match="labels up to 10"):
        px.fit(problem, Batches((moons[0][0], moons[0][1] * 10), 25), px.MAP(), steps=2, key=0)

    class Short(Batches):
        def __len__(self):
            return 9

        def __iter__(self):
            return iter([self.data] * 3)

    with pytest.raises(ValueError, match="has length 9, but yielded 3 batches"):
        px.fit(problem, Short(moons[0], 25), px.MAP(), steps=9, key=0)
