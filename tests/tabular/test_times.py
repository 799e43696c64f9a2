"""Tables of times until an event: ``posteriax compare --event``."""

import json
from dataclasses import asdict

import numpy as np
import pytest
from typer.testing import CliRunner

from posteriax.cli import environment
from posteriax.cli.app import make_app
from posteriax.tabular.data_files import read_table
from posteriax.tabular.description import target_from_plain
from posteriax.tabular.folds import prepare_folds
from posteriax.tabular.messages import TableError
from posteriax.tabular.splitting import DataSettings
from posteriax.tabular.targets import Times


def write_patients(path, *, count=80, seed=0, died=lambda seen: "yes" if seen else "no", days=str):
    """Older patients live shorter; the study ends for each at a random day."""
    rng = np.random.default_rng(seed)
    lines = ["age,days,died"]
    for _ in range(count):
        age = rng.uniform(30, 90)
        time, end = 4000 * np.exp(-age / 20 + 0.3 * rng.normal()), rng.exponential(400)
        lines.append(f"{age:.1f},{days(round(min(time, end), 2) + 0.01)},{died(time <= end)}")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("died", [lambda seen: "yes" if seen else "no", int], ids=["words", "numbers"])
def test_censored_times_are_negative_and_the_event_is_no_input(tmp_path, died):
    path = write_patients(tmp_path / "a.csv", died=died)
    (fold,) = prepare_folds(read_table(path), DataSettings(target="days", event="died", folds=1))
    table = read_table(path).frame
    y = np.concatenate([fold.train[1], fold.test[1]])
    rows = np.concatenate([fold.train_rows, fold.test_rows])
    np.testing.assert_allclose(np.abs(y), table["days"].astype(float).to_numpy()[rows], rtol=1e-6)
    seen = table["died"].isin(["yes", "1"]).to_numpy()[rows]
    np.testing.assert_array_equal(y > 0, seen)
    assert fold.train[0].shape == (64, 1)
    assert isinstance(fold.target, Times)
    plain = json.loads(json.dumps(asdict(fold.target)))
    assert target_from_plain(plain) == fold.target


BAD = {
    "a third word": ({"died": lambda seen: "maybe"}, {}, "the column must hold 1 or 0, yes or no, but has 'maybe'"),
    "a time of zero": ({"days": lambda day: "0"}, {}, "times must be positive, but 'days' has '0"),
    "text": ({"days": lambda day: "long"}, {}, "is text, so it cannot be a time until 'died'"),
    "no event": ({"died": lambda seen: 0}, {}, "no training row has an event"),
    "no column": ({}, {"event": "dead"}, "has no column 'dead'"),
    "another task": ({}, {"task": "counts"}, "--event is for times until an event, but --task is counts"),
    "no --event": ({}, {"event": None, "task": "times"}, "--task times needs --event COLUMN"),
    "the target": ({}, {"event": "days"}, "cannot be anything else"),
}


@pytest.mark.parametrize(("table", "settings", "message"), BAD.values(), ids=BAD)
def test_what_cannot_be_learned_from_is_refused_in_a_line(tmp_path, table, settings, message):
    path = write_patients(tmp_path / "a.csv", **table)
    with pytest.raises(TableError, match=message) as error:
        prepare_folds(read_table(path), DataSettings(**({"target": "days", "event": "died"} | settings)))
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_times_are_compared_and_predicted(monkeypatch, tmp_path):
    monkeypatch.setattr(environment, "use_all_cores", lambda: None)  # this process's backend has started
    monkeypatch.setattr(environment, "use_compilation_cache", lambda: None)
    data, out = write_patients(tmp_path / "a.csv", count=200), tmp_path / "a.html"
    arguments = [
        "compare",
        data,
        "--target",
        "days",
        "--event",
        "died",
        "--methods",
        "ensemble,mean-field",
        "--out",
        out,
    ]
    done = CliRunner().invoke(make_app(), list(map(str, [*arguments, "--out", out, "--folds", 1, "--budget", "60s"])))
    assert done.exit_code == 0, done.output
    assert "concordance" in done.stdout and "a time until 'died'" in done.stdout
    new = write_patients(tmp_path / "new.csv", count=9, seed=1)
    predicted = CliRunner().invoke(make_app(), ["predict", str(tmp_path / "a_posteriors/ensemble.posterior"), str(new)])
    assert predicted.exit_code == 0, predicted.output
    assert predicted.stdout.splitlines()[0].startswith("median,")
    assert "concordance" in predicted.stderr
