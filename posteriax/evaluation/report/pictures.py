"""Pictures: test examples as small PNG images inside a page, written without an image library.

A PNG is a signature and three chunks: IHDR (size, bit depth, colours), IDAT (compressed rows, each preceded by a filter
byte: 0 for none), IEND. Every chunk is preceded by its length and followed by a checksum.
"""

import base64
import math
import struct
import zlib
from collections.abc import Sequence

import numpy as np

SMALLEST_SIDE = 8  # fewer pixels are features, not a picture
BUDGET = 800_000  # characters for all pictures of a page
DARK = 64  # the largest pixel of pictures that would be too dark if 255 were white


def as_image(x: np.ndarray) -> np.ndarray | None:
    """An example as an image (height, width, 1 or 3 colours), or None if it does not look like one.

    Images are (h, w), (h, w, colours), (colours, h, w), or flat with a square number of pixels, at least 64.

    >>> as_image(np.zeros(784)).shape, as_image(np.zeros((3, 32, 32))).shape, as_image(np.zeros(13))
    ((28, 28, 1), (32, 32, 3), None)
    """
    x = np.asarray(x)
    if x.dtype.kind not in "buif":
        return None
    if x.ndim == 1 and math.isqrt(x.size) ** 2 == x.size:
        x = x.reshape(math.isqrt(x.size), -1)
    if x.ndim == 2:
        x = x[:, :, None]
    if x.ndim != 3:
        return None
    if x.shape[2] not in (1, 3, 4) and x.shape[0] in (1, 3, 4):
        x = np.moveaxis(x, 0, 2)
    if x.shape[2] not in (1, 3, 4) or min(x.shape[:2]) < SMALLEST_SIDE:
        return None
    return x[:, :, :3] if x.shape[2] == 4 else x


def picture_uris(images: Sequence[np.ndarray]) -> list[str]:
    """Images as data URIs, on one scale of brightness, shrunk to fit the budget together.

    >>> [uri[:22] for uri in picture_uris([np.eye(8)[:, :, None]])]
    ['data:image/png;base64,']
    """
    if not images:
        return []
    colours = max(image.shape[2] for image in images)
    side = max(16, math.isqrt(int(BUDGET * 3 / 4 / (len(images) * colours))))
    small = [shrink(image.astype(np.float64), side) for image in images]
    low, high = brightness_range(small)
    return [data_uri(np.clip((np.nan_to_num(image) - low) / (high - low) * 255, 0, 255)) for image in small]


def brightness_range(images: Sequence[np.ndarray]) -> tuple[float, float]:
    """The values of black and white: 0 and 1, or 0 and 255, if the pixels fit; otherwise the smallest and largest.

    Pixels from 0 to 16, as in some sets of digits, would be nearly black if white were 255: then the largest is white.

    >>> brightness_range([np.array([0.1, 0.8])]), brightness_range([np.array([0, 200])])
    ((0.0, 1.0), (0.0, 255.0))
    >>> brightness_range([np.array([0.0, 16.0])])
    (0.0, 16.0)
    """
    pixels = np.concatenate([image.ravel() for image in images])
    pixels = pixels[np.isfinite(pixels)]
    low, high = (float(pixels.min()), float(pixels.max())) if len(pixels) else (0.0, 1.0)
    if low >= 0 and high <= 255:
        return 0.0, 1.0 if high <= 1 else high if high <= DARK else 255.0
    return low, high if high > low else low + 1


def shrink(image: np.ndarray, side: int) -> np.ndarray:
    """An image whose sides are at most `side`: each pixel is the mean of a block.

    >>> shrink(np.arange(16.0).reshape(4, 4, 1), 2)[:, :, 0].tolist()
    [[2.5, 4.5], [10.5, 12.5]]
    """
    step = -(-max(image.shape[:2]) // side)
    if step == 1:
        return image
    height, width = (max(1, n // step) for n in image.shape[:2])
    blocks = image[: height * step, : width * step]
    rows, columns = (min(step, n) for n in image.shape[:2])
    return blocks.reshape(height, rows, width, columns, -1).mean(axis=(1, 3))


def png(pixels: np.ndarray) -> bytes:
    """A PNG file of (height, width, 1 or 3) pixels from 0 to 255.

    >>> png(np.zeros((2, 2, 1)))[1:4]
    b'PNG'
    """
    values = np.round(pixels).astype(np.uint8)
    height, width, colours = values.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), values.reshape(height, -1)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 3: 2}[colours], 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, content) for kind, content in chunks)


def data_uri(pixels: np.ndarray) -> str:
    """An image as a data URI.

    >>> data_uri(np.zeros((8, 8, 3)))[:22]
    'data:image/png;base64,'
    """
    return "data:image/png;base64," + base64.b64encode(png(pixels)).decode()


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
