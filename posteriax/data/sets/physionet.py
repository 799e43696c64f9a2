"""PhysioNet 2012: two days of intensive care, and whether the patient died in hospital (Silva et al. 2012).

Public records of the kind used to study mortality prediction: 4,000 stays for training (set a) and 4,000 for testing
(set b); 37 hourly variables, most of them missing most of the time.
"""

import io
from pathlib import Path

import numpy as np

from posteriax.data.sets.data_set import DataSet, Part, Scaling, register
from posteriax.data.sets.fetching import DataError, Remote, damaged, data_folder, fetch_all, find_arrays, read_archive

ADDRESS = "https://physionet.org/files/challenge-2012/1.0.0"
CHECKSUMS = {
    "set-a.tar.gz": "sha256:8cb250f179cd0952b4b9ebcf8954b63d70383131670fac1cfee13deaa13ca920",
    "set-b.tar.gz": "sha256:b1637a2a423a8e76f8f087896cfc5fdf28f88519e1f4e874fbda69b2a64dac30",
    "Outcomes-a.txt": "sha256:2613ea60ccda29f87571a7d6b09ad130858a8ccd66325bd073365925026883c2",
    "Outcomes-b.txt": "sha256:1305f29734da374a809483229a99f33a9230aa8d4fa74b1a2d6ad788136423d5",
}
ARRAYS = ("x_a", "static_a", "y_a", "x_b", "static_b", "y_b", "variables", "static_names")
HOURS = 48
STATIC = ("Age", "Gender", "Height", "ICUType")
VARIABLES = (
    *("ALP", "ALT", "AST", "Albumin", "BUN", "Bilirubin", "Cholesterol", "Creatinine", "DiasABP", "FiO2", "GCS"),
    *("Glucose", "HCO3", "HCT", "HR", "K", "Lactate", "MAP", "MechVent", "Mg", "NIDiasABP", "NIMAP", "NISysABP", "Na"),
    *("PaCO2", "PaO2", "Platelets", "RespRate", "SaO2", "SysABP", "Temp", "TroponinI", "TroponinT", "Urine", "WBC"),
    *("Weight", "pH"),
)


@register("physionet2012")
def load_physionet(name: str, folder: str | Path | None = None) -> DataSet:
    """x is a dictionary: "values" (N, 48, 37), 0 where nothing was measured; "observed", 1 where something was;
    "static" (N, 4): age, gender, height, type of unit. All standardised by the measured values of the training set.
    """
    location = data_folder(folder)
    arrays = find_arrays(location, ["physionet2012"], ARRAYS) or _from_files(location)
    _check_shapes(arrays)
    scaling = Scaling.of(arrays["x_a"], axes=(0, 1))
    static_scaling = Scaling.of(arrays["static_a"])
    parts: dict[str, Part] = {}
    for part in ("a", "b"):
        x = {
            "values": np.nan_to_num(scaling.apply(arrays[f"x_{part}"])),
            "observed": np.isfinite(arrays[f"x_{part}"]).astype(np.float32),
            "static": np.nan_to_num(static_scaling.apply(arrays[f"static_{part}"])),
        }
        parts[part] = (x, arrays[f"y_{part}"].astype(np.int32))
    features = (*map(str, arrays["variables"]), *map(str, arrays["static_names"]))
    return DataSet(name, parts["a"], parts["b"], ("survived", "died"), features, scaling)


def _check_shapes(arrays: dict[str, np.ndarray]) -> None:
    variables, static = len(arrays["variables"]), len(arrays["static_names"])
    for part in ("a", "b"):
        count = len(arrays[f"y_{part}"])
        shapes = {f"x_{part}": (count, HOURS, variables), f"static_{part}": (count, static), f"y_{part}": (count,)}
        for name, shape in shapes.items():
            if arrays[name].shape != shape:
                raise DataError(f"{name} of physionet2012.npz must have shape {shape}, got {arrays[name].shape}")


def _from_files(location: Path) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {"variables": np.array(VARIABLES), "static_names": np.array(STATIC)}
    remotes = [Remote(file, f"{ADDRESS}/{file}", checksum) for file, checksum in CHECKSUMS.items()]
    files = dict(zip(CHECKSUMS, fetch_all(remotes, location), strict=True))
    for part in ("a", "b"):
        stays = _read_stays(files[f"set-{part}.tar.gz"])
        ids, died = _read_outcomes(files[f"Outcomes-{part}.txt"])
        missing = [i for i in ids if i not in stays]
        if missing:
            raise DataError(f"set-{part}.tar.gz has no record {missing[0]} of Outcomes-{part}.txt: delete both")
        arrays[f"x_{part}"] = np.stack([stays[i][0] for i in ids])
        arrays[f"static_{part}"] = np.stack([stays[i][1] for i in ids])
        arrays[f"y_{part}"] = died
    return arrays


def _read_outcomes(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """The records of a table of outcomes, and which of the patients died in hospital."""
    try:
        table = np.genfromtxt(path, delimiter=",", names=True, deletechars="")
        ids, died = table["RecordID"].astype(int), table["In-hospital_death"].astype(int)
    except (OSError, ValueError, IndexError) as error:
        raise damaged(path, error) from error
    if not np.isin(died, (0, 1)).all():
        raise damaged(path, "deaths other than 0 and 1")
    return ids, died


def _read_stays(path: Path) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """By record, the hourly mean of every variable, and the static variables."""
    stays = {}
    try:
        for name, data in read_archive(path, lambda name: name.endswith(".txt")):
            stays[int(Path(name).stem)] = read_stay(data.decode())
    except (ValueError, IndexError) as error:
        raise damaged(path, error) from error
    return stays


def read_stay(text: str) -> tuple[np.ndarray, np.ndarray]:
    """One record, lines of "hh:mm,variable,value"; -1 stands for unknown.

    >>> values, static = read_stay("Time,Parameter,Value\\n00:00,Age,54\\n00:07,HR,70\\n00:37,HR,80\\n")
    >>> values[0, VARIABLES.index("HR")].item(), static.tolist()
    (75.0, [54.0, nan, nan, nan])
    """
    sums, counts = np.zeros((HOURS, len(VARIABLES))), np.zeros((HOURS, len(VARIABLES)))
    static = np.full(len(STATIC), np.nan)
    for line in io.StringIO(text).readlines()[1:]:
        time, variable, value = line.strip().split(",")
        number, hour = float(value), int(time.split(":")[0])
        if number == -1:
            continue
        if variable in STATIC:
            static[STATIC.index(variable)] = number
        elif variable in VARIABLES and hour < HOURS:
            sums[hour, VARIABLES.index(variable)] += number
            counts[hour, VARIABLES.index(variable)] += 1
    values = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return values.astype(np.float32), static.astype(np.float32)
