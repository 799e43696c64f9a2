"""The stacked row of ``posteriax compare``: its weights, and its file."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from posteriax.cli import environment
from posteriax.cli.app import make_app
from posteriax.tabular.baselines import fit_baselines
from posteriax.tabular.folds import prepare_folds
from posteriax.tabular.held_out_choice import Choice, HeldOut, assign_folds
from posteriax.tabular.messages import TableError
from posteriax.tabular.splitting import DataSettings
from posteriax.tabular.stacked_file import read_stack, save_stack, weigh_parts
from posteriax.tabular.table import Table


def write_waves(path, *, count=650, seed=0):
    """A wave, which a network finds, and steps, which trees find."""
    rng = np.random.default_rng(seed)
    x, kind = rng.uniform(-3, 3, count), rng.integers(0, 9, count)
    y = 100 + 10 * (np.sin(x) + (kind % 2) + 0.1 * rng.normal(size=count))
    pd.DataFrame({"x": x.round(4), "kind": kind, "y": y.round(4)}).to_csv(path, index=False)
    return path


def test_weights_are_those_of_rows_that_no_part_has_seen(tmp_path):
    table = Table("waves.csv", pd.read_csv(write_waves(tmp_path / "a.csv"), dtype=str))
    (fold,) = prepare_folds(table, DataSettings(target="y", test_fraction=0.1, folds=1))
    x, y = fold.train
    own = fold.target.restore(y)
    baselines = fit_baselines(x, own, "regression", names=["ridge regression", "random forest"])
    held = np.flatnonzero(assign_folds(y, 0, len(y)) == 0)
    log_scale = np.log(fold.target.scale)

    def weights(network):
        """Given the log score of the network in the target's units."""
        choice = Choice(None, 1.0, None, {}, HeldOut(network + log_scale, np.ones(len(held)), None))
        return weigh_parts(fold, choice, "ensemble", baselines, 0, 60.0)

    found, scores = weights(np.full(len(held), -3.0))
    forest = scores[:, list(found).index("random forest")]
    # as without these rows: the same models, fitted to the others
    rest = np.setdiff1d(np.arange(len(y)), held)
    (again,) = fit_baselines(x[rest], own[rest], "regression", names=["random forest"]).values()
    np.testing.assert_allclose(forest, again.predict(x[held]).log_prob(own[held]), rtol=1e-6)
    assert found["ridge regression"] < 0.2 and sum(found.values()) == pytest.approx(1.0)
    assert weights(np.full(len(held), 20.0)) is None  # nothing to mix


def test_a_mixture_whose_parts_have_changed_is_refused(tmp_path):
    (tmp_path / "a.posterior").write_bytes(b"1")
    (tmp_path / "b.baseline").write_bytes(b"2")
    parts = [("a", tmp_path / "a.posterior", 0.25), ("b", tmp_path / "b.baseline", 0.75)]
    save_stack(tmp_path / "s.stack", parts)
    assert read_stack(tmp_path / "s.stack") == parts
    plain = json.loads((tmp_path / "s.stack").read_text())
    (tmp_path / "b.baseline").write_bytes(b"3")
    with pytest.raises(TableError, match=r"is not the part that .* was made of"):
        read_stack(tmp_path / "s.stack")
    for damaged in ("{", "[]", json.dumps(plain | {"parts": []}), json.dumps(plain).replace("a.post", "../a.post")):
        (tmp_path / "s.stack").write_text(damaged)
        with pytest.raises(TableError, match="damaged, or not a mixture"):
            read_stack(tmp_path / "s.stack")


@pytest.mark.slow
def test_the_stacked_row_is_compared_saved_and_predicts(monkeypatch, tmp_path):
    monkeypatch.setattr(environment, "use_all_cores", lambda: None)  # this process's backend has started
    monkeypatch.setattr(environment, "use_compilation_cache", lambda: None)
    data, out = write_waves(tmp_path / "a.csv"), tmp_path / "a.html"
    arguments = ["compare", data, "--target", "y", "--methods", "ensemble", "--out", out, "--budget", "4m"]
    done = CliRunner().invoke(make_app(), list(map(str, arguments)))
    assert done.exit_code == 0, done.output
    assert "stacked: weights by the log score of held-out rows, " in done.stdout
    new = write_waves(tmp_path / "new.csv", count=20, seed=1)
    folder, means = tmp_path / "a_posteriors", {}
    parts = read_stack(folder / "stacked.stack")
    for file in (folder / "stacked.stack", *(file for _, file, _ in parts)):
        predicted = CliRunner().invoke(make_app(), ["predict", str(file), str(new)])
        assert predicted.exit_code == 0, predicted.output
        lines = [line.split(",") for line in predicted.stdout.splitlines()]
        means[file] = np.array([line[lines[0].index("mean")] for line in lines[1:]], float)
    mixed = sum(weight * means[file] for _, file, weight in parts)
    # 400 draws are shared out among the parts to the nearest one
    spread = max(np.ptp([means[file] for _, file, _ in parts], axis=0).max(), 1e-3)
    np.testing.assert_allclose(means[folder / "stacked.stack"], mixed, atol=len(parts) / 400 * spread)
