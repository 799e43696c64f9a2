"""The style of all Matplotlib figures: palette and axes. Matplotlib is imported on first use.

A method has the same colour in every figure; the palette (Okabe and Ito) is colour-blind safe.
"""

from collections.abc import Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure
    import matplotlib.image

Figure: TypeAlias = "matplotlib.figure.Figure"
Axes: TypeAlias = "matplotlib.axes.Axes"

PALETTE = (  # the last two are from Tol's palette
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
    "#F0E442",
    "#000000",
    "#882255",
    "#332288",
)


def colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each method, by its position in the list.

    >>> colours(["VI", "HMC"])["HMC"]
    '#E69F00'
    """
    return {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(names)}


def pyplot() -> ModuleType:
    """Matplotlib's pyplot, or an error that says how to install it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plot needs matplotlib: pip install 'posteriax[plots]'") from error
    return plt


def subplots(rows: int, columns: int, width: float, height: float, **settings: Any) -> tuple[Figure, np.ndarray]:
    """A figure and its axes, (rows, columns); width and height of each panel are in inches."""
    plt = pyplot()
    size = (width * columns, height * rows)
    figure, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False, **settings)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def heat_map(
    axis: Axes, values: np.ndarray, *, limit: float | None = None, title: str = ""
) -> "matplotlib.image.AxesImage":
    """A matrix as an image: dark to light or, with a `limit`, blue to red from -limit to limit."""
    signed: dict[str, Any] = {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit} if limit is not None else {}
    style = signed or {"cmap": "cividis"}
    image = axis.imshow(values, interpolation="nearest", aspect="auto", **style)
    axis.spines[["top", "right"]].set_visible(True)
    if title:
        axis.set_title(title, fontsize="medium")
    return image


def legend_below(figure: Figure, *axes: Axes, columns: int) -> None:
    """One legend below all panels, with each label once; nothing if there are none."""
    handles: dict[str, Any] = {}
    for axis in axes:
        handles |= {label: handle for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    if handles:
        figure.legend(
            handles.values(), handles, loc="outside lower center", ncol=columns, fontsize="small", frameon=False
        )
