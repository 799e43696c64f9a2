"""The colours of posteriors on a page: the figures' palette, made readable on white and on black.

    contrast of two colours = (L1 + 0.05) / (L2 + 0.05),   L: relative luminance, L1 >= L2     (WCAG 2.2)

Lines and points need a contrast of 3 with their background.
"""

from posteriax._internal.plot_style import PALETTE

BACKGROUNDS = {"light": "#ffffff", "dark": "#1a1d21"}
CONTRAST = 3.0


def colour_rules(methods: int) -> str:
    """Style rules that give each posterior its colour, for light and for dark pages.

    >>> print(colour_rules(1))
    .m0 { --method: light-dark(#0072b2, #...); }
    """
    rules = []
    for i in range(methods):
        colour = PALETTE[i % len(PALETTE)]
        light, dark = (readable(colour, background) for background in BACKGROUNDS.values())
        rules.append(f".m{i} {{ --method: light-dark({light}, {dark}); }}\n")
    return "".join(rules)


def readable(colour: str, background: str) -> str:
    """The colour, darkened or lightened just enough to contrast with the background.

    >>> readable("#0072B2", "#ffffff"), readable("#000000", "#000000")
    ('#0072b2', '#5c5c5c')
    """
    end = 0.0 if luminance(background) > 0.5 else 255.0
    parts = _parts(colour)
    for step in range(101):
        mixed = "#" + "".join(f"{round(part + (end - part) * step / 100):02x}" for part in parts)
        if contrast(mixed, background) >= CONTRAST:
            return mixed
    return mixed


def contrast(one: str, other: str) -> float:
    """From 1 (the same) to 21 (black and white).

    >>> contrast("#000000", "#ffffff")
    21.0
    """
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    """How light a colour is to the eye, from 0 (black) to 1 (white).

    >>> luminance("#ffffff")
    1.0
    """
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (p / 255 for p in _parts(colour))]
    return round(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2], 9)


def _parts(colour: str) -> list[int]:
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
