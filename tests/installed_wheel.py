"""The wheel in a clean environment, outside the repository: `make dist` runs it on what it has just built.

    python tests/installed_wheel.py dist/posteriax-*.whl

First with the core alone: the doctor, and the first program of the package index's page, as it is printed there. Then
with what the command line and the estimators need: the demo, a comparison of a CSV file, predictions for new rows, and
the estimators.
"""

import argparse
import contextlib
import email
import os
import re
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

WHERE = "import posteriax, sys; assert posteriax.__file__.startswith(sys.prefix), posteriax.__file__"

ESTIMATORS = """
import numpy as np
from posteriax.sklearn import BayesianMLPClassifier, BayesianMLPRegressor

rng = np.random.default_rng(0)
X = rng.normal(size=(120, 3))
model = BayesianMLPClassifier(method="laplace", random_state=0).fit(X, np.where(X[:, 0] > 0, "yes", "no"))
assert model.predict_proba(X).shape == (120, 2) and model.score(X, np.where(X[:, 0] > 0, "yes", "no")) > 0.9
mean, std = BayesianMLPRegressor(method="map", random_state=0).fit(X, X[:, 0]).predict(X, return_std=True)
assert np.sqrt(np.mean((mean - X[:, 0]) ** 2)) < 0.3 and (std > 0).all()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    wheel = parser.parse_args().wheel.resolve()
    page = long_description(wheel)
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.2f} MB", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(Path(folder))
        with step("installing the core"):
            trial.pip("install", str(wheel))
            trial.pip("check")
            trial.python("-c", WHERE)
        with step("the doctor"):
            trial.posteriax("doctor")
        with step("the first program of README"):
            program = re.search(r"```python\n(.*?)```", page, re.DOTALL)
            assert program, "the page of the package index has no Python block"
            printed = trial.python("-c", program.group(1))
            assert "agreement" in printed, printed
        with step("installing [cli,plots,sklearn]"):
            trial.pip("install", f"{wheel}[cli,plots,sklearn]")
            trial.pip("check")
        with step("posteriax demo"):
            trial.posteriax("demo")
            assert {".html", ".png"} <= {file.suffix for file in (trial.folder / "posteriax-demo").iterdir()}
        with step("posteriax compare and predict"):
            table = write_table(trial.folder)
            trial.posteriax("compare", table, "--target=kind", "--out=report.html", "--quick", "--budget=2m")
            assert (trial.folder / "report.html").stat().st_size > 10_000
            posterior = sorted(trial.folder.glob("report_posteriors/*.posterior"))[0]
            rows = trial.posteriax("predict", str(posterior), table).splitlines()
            assert "probability" in rows[0]
            assert len(rows) == 151
        with step("the estimators"):
            trial.python("-c", ESTIMATORS)


class Trial:
    """An empty environment and an empty working folder."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "work"
        self.folder.mkdir()
        venv.create(root / "venv", with_pip=True)
        self.bin = root / "venv" / "bin"
        self.environment = {name: v for name, v in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}

    def pip(self, *arguments: str) -> str:
        return self.run("python", "-m", "pip", *arguments, "--quiet", "--disable-pip-version-check")

    def python(self, *arguments: str) -> str:
        return self.run("python", *arguments)

    def posteriax(self, *arguments: str) -> str:
        return self.run("posteriax", *arguments)

    def run(self, program: str, *arguments: str) -> str:
        """What it printed; ends this script if it failed."""
        done = subprocess.run(
            [self.bin / program, *arguments], cwd=self.folder, env=self.environment, capture_output=True, text=True
        )
        if done.returncode:
            sys.exit(f"{program} {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
        return done.stdout


@contextlib.contextmanager
def step(name: str) -> Iterator[None]:
    began = time.monotonic()
    print(f"  {name} ...", end=" ", flush=True)
    yield
    print(f"{time.monotonic() - began:.0f} s", flush=True)


def long_description(wheel: Path) -> str:
    """What a package index shows. No link in it may lead into the repository."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        page = email.message_from_bytes(archive.read(name)).get_payload()
    assert isinstance(page, str)
    relative = re.findall(r"\]\((?!https?:)([^)]*)\)", page)
    assert not relative, f"links of the package index's page that lead nowhere: {relative}"
    return page


def write_table(folder: Path) -> str:
    """A CSV file of 150 rows: two measurements, a category, and a class that depends on them."""
    colours = ("red", "green", "blue")
    rows = [(i * 37 % 100 / 10, i * 53 % 71 / 7, colours[i % 3]) for i in range(150)]
    lines = [f"{a},{b:.2f},{c},{'large' if a + b > 10 else 'small'}" for a, b, c in rows]
    (folder / "table.csv").write_text("\n".join(["length,width,colour,kind", *lines]) + "\n")
    return "table.csv"


if __name__ == "__main__":
    main()
