"""The suite: every corruption with its constants in CIFAR-10-C, by severity. (Hendrycks and Dietterich 2019)"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import jax

from posteriax.data.corruptions import blur, digital, noise, weather
from posteriax.data.corruptions.weather import plasma_numbers


@dataclass(frozen=True)
class CorruptionKind:
    """One kind of corruption.

    Args:
        function: takes uniform numbers, an image (channels, height, width) in [0, 1], and constants.
        constants: for each severity.
        numbers: how many uniform numbers it needs, from channels, height and width.
        arithmetic: whether constants only enter arithmetic, so that one compiled program works for all severities;
            other constants determine the sizes of kernels and matrices.
    """

    function: Callable[..., jax.Array]
    constants: tuple[float | tuple[float, ...], ...]
    numbers: Callable[[int, int, int], int] = lambda channels, height, width: 0
    arithmetic: bool = False

    def at(self, severity: int) -> tuple[float, ...]:
        """The constants for a severity."""
        constants = self.constants[severity - 1]
        return constants if isinstance(constants, tuple) else (constants,)


def _for_values(channels: int, height: int, width: int) -> int:
    return channels * height * width


_arithmetic = partial(CorruptionKind, arithmetic=True)


_BENCHMARK = {
    "gaussian_noise": _arithmetic(noise.gaussian_noise, (0.04, 0.06, 0.08, 0.09, 0.10), _for_values),
    "shot_noise": _arithmetic(noise.shot_noise, (500, 250, 100, 75, 50), _for_values),
    "impulse_noise": _arithmetic(noise.impulse_noise, (0.01, 0.02, 0.03, 0.05, 0.07), _for_values),
    "defocus_blur": CorruptionKind(blur.defocus_blur, ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1))),
    "glass_blur": CorruptionKind(
        blur.glass_blur,
        ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
        lambda channels, height, width: 4 * height * width,  # two offsets in each of up to two passes
    ),
    "motion_blur": CorruptionKind(
        blur.motion_blur,
        ((6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5)),
        lambda channels, height, width: 1,
    ),
    "zoom_blur": CorruptionKind(blur.zoom_blur, (1.05, 1.10, 1.15, 1.20, 1.25)),
    "snow": CorruptionKind(
        weather.snow,
        (
            (0.1, 0.2, 1.0, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1.0, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
        lambda channels, height, width: height * width + 1,
    ),
    "frost": _arithmetic(
        weather.frost,
        ((1.0, 0.2), (1.0, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
        lambda channels, height, width: 3 * plasma_numbers(height, width),
    ),
    "fog": _arithmetic(
        weather.fog,
        ((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75)),
        lambda channels, height, width: plasma_numbers(height, width),
    ),
    "brightness": _arithmetic(weather.brightness, (0.05, 0.1, 0.15, 0.2, 0.3)),
    "contrast": _arithmetic(digital.contrast, (0.75, 0.5, 0.4, 0.3, 0.15)),
    "elastic_transform": CorruptionKind(
        digital.elastic_transform,
        ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
        lambda channels, height, width: 6 + 2 * height * width,
    ),
    "pixelate": CorruptionKind(digital.pixelate, (0.95, 0.9, 0.85, 0.75, 0.65)),
    "jpeg_compression": CorruptionKind(digital.jpeg_compression, (80, 65, 58, 50, 40)),
}

_EXTRA = {
    "speckle_noise": _arithmetic(noise.speckle_noise, (0.06, 0.1, 0.12, 0.16, 0.2), _for_values),
    "gaussian_blur": CorruptionKind(blur.gaussian_blur, (0.4, 0.6, 0.7, 0.8, 1.0)),
    "saturate": _arithmetic(digital.saturate, ((0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (2.5, 0.2))),
}

CORRUPTIONS = tuple(_BENCHMARK)
EXTRA_CORRUPTIONS = tuple(_EXTRA)
SUITE = _BENCHMARK | _EXTRA
NEEDS_COLOUR = frozenset({"saturate"})
SEVERITIES = (1, 2, 3, 4, 5)
