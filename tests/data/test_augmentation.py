"""Augmentation: each change as likely as it should be, the scale of the likelihood untouched, runs that repeat."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats
from test_sources import Batches, final

import posteriax as px
from posteriax._internal.tensor_file import write_tensors
from posteriax.data import Augmentation, RandomCrop, RandomFlip
from posteriax.run import checkpoint, loop

KEY = jax.random.key(0)


def places(x, crops, padding):
    """Where each crop was taken from the padded image, found by trying all of them."""
    padded = np.pad(x, [(padding, padding), (padding, padding), (0, 0)])
    size = x.shape[0]
    windows = {
        (i, j): padded[i : i + size, j : j + size] for i, j in itertools.product(range(2 * padding + 1), repeat=2)
    }
    numbers = {window.tobytes(): place for place, window in windows.items()}
    return [numbers[crop.tobytes()] for crop in np.asarray(crops)]


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_every_offset_is_equally_likely_and_independent_of_the_others(dtype):
    image = np.random.default_rng(0).integers(1, 256, size=(8, 8, 3)).astype(dtype)
    crops = RandomCrop(4)(KEY, np.broadcast_to(image, (8100, 8, 8, 3)))
    assert crops.dtype == dtype
    found = places(image, crops, 4)
    counts = np.bincount([9 * i + j for i, j in found], minlength=81)
    assert stats.chisquare(counts).pvalue > 1e-3  # the seed is fixed: this fails only if the code changes
    neighbours = np.histogram2d([i for i, _ in found[:-1]], [i for i, _ in found[1:]], bins=9)[0]
    assert stats.chi2_contingency(neighbours).pvalue > 1e-3


def test_half_of_the_images_are_flipped():
    image = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    flips = np.asarray(RandomFlip()(KEY, np.broadcast_to(image, (4000, 2, 4, 3))))
    flipped = (flips == image[:, ::-1]).all(axis=(1, 2, 3))
    assert ((flips == image).all(axis=(1, 2, 3)) ^ flipped).all()
    assert stats.binomtest(int(flipped.sum()), 4000).pvalue > 1e-3
    rare = np.asarray(RandomFlip(0.1)(KEY, np.broadcast_to(image, (4000, 2, 4, 3))))
    assert stats.binomtest(int((rare == image[:, ::-1]).all(axis=(1, 2, 3)).sum()), 4000, 0.1).pvalue > 1e-3
    assert flips.dtype == np.uint8


def test_reflected_pixels_are_those_of_numpy():
    x = np.random.default_rng(0).normal(size=(50, 5, 6)).astype(np.float32)
    crops = np.asarray(RandomCrop(2, pad="reflect")(KEY, x))
    padded = np.pad(x, [(0, 0), (2, 2), (2, 2)], mode="reflect")
    for crop, wide in zip(crops, padded, strict=True):
        windows = np.lib.stride_tricks.sliding_window_view(wide, (5, 6)).reshape(-1, 5, 6)
        assert (windows == crop).all(axis=(1, 2)).any()


def test_functions_of_a_list_are_independent():
    noise = lambda key, x: x + jax.random.normal(key, x.shape)  # noqa: E731
    sums = np.asarray(Augmentation.of([noise, noise])(KEY, jnp.zeros(5000)))
    # of variance 2: with one key for both it would be 4
    assert 1e-3 < stats.chi2.cdf(np.square(sums).sum() / 2, 5000) < 1 - 1e-3


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    return rng.normal(size=(30, 4, 4)).astype(np.float32), rng.integers(3, size=30).astype(np.int32)


@pytest.fixture(scope="module")
def problem():
    weights = np.random.default_rng(1).normal(size=(16, 3)).astype(np.float32)
    return px.Problem((lambda w, x: x.reshape(len(x), -1) @ w, weights), px.Categorical())


BOTH = (RandomCrop(1), RandomFlip())


@pytest.mark.parametrize("feed", ["loader", pytest.param("arrays", marks=pytest.mark.slow)])
def test_the_target_is_the_mean_over_augmentations_summed_over_all_examples(problem, data, feed):
    """With the weights held still, the log joint of the steps averages to that of all 18 augmentations of each image:
    neither the weights of the examples nor their labels have changed."""
    x, y = data
    padded = np.pad(x, [(0, 0), (1, 1), (1, 1)])
    crops = [padded[:, i : i + 4, j : j + 4] for i, j in itertools.product(range(3), repeat=2)]
    every = [images for crop in crops for images in (crop, crop[:, :, ::-1])]
    truth = np.mean([float(problem.log_joint(problem.network.params, (images, y))) for images in every])
    given = data if feed == "arrays" else Batches(data, 7)
    size = 7 if feed == "arrays" else None
    trace = px.fit(problem, given, px.MAP(optax.sgd(0.0)), epochs=300, batch_size=size, key=0, augment=BOTH).trace
    epochs = trace["log_joint"].reshape(300, 5).mean(axis=1)
    assert abs(epochs.mean() - truth) < 4 * epochs.std() / np.sqrt(300)
    assert abs(truth - float(problem.log_joint(problem.network.params, data))) > 20 * epochs.std() / np.sqrt(300)


@pytest.mark.parametrize(
    ("method", "length"),
    [
        pytest.param(px.Ensemble(px.MAP(), 3), {"steps": 6}, id="Ensemble"),
        pytest.param(
            px.SGHMC(1e-4, warmup_epochs=1, epochs_per_draw=1), {"draws": 2}, id="SGHMC", marks=pytest.mark.slow
        ),
    ],
)
def test_how_a_run_is_cut_into_chunks_changes_no_bit(problem, data, method, length, monkeypatch):
    fit = functools.partial(px.fit, problem, data, method, batch_size=10, key=0, **length)
    monkeypatch.setattr(loop, "SECONDS_PER_CHUNK", 1e9)  # chunks of 1, 8, ... steps
    whole = fit(augment=BOTH)
    monkeypatch.setattr(loop, "SECONDS_PER_CHUNK", 1e-9)  # of one step
    np.testing.assert_array_equal(final(fit(augment=BOTH)), final(whole))
    assert not np.array_equal(final(fit()), final(whole))
    assert any("augmented by RandomCrop(padding=1, pad='zero'), RandomFlip" in note for note in whole.trace.notes)


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_bits(problem, data, tmp_path, monkeypatch):
    fit = functools.partial(px.fit, problem, data, px.MAP(), steps=20, batch_size=10, key=0, augment=BOTH)
    whole = fit()
    monkeypatch.setattr(loop, "SECONDS_PER_CHUNK", 1e-9)  # one step
    states = 0

    def dying_write(path, about, arrays):
        nonlocal states
        states += path.name == "state.tensors"
        if states == 5:
            raise KeyboardInterrupt
        return write_tensors(path, about, arrays)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(checkpoint, "write_tensors", dying_write)
        fit(checkpoint=tmp_path, checkpoint_every=1e-9)
    np.testing.assert_array_equal(final(fit(checkpoint=tmp_path)), final(whole))


def brighter(key, x):
    return x + jax.random.uniform(key)


def test_another_augmentation_is_another_run(problem, data, tmp_path):
    fit = functools.partial(px.fit, problem, data, px.MAP(), steps=2, batch_size=10, key=0, checkpoint=tmp_path)
    fit(augment=brighter)
    fit(augment=brighter)
    for other, was in ((BOTH, "is now RandomCrop"), (None, "is now None"), (brighter_twice(), "computes something")):
        with pytest.raises(px.run.CheckpointError, match=was):
            fit(augment=other)
    with pytest.raises(px.run.CheckpointError, match=r"augmentation was test_augmentation.brighter, is now"):
        fit(augment=RandomFlip())


def brighter_twice():
    """A function of the same name that computes something else."""

    def function(key, x):
        return x + 2 * jax.random.uniform(key)

    function.__qualname__, function.__module__ = brighter.__qualname__, brighter.__module__
    return function


@pytest.mark.slow
def test_members_see_different_augmentations(problem, data):
    """With the weights held still, the whole data set in each batch and one change for all of it, whatever its order,
    nothing else can tell members apart."""
    still = px.Ensemble(px.MAP(optax.sgd(0.0)), 2, starts="network")
    fit = functools.partial(px.fit, problem, data, still, steps=3, batch_size=30, key=0)
    plain, augmented = fit().trace["log_joint"], fit(augment=brighter).trace["log_joint"]
    np.testing.assert_allclose(plain, plain[0, 0], rtol=1e-5)
    assert len(np.unique(augmented.round(3))) == 6  # different at every step, too


def test_predictions_are_not_augmented(problem, data):
    posterior = px.fit(problem, data, px.MAP(), steps=2, key=0, augment=lambda key, x: 0 * x)
    weights = np.asarray(posterior.draws.network)[0, 0]
    logits = data[0].reshape(30, -1) @ weights
    np.testing.assert_allclose(posterior.predict(data[0]).probs, jax.nn.softmax(logits), rtol=1e-5)


@pytest.mark.parametrize("method", [px.HMC(), px.NUTS(), px.MCLMC()], ids=lambda m: m.name)
def test_samplers_of_the_whole_data_set_refuse_it(problem, data, method):
    with pytest.raises(ValueError, match=rf"{method.name} needs the same log joint at every evaluation"):
        px.fit(problem, data, method, draws=1, key=0, augment=RandomFlip())


@pytest.mark.parametrize(
    ("augment", "error"),
    [
        ([], "augment is empty"),
        (3, r"augment must be a function \(key, x\) -> x of a batch, .* got 3"),
        (RandomCrop, "augment must be a function .* got <class"),
        (px.data.Normalise(0.0, 1.0), "Normalise is not an augmentation, since predictions need it as well"),
        (lambda key, x: x[:, 1:], r"must keep the shape and dtype of x, \(30, 4, 4\) float32, .* \(30, 3, 4\) float32"),
        (lambda key, x: x.astype(jnp.int32), r"<lambda> returns \(30, 4, 4\) int32"),
        (lambda x: x, r"augment fails for x of shape \(30, 4, 4\) float32: .*positional argument"),
        (RandomCrop(4, pad="reflect"), "RandomCrop reflects at most 3 pixels here, got 4"),
    ],
)
def test_what_is_not_an_augmentation_is_refused_in_one_line(problem, data, augment, error):
    with pytest.raises((ValueError, TypeError), match=error) as caught:
        px.fit(problem, data, px.MAP(), steps=1, key=0, augment=augment)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("shape", "error"),
    [((5, 8), r"takes images \(N, height, width, channels\)"), ((5, 3, 8, 8), "channels last, got .* has them first")],
)
def test_images_of_another_layout_are_refused(shape, error):
    for augment in (RandomCrop(1), RandomFlip()):
        with pytest.raises(ValueError, match=error):
            augment(KEY, np.zeros(shape))


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match="padding must be a whole number of at least 1, got 0"):
        RandomCrop(0)
    with pytest.raises(ValueError, match='pad must be "zero" or "reflect", got \'wrap\''):
        RandomCrop(1, pad="wrap")
    with pytest.raises(ValueError, match="probability must be between 0 and 1, got 2"):
        RandomFlip(2)
