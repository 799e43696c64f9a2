"""Predictive distributions of tables by `posteriax compare`, beside published ones; and the default estimators.

    python -m benchmarks tables --set airfoil --seed 0 --budget 5m   # one run; without --set and --seed, all of them
    python -m benchmarks tables --set uci/yacht --budget 60s         # its 20 splits
    python -m benchmarks tables --estimators                         # beside scikit-learn's models, ten splits each
    python -m benchmarks tables --stored --page docs/results/tables.md    # the page's tables, from what was stored

Each run is a process of its own, with the command's defaults, and one JSON file in the folder `--out`; what is stored
is not run again, so that an interrupted benchmark goes on where it was. Seconds are those of the whole command.

airfoil and bikesharing are split as by bde's authors (``train_test_split(test_size=0.2, random_state=0)``), inputs and
targets standardised by the training rows; seeds are those of the methods. CSV files of these names, as they come
from the UCI repository, are looked for in the folder that POSTERIAX_DATA names, or its folder ``tables``. The UCI
regressions have their standard splits and the targets' own units.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks.timing import make_table

OUT = Path("docs/results/tables")
SEEDS = 5
BDE_SETS = {"airfoil": ("target", ()), "bikesharing": ("cnt", ("instant", "dteday", "casual", "registered"))}
UCI_SETS = {"boston": 20, "concrete": 20, "energy": 20, "naval": 20, "power": 20, "protein": 5, "wine": 20, "yacht": 20}
BUDGETS = {"bikesharing": "15m"} | {f"uci/{name}": "60s" for name in UCI_SETS}  # by default; 5m for the others
ESTIMATOR_SETS = ("iris", "wine", "breast_cancer", "digits", "diabetes")
ESTIMATOR_SPLITS, TEST_SHARE = 10, 0.3
PUBLISHED: dict[str, dict[str, tuple[float, float]]] = {  # NLL, RMSE; NaN if not reported
    "airfoil": {
        "bde": (-0.913, 0.1215),
        "TabPFN v2": (-0.934, 0.136),
        "CatBoost": (0.148, 0.239),
        "deep ensemble": (0.176, 0.365),
    },
    "bikesharing": {"bde": (-0.732, 0.226), "TabPFN v2": (-0.686, math.nan), "CatBoost": (-0.374, math.nan)},
} | {
    f"uci/{name}": {"deep ensembles": (ensemble, math.nan), "NGBoost": (boosting, math.nan)}
    for name, ensemble, boosting in zip(
        UCI_SETS,
        (2.41, 3.06, 1.38, -5.63, 2.79, 2.83, 0.94, 1.18),
        (2.43, 3.04, 0.60, -5.34, 2.79, 2.81, 0.91, 0.20),
        strict=True,
    )
}


@dataclass(frozen=True)
class TableRun:
    """One run of the command line.

    Args:
        set: by name.
        split: of the rows; always 0 of bde's sets.
        seed: of the methods.
        budget: as `--budget` takes it.
        methods: by name; empty for the command's defaults.
    """

    set: str
    split: int
    seed: int
    budget: str
    methods: tuple[str, ...] = ()

    def path(self, folder: Path) -> Path:
        few = f"-{'+'.join(self.methods)}" if self.methods else ""
        name = f"{self.set.replace('/', '-')}-split{self.split}-seed{self.seed}-{self.budget}{few}.json"
        return folder / name


def report(
    sets: Sequence[str],
    seeds: Sequence[int],
    splits: Sequence[int],
    budget: str | None,
    methods: str,
    estimators: bool,
    stored: bool,
    out: Path,
) -> list[Table]:
    out.mkdir(parents=True, exist_ok=True)
    if estimators and not stored:
        for name in sets or ESTIMATOR_SETS:
            for split in splits or range(ESTIMATOR_SPLITS):
                path = out / f"estimators-{name}-split{split}.json"
                _store(path, lambda name=name, split=split: run_estimators(name, split))
    elif not stored:
        few = tuple(name for name in methods.split(",") if name)
        for run in runs_of(sets, seeds, splits, budget, few):
            _store(run.path(out), lambda run=run: in_a_process(run))
    return [*tables_of(out), *estimator_tables(out)]


def runs_of(
    sets: Sequence[str], seeds: Sequence[int], splits: Sequence[int], budget: str | None, methods: tuple[str, ...]
) -> Iterator[TableRun]:
    """The runs in their order: the first split or seed of every set, then the second, ..."""
    names = list(sets) or [*BDE_SETS, *(f"uci/{name}" for name in UCI_SETS)]
    most = max(SEEDS, *UCI_SETS.values())
    for number in range(most):
        for name in names:
            time_for = budget or BUDGETS.get(name, "5m")
            if name in BDE_SETS:
                if number < SEEDS and (not seeds or number in seeds):
                    yield TableRun(name, 0, number, time_for, methods)
            elif number < UCI_SETS[name.removeprefix("uci/")] and (not splits or number in splits):
                yield TableRun(name, number, 0, time_for, methods)


def _store(path: Path, run: Callable[[], dict[str, Any]]) -> None:
    if path.exists():
        return
    print(path.stem, file=sys.stderr, flush=True)
    result = run()
    part = path.with_suffix(".part")
    part.write_text(json.dumps(result, indent=1) + "\n")
    os.replace(part, path)


def in_a_process(run: TableRun) -> dict[str, Any]:
    """What a run measured, in a process that starts as the command does."""
    with tempfile.TemporaryDirectory() as folder:
        spec, result = Path(folder) / "run.json", Path(folder) / "result.json"
        spec.write_text(json.dumps(asdict(run)))
        command = [sys.executable, "-m", "benchmarks.tables", str(spec), str(result)]
        subprocess.run(command, check=True, stdout=sys.stderr)
        return json.loads(result.read_text())


def work(spec: Path, result: Path) -> None:
    """Run the command line's function and store what it found."""
    began = time.monotonic()
    plain = json.loads(spec.read_text())
    run = TableRun(**plain | {"methods": tuple(plain["methods"])})
    from posteriax.cli import environment
    from posteriax.cli.environment import console

    environment.use_all_cores()
    environment.use_compilation_cache()
    from posteriax.tabular.compare_file import CompareSettings, budget_seconds, compare_file

    folder = spec.parent
    target = write_csv(run.set, run.split, folder)
    some = {"methods": list(run.methods)} if run.methods else {}
    settings = CompareSettings(
        target=target,
        task="regression",
        test=folder / "test.csv",
        budget=budget_seconds(run.budget),
        seed=run.seed,
        **some,
    )
    report, posteriors = folder / "report.html", folder / "posteriors"
    comparison = compare_file(folder / "train.csv", report, posteriors, settings, console(piped_width=160), began)
    check = comparison.reference_check
    found = {
        "run": asdict(run),
        "cores": os.cpu_count(),
        "seconds": round(time.monotonic() - began, 1),
        "recommended": comparison.recommendation.name if comparison.recommendation else None,
        "rhat": None if check is None else _rounded(check.rhat),
        "rows": {
            name: {column: [_rounded(e.value), _rounded(e.error)] for column, e in row.items()}
            for name, row in comparison.rows.items()
        },
        "ends": {name: [end.status, _rounded(end.seconds), list(end.details)] for name, end in comparison.runs.items()},
    }
    result.write_text(json.dumps(found))


def _rounded(value: Any) -> float | None:
    return float(f"{float(value):.5g}") if value is not None and math.isfinite(float(value)) else None


def write_csv(name: str, split: int, folder: Path) -> str:
    """The training and test rows of a set as files; returns the target's column."""
    import pandas as pd

    if name in BDE_SETS:
        train, test, target = bde_rows(name)
    else:
        import posteriax as px

        data, target = px.data.load(name, split=split, standardise=False), "target"
        train, test = (
            pd.DataFrame(x, columns=[f"x{k}" for k in range(x.shape[1])]).assign(target=np.asarray(y).reshape(-1))
            for x, y in (data.train, data.test)
        )
    train.to_csv(folder / "train.csv", index=False)
    test.to_csv(folder / "test.csv", index=False)
    return target


def bde_rows(name: str) -> tuple[Any, Any, str]:
    """Training and test rows of bde's sets, standardised, and the target's column."""
    import pandas as pd
    from sklearn.model_selection import train_test_split

    target, left_out = BDE_SETS[name]
    data = Path(os.environ.get("POSTERIAX_DATA", "."))
    paths = [folder / f"{name}.csv{ending}" for folder in (data / "tables", data) for ending in ("", ".gz")]
    path = next((path for path in paths if path.exists()), None)
    if path is None:
        raise SystemExit(f"{name}.csv is not in {data}, the folder that POSTERIAX_DATA should name")
    table = pd.read_csv(path).drop(columns=list(left_out))
    train, test = train_test_split(table, test_size=0.2, random_state=0)
    mean, scale = train.mean(), train.std(ddof=0)
    return (train - mean) / scale, (test - mean) / scale, target


def run_estimators(name: str, split: int) -> dict[str, Any]:
    """Negative log likelihood and error on test rows of the default estimator and of scikit-learn's models.

    A number's spread is that of the errors in five-fold validation, for models that have none.
    """
    from sklearn import datasets
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.model_selection import KFold, cross_val_predict, train_test_split
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from posteriax.sklearn import BayesianMLPClassifier, BayesianMLPRegressor

    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    numbers = name == "diabetes"
    train, test, y_train, y_test = train_test_split(
        x, y, test_size=TEST_SHARE, random_state=split, stratify=None if numbers else y
    )
    scores: dict[str, dict[str, float]] = {}
    if numbers:
        models: dict[str, Any] = {
            "ridge regression": make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 4, 15))),
            "MLPRegressor": make_pipeline(StandardScaler(), MLPRegressor(max_iter=2000, random_state=split)),
            "BayesianMLPRegressor": BayesianMLPRegressor(random_state=split),
        }
    else:
        models = {
            "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
            "MLPClassifier": make_pipeline(StandardScaler(), MLPClassifier(max_iter=2000, random_state=split)),
            "BayesianMLPClassifier": BayesianMLPClassifier(random_state=split),
        }
    for title, model in models.items():
        began = time.perf_counter()
        model.fit(train, y_train)
        took = time.perf_counter() - began
        if not numbers:
            probs = model.predict_proba(test)
            label = np.searchsorted(model.classes_, y_test)
            nll = -np.log(np.maximum(probs[np.arange(len(test)), label], 1e-15)).mean()
            error = float((probs.argmax(axis=1) != label).mean())
        elif isinstance(model, BayesianMLPRegressor):
            predictive = model._predictive(test)
            nll = -np.asarray(predictive.log_prob(y_test), np.float64).mean()
            error = float(np.sqrt(np.square(predictive.mean[:, 0] - y_test).mean()))
        else:
            folds = KFold(5, shuffle=True, random_state=0)
            spread = np.sqrt(np.square(y_train - cross_val_predict(model, train, y_train, cv=folds)).mean())
            off = y_test - model.predict(test)
            nll = (0.5 * np.log(2 * np.pi * spread**2) + np.square(off / spread) / 2).mean()
            error = float(np.sqrt(np.square(off).mean()))
        scores[title] = {"nll": float(nll), "error": error, "seconds": round(took, 2)}
    return {"set": name, "split": split, "scores": scores}


def read_stored(folder: Path, pattern: str) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob(pattern))]


def tables_of(folder: Path) -> list[Table]:
    """For each set, its rows here, mean and standard error over runs, and the published ones."""
    made = []
    by_set: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for result in read_stored(folder, "*-split*-seed*.json"):
        by_set.setdefault((result["run"]["set"], result["run"]["budget"]), []).append(result)
    order = [*BDE_SETS, *(f"uci/{name}" for name in UCI_SETS)]
    for (name, budget), results in sorted(by_set.items(), key=lambda item: order.index(item[0][0])):
        runs = f"{len(results)} {'seeds' if name in BDE_SETS else 'splits'}"
        seconds = np.mean([result["seconds"] for result in results])
        rhats = [result["rhat"] for result in results if result["rhat"] is not None]
        title = f"{name}, --budget {budget}: {runs}, {seconds:.0f} s each"
        title += f"; R-hat of the reference {np.median(rhats):.2f} (median)" if rhats else ""
        table = make_table(title, ("nll", "rmse", "90 % coverage", "runs"))
        rows = {row for result in results for row in result["rows"]}
        lines = [(published, name_, "") for name_, published in PUBLISHED.get(name, {}).items()]
        cells: list[tuple[float, tuple[str, ...]]] = [
            (nll, (f"{title_}, published", f"{nll:g}", "" if math.isnan(rmse) else f"{rmse:g}", "", ""))
            for (nll, rmse), title_, _ in lines
        ]
        for row in rows:
            scored = [result["rows"][row] for result in results if row in result["rows"]]
            values = {
                column: [score[column][0] for score in scored if column in score and score[column][0] is not None]
                for column in ("nll", "rmse", "coverage_90")
            }
            if values["nll"]:
                shown = [mean_and_error(values[column]) for column in values]
                cells.append((float(np.mean(values["nll"])), (row, *shown, str(len(scored)))))
        for _, line in sorted(cells):
            table.add_row(*line)
        made.append(table)
    return made


def estimator_tables(folder: Path) -> list[Table]:
    """The default estimators beside scikit-learn's, over splits."""
    made = []
    for name in ESTIMATOR_SETS:
        results = read_stored(folder, f"estimators-{name}-split*.json")
        if not results:
            continue
        quantity = "rmse" if name == "diabetes" else "error rate"
        table = make_table(f"{name}: {len(results)} splits, 30 % for testing", ("nll", quantity, "seconds"))
        for model in results[0]["scores"]:
            scores = [result["scores"][model] for result in results]
            columns = ([score[column] for score in scores] for column in ("nll", "error"))
            seconds = f"{np.median([score['seconds'] for score in scores]):.2g}"
            table.add_row(model, *map(mean_and_error, columns), seconds)
        made.append(table)
    return made


def mean_and_error(values: Sequence[float]) -> str:
    """A mean with its standard error over runs.

    >>> mean_and_error([1.0, 2.0, 3.0]), mean_and_error([0.5]), mean_and_error([])
    ('2.000 ± 0.577', '0.500', '')
    """
    if not len(values):
        return ""
    mean = f"{np.mean(values):.3f}"
    return mean if len(values) == 1 else f"{mean} ± {np.std(values, ddof=1) / math.sqrt(len(values)):.3f}"


if __name__ == "__main__":
    work(Path(sys.argv[1]), Path(sys.argv[2]))
