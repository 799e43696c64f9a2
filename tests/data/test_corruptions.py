"""Corruptions of images: against formulas, NumPy, SciPy and Pillow, and for every kind what holds for all."""

import colorsys
import io
import sys
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from scipy import ndimage, stats

import posteriax as px
from posteriax.data.corruptions import blur, digital, image_operations, noise, suite, weather
from posteriax.data.corruptions.uniforms import uniforms

KINDS = px.data.CORRUPTIONS + px.data.EXTRA_CORRUPTIONS
RANDOM = [kind for kind in KINDS if suite.SUITE[kind].numbers(1, 32, 32)]

# where the benchmark's constants of a higher severity do not lie farther from the clean image
NOT_MONOTONE = {
    "glass_blur": "more smoothing (severities 3 and 5) takes back some of the shuffling",
    "frost": "from severity 3 on the image itself is dimmed, which offsets the light of the ice",
    "elastic_transform": "the affine jitter falls as the displacements grow",
    "saturate": "severities 1 and 2 take colour away, 3 to 5 add it",
}


def scenes(count=8, height=32, width=32, channels=3, seed=0):
    """Smooth coloured clouds with a bright box and dark bars: edges, flat parts and all levels."""
    rng = np.random.default_rng(seed)
    smooth = ndimage.gaussian_filter(rng.normal(size=(count, height, width, channels)), (0, 4, 4, 0), mode="wrap")
    images = 0.5 + 0.2 * smooth / smooth.std()
    images[:, height // 4 : height // 2, width // 4 : width // 2] += 0.3
    images[:, height // 2 :: 4] -= 0.2
    return np.clip(images, 0, 1).astype(np.float32)


# --- what holds for every kind ---


QUICK = ("gaussian_noise", "glass_blur", "fog", "jpeg_compression")


def mostly_slow(kinds):
    """All kinds in `make check-all`; by default a few, since every kind is a program to compile."""
    return [kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.slow) for kind in kinds]


@pytest.mark.parametrize("kind", KINDS)
def test_shape_dtype_and_range_are_kept(kind):
    images = scenes(4, 13, 18)
    for given in (images, (255 * images).astype(np.uint8), images.astype(np.float16), images.astype(np.float64)):
        out = px.data.corrupt(given, kind, 5, key=0)
        assert isinstance(out, np.ndarray)
        assert out.shape == given.shape and out.dtype == given.dtype
        assert np.isfinite(out).all() and out.min() >= 0 and out.max() <= (255 if out.dtype == np.uint8 else 1)
        assert np.abs(out.astype(float) - given).max() > 0
    first = px.data.corrupt(np.moveaxis(images, -1, 1), kind, 5, key=0, channels="first")
    np.testing.assert_array_equal(np.moveaxis(first, 1, -1), px.data.corrupt(images, kind, 5, key=0))


@pytest.mark.parametrize("kind", mostly_slow(kind for kind in KINDS if kind != "saturate"))
def test_grey_images_with_and_without_an_axis_of_channels_are_the_same(kind):
    grey = scenes(4, 16, 16, channels=1)
    with_axis = px.data.corrupt(grey, kind, 4, key=0)
    np.testing.assert_array_equal(with_axis[..., 0], px.data.corrupt(grey[..., 0], kind, 4, key=0))
    first = np.moveaxis(grey, -1, 1)
    np.testing.assert_array_equal(px.data.corrupt(first, kind, 4, 0, channels="first")[:, 0], with_axis[..., 0])
    assert np.abs(with_axis - grey).max() > 1e-3


def test_saturate_refuses_grey():
    with pytest.raises(ValueError, match="saturate needs 3 channels, but images are grey"):
        px.data.corrupt(scenes(2)[..., 0], "saturate", 3, key=0)


@pytest.mark.parametrize("kind", mostly_slow(KINDS))
def test_bytes_and_floats_of_the_same_images_differ_by_rounding(kind):
    whole = (255 * scenes(4, 13, 18)).astype(np.uint8)
    from_bytes = px.data.corrupt(whole, kind, 5, key=1).astype(int)
    from_floats = px.data.corrupt((whole / 255).astype(np.float32), kind, 5, key=1)
    assert np.abs(from_bytes - 255 * from_floats).max() < 0.51


@pytest.mark.parametrize("kind", KINDS)
def test_the_key_decides_the_images(kind):
    images = scenes(4, 13, 18)
    first = px.data.corrupt(images, kind, 5, key=7)
    np.testing.assert_array_equal(px.data.corrupt(images, kind, 5, key=jax.random.key(7)), first)
    other = px.data.corrupt(images, kind, 5, key=8)
    assert np.array_equal(first, other) == (kind not in RANDOM)


@pytest.mark.slow
@pytest.mark.parametrize("kind", mostly_slow(KINDS))
def test_severity_moves_images_farther_from_the_clean_ones(kind):
    images = scenes(64) if kind == "saturate" else px.data.fashion_small()[1][0][:64]
    # the same noise at every severity, so the comparison has no Monte-Carlo error to speak of
    far = [np.sqrt(np.mean((px.data.corrupt(images, kind, s, key=0) - images) ** 2)) for s in suite.SEVERITIES]
    assert min(far) > 1e-3
    monotone = all(b >= a for a, b in pairwise(far))
    assert monotone == (kind not in NOT_MONOTONE), far


@pytest.mark.parametrize("kind", mostly_slow(RANDOM))
def test_an_image_does_not_depend_on_the_others(kind, monkeypatch):
    images = scenes(4, 16, 16, channels=1)[..., 0]
    together = px.data.corrupt(images, kind, 4, key=3)
    alone = np.concatenate([px.data.corrupt(images[i : i + 1], kind, 4, key=3, first=i) for i in range(4)])
    np.testing.assert_allclose(alone, together, atol=1e-5)  # products of other shapes round otherwise
    monkeypatch.setattr(sys.modules["posteriax.data.corruptions.corrupt"], "_chunk_size", lambda count, values: 4)
    more = px.data.corrupt(np.concatenate([scenes(3, 16, 16, channels=1)[..., 0], images]), kind, 4, key=3)
    np.testing.assert_allclose(
        more[4:], px.data.corrupt(images[1:], kind, 4, key=3, first=4), atol=1e-5
    )  # second chunk
    same = px.data.corrupt(np.repeat(images[:1], 4, axis=0), kind, 4, key=3)
    assert np.abs(same[0] - same[1]).max() > 1e-4  # but each image has noise of its own


BLURS = ["defocus_blur", "glass_blur", "motion_blur", "zoom_blur", "gaussian_blur", "pixelate", "elastic_transform"]


@pytest.mark.parametrize("kind", [*BLURS, "contrast", "jpeg_compression"])
def test_images_of_one_grey_stay_as_they_are(kind):
    images = np.full((4, 16, 16), 128 / 255, np.float32)
    np.testing.assert_allclose(px.data.corrupt(images, kind, 4, key=0), images, atol=1e-6)


@pytest.mark.parametrize("kind", ["defocus_blur", "gaussian_blur", "motion_blur"])
def test_blurs_grow_with_the_image(kind):
    """A slope of twice the width, blurred at twice the size, is the blurred slope: lengths go with size / 32."""
    edge = np.repeat((np.arange(32) >= 16).astype(np.float32)[None], 32, axis=0)[None]
    small = px.data.corrupt(edge, kind, 5, key=0)[0, 16]
    large = px.data.corrupt(edge.repeat(2, axis=1).repeat(2, axis=2), kind, 5, key=0)[0, 32]
    np.testing.assert_allclose(large.reshape(32, 2).mean(axis=1), small, atol=0.06)
    assert np.abs(large.reshape(32, 2)[:, 0] - edge[0, 0]).max() > 0.1


# --- known answers ---


def test_gaussian_noise_has_its_standard_deviation():
    images = np.full((100, 32, 32, 3), 0.5, np.float32)  # 5 standard deviations from being clipped
    for severity, std in enumerate((0.04, 0.06, 0.08, 0.09, 0.10), 1):
        noise = px.data.corrupt(images, "gaussian_noise", severity, key=severity) - images
        n = noise.size
        assert abs(noise.mean()) < 4 * std / np.sqrt(n)
        assert abs(noise.std() / std - 1) < 4 / np.sqrt(2 * n)
        assert stats.kstest(noise.ravel()[::10] / std, "norm").pvalue > 1e-4


def test_speckle_noise_is_proportional_to_the_image():
    for level in (0.2, 0.4):
        images = np.full((100, 32, 32), level, np.float32)
        noise = px.data.corrupt(images, "speckle_noise", 5, key=0) - images
        assert abs(noise.std() / (0.2 * level) - 1) < 4 / np.sqrt(2 * noise.size)


def test_shot_noise_is_poisson():
    for level in (0.05, 0.4):  # counts by summing and by the expansion
        counts = px.data.corrupt(np.full((100, 32, 32), level, np.float32), "shot_noise", 5, key=0) * 50
        np.testing.assert_allclose(counts, np.round(counts), atol=1e-4)
        n, rate = counts.size, 50 * level
        assert abs(counts.mean() - rate) < 4 * np.sqrt(rate / n)
        # the variance of the sample variance of Poisson counts is about (rate + 2 rate^2) / n
        assert abs(counts.var() - rate) < 4 * np.sqrt((rate + 2 * rate**2) / n)


@pytest.mark.parametrize("rate", [0.0, 0.3, 4.0, 9.99, 10.0, 25.0, 500.0])
def test_poisson_counts_are_quantiles(rate):
    u = (np.arange(2**18) + 0.5) / 2**18
    counts = np.asarray(noise.poisson(jnp.asarray(u, jnp.float32), jnp.full(u.shape, rate))).astype(int)
    share = np.bincount(counts) / u.size
    total_variation = 0.5 * np.abs(share - stats.poisson.pmf(np.arange(len(share)), rate)).sum()
    assert total_variation < 1e-3


def test_impulse_noise_is_salt_and_pepper_in_equal_parts():
    images = np.full((100, 32, 32, 3), 0.5, np.float32)
    out = px.data.corrupt(images, "impulse_noise", 5, key=0)
    n = out.size
    for value in (0.0, 1.0):
        assert abs(np.mean(out == value) - 0.035) < 4 * np.sqrt(0.035 * 0.965 / n)
    assert set(np.unique(out)) == {0.0, 0.5, 1.0}


@pytest.mark.parametrize("severity", [1, 3, 5])
def test_contrast_shrinks_about_the_mean_of_each_channel(severity):
    images = scenes(4, 13, 18)
    factor = (0.75, 0.5, 0.4, 0.3, 0.15)[severity - 1]
    mean = images.mean(axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(
        px.data.corrupt(images, "contrast", severity, key=0), (images - mean) * factor + mean, atol=1e-6
    )


def by_pixel(images, change):
    """Hue, saturation and value of every pixel by Python's colorsys, changed, and back."""
    flat = [colorsys.hsv_to_rgb(*change(*colorsys.rgb_to_hsv(*map(float, pixel)))) for pixel in images.reshape(-1, 3)]
    return np.array(flat).reshape(images.shape)


def test_brightness_adds_to_the_value():
    images = scenes(4, 13, 18)
    images[0, :3] = 0.0
    expected = by_pixel(images, lambda h, s, v: (h, s, min(v + 0.2, 1)))
    np.testing.assert_allclose(px.data.corrupt(images, "brightness", 4, key=0), expected, atol=1e-5)
    grey = images[..., 0]
    np.testing.assert_allclose(px.data.corrupt(grey, "brightness", 4, key=0), np.minimum(grey + 0.2, 1), atol=1e-6)


@pytest.mark.parametrize(("severity", "scale", "shift"), [(1, 0.3, 0.0), (5, 2.5, 0.2)])
def test_saturate_scales_the_saturation(severity, scale, shift):
    images = scenes(4, 13, 18)
    images[0, :3] = 0.5  # of one grey: the hue of red
    expected = by_pixel(images, lambda h, s, v: (h, min(s * scale + shift, 1), v))
    np.testing.assert_allclose(px.data.corrupt(images, "saturate", severity, key=0), expected, atol=1e-5)


def test_luminance_of_grey_is_grey():
    np.testing.assert_allclose(image_operations.luminance(jnp.full((3, 2, 2), 0.3)), np.full((1, 2, 2), 0.3), rtol=1e-6)


@pytest.mark.parametrize("severity", [1, 4, 5])
@pytest.mark.parametrize("size", [(32, 32), (28, 37)])
def test_pixelate_is_pillows_box_resizing(severity, size):
    images = (255 * scenes(3, *size)).astype(np.uint8)
    factor = (0.95, 0.9, 0.85, 0.75, 0.65)[severity - 1]
    small = (int(size[1] * factor), int(size[0] * factor))
    expected = [
        np.asarray(Image.fromarray(image).resize(small, Image.Resampling.BOX).resize(size[::-1], Image.Resampling.BOX))
        for image in images
    ]
    # Pillow rounds to whole levels along each axis on the way
    assert np.abs(px.data.corrupt(images, "pixelate", severity, key=0).astype(int) - np.array(expected)).max() <= 1


@pytest.mark.parametrize("sigma", [0.4, 1.0, 2.5])
def test_gaussian_blur_is_scipys(sigma):
    image = scenes(1)[0, ..., 0]
    expected = ndimage.gaussian_filter(image, sigma, mode="nearest")
    np.testing.assert_allclose(blur.gaussian_blur(None, jnp.asarray(image)[None], sigma)[0], expected, atol=1e-5)


@pytest.mark.parametrize(("radius", "sigma"), [(0.5, 0.6), (1.5, 0.1)])
def test_defocus_blur_is_a_convolution_with_a_disk(radius, sigma):
    image = scenes(1, 20, 26)[0, ..., 0]
    kernel = blur.disk(radius, sigma)
    assert kernel.sum() == pytest.approx(1) and (kernel >= 0).all()
    expected = ndimage.convolve(image, kernel, mode="mirror")
    out = blur.defocus_blur(None, jnp.asarray(image)[None], radius, sigma)[0]
    np.testing.assert_allclose(out, expected, atol=1e-5)


@pytest.mark.parametrize("zoom", [1.01, 1.25, 2.25])
def test_zoom_is_scipys_of_the_middle(zoom):
    image = scenes(1)[0, ..., 0]
    kept = int(np.ceil(32 / zoom))
    start = (32 - kept) // 2
    enlarged = ndimage.zoom(image[start : start + kept, start : start + kept], zoom, order=1)
    trim = (len(enlarged) - 32) // 2
    matrix = image_operations.zoom_matrix(32, zoom)
    np.testing.assert_allclose(matrix @ image @ matrix.T, enlarged[trim:, trim:][:32, :32], atol=1e-5)


def test_motion_blur_of_a_point_is_a_line():
    image = np.zeros((1, 33, 33), np.float32)
    image[0, 16, 16] = 1
    # a pixel shows what lies ahead, so the point leaves a trace behind: at 0 degrees to its left
    trace = np.asarray(blur.line_blur(jnp.asarray(image), 0.0, 6, 2.0))[0]
    weights = np.exp(-0.5 * (np.arange(9) / 2) ** 2)
    np.testing.assert_allclose(trace[16, 16:7:-1], weights / weights.sum(), atol=1e-6)
    assert trace.sum() == pytest.approx(1, abs=1e-5)
    slanted = np.asarray(blur.line_blur(jnp.asarray(image), 45.0, 6, 2.0))[0]
    rows, columns = np.nonzero(slanted)
    np.testing.assert_array_equal(rows, columns)


def test_glass_blur_shows_near_pixels():
    """With next to no smoothing (severity 1), every pixel is one of the four up to one step up and left."""
    image = np.arange(400, dtype=np.float32).reshape(1, 20, 20) / 400
    out = np.asarray(px.data.corrupt(image, "glass_blur", 1, key=0))[0] * 400
    shift = np.arange(400).reshape(20, 20) - np.round(out)
    assert set(np.unique(shift[1:, 1:])) == {0, 1, 20, 21}


def test_fog_is_a_rescaled_cloud():
    images = np.full((3, 32, 32), 0.5, np.float32)
    out = px.data.corrupt(images, "fog", 2, key=0)
    cloud = (out * (0.5 + 0.5) / 0.5 - 0.5) / 0.5
    np.testing.assert_allclose(cloud.min(axis=(1, 2)), 0, atol=1e-5)
    np.testing.assert_allclose(cloud.max(axis=(1, 2)), 1, atol=1e-5)


def test_clouds_are_rougher_with_less_decay():
    u = uniforms(jax.random.key(0), 0, 64, 1024)
    clouds = jax.jit(lambda decay: jax.vmap(lambda v: weather.plasma(v, 32, 32, decay))(u))
    rough = [float(jnp.abs(jnp.diff(clouds(decay), axis=-1)).mean()) for decay in (1.5, 2.0, 3.0)]
    assert rough == sorted(rough, reverse=True)


def test_an_elastic_transform_is_a_small_move():
    """A ramp shows by how much each pixel moved: the affine part by up to 0.08 of the side at the three corners."""
    ramp = np.repeat(np.linspace(0.1, 0.9, 33, dtype=np.float32)[None, None], 33, axis=1).repeat(200, axis=0)
    moved = (px.data.corrupt(ramp, "elastic_transform", 1, key=0) - ramp) * 32 / 0.8
    corner = moved[:, 5, 5]
    assert np.abs(corner).max() < 0.08 * 33 + 0.1
    assert abs(corner.std() / (0.08 * 33 / np.sqrt(3)) - 1) < 4 * np.sqrt(0.2 / 200)  # kurtosis 1.8: (1.8 - 1) / 4


def pillow_jpeg(image, quality):
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, "JPEG", quality=quality)
    return np.asarray(Image.open(stream)).astype(int)


@pytest.mark.parametrize("channels", [1, 3], ids=["grey", "colour"])
@pytest.mark.parametrize("size", [(32, 32), (29, 27)])
def test_jpeg_is_pillows(channels, size):
    """Within one level of 255 on average, and within 0.3 of the loss itself.

    Coefficients near a tie round either way, in 64 pixels at once.
    """
    images = (255 * scenes(6, *size, channels=channels)).astype(np.uint8)
    images = images[..., 0] if channels == 1 else images
    for severity, quality in ((1, 80), (5, 40)):
        ours = px.data.corrupt(images, "jpeg_compression", severity, key=0).astype(int)
        theirs = np.array([pillow_jpeg(image, quality) for image in images])
        assert np.abs(ours - theirs).mean() < min(1.0, 0.3 * np.abs(theirs - images).mean())


def test_jpeg_at_quality_100_loses_next_to_nothing():
    image = np.moveaxis(scenes(1)[0], -1, 0)
    assert np.abs(255 * (digital.jpeg_compression(None, jnp.asarray(image[:1]), 100) - image[:1])).max() < 2.1
    ramp = np.linspace(0, 1, 32)
    smooth = np.stack([*np.meshgrid(ramp, ramp), np.full((32, 32), 0.5)])
    assert np.abs(255 * (digital.jpeg_compression(None, jnp.asarray(smooth), 100) - smooth)).max() < 6


def test_snow_and_frost_brighten():
    images = np.full((64, 32, 32, 3), 0.2, np.float32)
    for kind in ("snow", "frost"):
        assert px.data.corrupt(images, kind, 1, key=0).mean() > 0.22
    ice = px.data.corrupt(np.zeros_like(images), "frost", 5, key=0) / 0.45
    assert 0.4 < ice.mean() < 0.7 and ice.std() > 0.15
    assert ice[..., 2].mean() > ice[..., 0].mean()  # bluish


# --- bad input ---

IMAGES = np.zeros((2, 8, 8), np.float32)
BAD = {
    "kind": ((IMAGES, "blurr", 1), ValueError, "kind must be one of gaussian_noise, shot_noise.*saturate; got 'blurr'"),
    "severity 0": ((IMAGES, "fog", 0), ValueError, "severity must be 1, 2, 3, 4 or 5, got 0"),
    "severity 6": ((IMAGES, "fog", 6), ValueError, "got 6"),
    "severity 1.5": ((IMAGES, "fog", 1.5), ValueError, "got 1.5"),
    "severity True": ((IMAGES, "fog", True), ValueError, "got True"),
    "text": (("cat.png", "fog", 1), TypeError, "images must be an array of numbers, got str"),
    "strings": ((np.array([[["a"]]]), "fog", 1), TypeError, "got dtype <U1"),
    "int64": ((IMAGES.astype(int), "fog", 1), TypeError, r"got dtype int64: use \.astype\(np\.uint8\)"),
    "bool": ((IMAGES > 0, "fog", 1), TypeError, "got dtype bool"),
    "one image": ((IMAGES[0], "fog", 1), ValueError, r"got shape \(8, 8\)\. For one image, give images\[None\]"),
    "one colour image": ((np.zeros((8, 8, 3)), "fog", 1), ValueError, r"For one colour image .*images\[None\]"),
    "five axes": ((np.zeros((1, 2, 8, 8, 3)), "fog", 1), ValueError, r"must have the axes \(N, height, width\)"),
    "empty": ((IMAGES[:0], "fog", 1), ValueError, r"images are empty: shape \(0, 8, 8\)"),
    "two channels": ((np.zeros((2, 8, 8, 2)), "fog", 1), ValueError, "must have 1 or 3 channels"),
    "channels first": (
        (np.zeros((2, 3, 8, 8)), "fog", 1),
        ValueError,
        'Are the channels first\\? Give channels="first"',
    ),
    "levels as floats": ((IMAGES + 200, "fog", 1), ValueError, "from 200 to 200. Divide by 255, or give uint8"),
    "negative": ((IMAGES - 0.5, "fog", 1), ValueError, r"must lie in \[0, 1\], got values from -0.5 to -0.5"),
    "nan": ((np.where(np.arange(8) == 3, np.nan, IMAGES), "fog", 1), ValueError, r"first at index \(0, 0, 3\)"),
}


@pytest.mark.parametrize(("arguments", "error", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_named(arguments, error, message):
    with pytest.raises(error, match=message):
        px.data.corrupt(*arguments, key=0)


def test_bad_options_are_named():
    with pytest.raises(ValueError, match='channels must be "first" or "last"'):
        px.data.corrupt(IMAGES, "fog", 1, 0, channels="middle")
    with pytest.raises(ValueError, match="first must be a whole number of at least 0, got -1"):
        px.data.corrupt(IMAGES, "fog", 1, 0, first=-1)
    with pytest.raises(TypeError, match="key must be an int or a JAX key"):
        px.data.corrupt(IMAGES, "fog", 1, key="seed")


def test_the_suite_is_the_benchmarks():
    assert len(px.data.CORRUPTIONS) == 15 and len(set(KINDS)) == 18
    assert all(len(suite.SUITE[kind].constants) == 5 for kind in KINDS)
    assert px.data.corrupt is px.data.corrupt
