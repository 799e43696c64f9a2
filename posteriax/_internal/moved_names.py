"""Names that were at the root of the package and are now in its rooms; they keep working for one release."""

import importlib
import warnings

_NAMES_BY_ROOM = {
    "data": ("corrupt", "corrupted"),
    "distributed": ("mesh", "use_mesh"),
    "evaluation": (
        "Attacked",
        "Baseline",
        "Comparison",
        "Conformal",
        "Detection",
        "Drift",
        "EarlyStopping",
        "FGSM",
        "Feature",
        "PGD",
        "PartialDependence",
        "Recommendation",
        "ReportContext",
        "RunEnd",
        "TableRows",
        "conformal",
        "drift",
        "ood_detection",
        "ood_scores",
        "partial_dependence",
        "recommend",
    ),
    "likelihoods": (
        "ClassLikelihood",
        "ClassPredictive",
        "CountPredictive",
        "NormalPredictive",
        "NumberLikelihood",
        "NumberPredictive",
        "Predictive",
        "join_examples",
    ),
    "methods": ("LinearKL", "StaircaseKL", "natural_gradient"),
    "networks": ("Network",),
    "posterior": ("Posterior", "PosteriorFileError", "Trace", "with_batch_statistics"),
    "run": ("CheckpointError", "GradientNoise", "Interrupted", "UntilLevel", "UntilMixed", "Watch"),
}
_ROOMS = {name: room for room, names in _NAMES_BY_ROOM.items() for name in names}


def moved_name(name: str) -> object:
    """The object that `posteriax.NAME` used to be, with a warning that says where it is now."""
    if name not in _ROOMS:
        raise AttributeError(f"module 'posteriax' has no attribute {name!r}")
    room = _ROOMS[name]
    warnings.warn(
        f"px.{name} is now px.{room}.{name}; the old name will be removed in the next release",
        DeprecationWarning,
        stacklevel=3,
    )
    return getattr(importlib.import_module(f"posteriax.{room}"), name)
