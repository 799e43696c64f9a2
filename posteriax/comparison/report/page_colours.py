"""The colours of posteriors on a page: the figures' palette, made readable on white and on black.

    contrast of two colours = (L1 + 0.05) / (L2 + 0.05),   L: relative luminance, L1 >= L2     (WCAG 2.2)

Lines and points need a contrast of 3 with their background: colours that have less are darkened or lightened to it.
"""

BACKGROUNDS = {"light": "#ffffff", "dark": "#1a1d21"}
ON_PAGES = (  # those of _internal/plot_style.py, on light and on dark pages
    ("#0072b2", "#0072b2"),
    ("#c68900", "#e69f00"),
    ("#009e73", "#009e73"),
    ("#d55e00", "#d55e00"),
    ("#cc79a7", "#cc79a7"),
    ("#4b9dcb", "#56b4e9"),
    ("#9e962c", "#f0e442"),
    ("#000000", "#696969"),
    ("#882255", "#9e4c75"),
    ("#332288", "#695da8"),
)


def colour_rules(methods: int) -> str:
    """Style rules that give each posterior its colour, for light and for dark pages.

    >>> print(colour_rules(1))
    .m0 { --method: light-dark(#0072b2, #...); }
    """
    colours = [ON_PAGES[i % len(ON_PAGES)] for i in range(methods)]
    return "".join(f".m{i} {{ --method: light-dark({light}, {dark}); }}\n" for i, (light, dark) in enumerate(colours))
