"""The README's first screen runs as printed, on a network of every framework."""

import re
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx

README = Path(__file__).parents[1] / "README.md"


class Linen(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Dense(16)(x))
        return nn.Dense(2)(nn.relu(nn.Dense(16)(x)))


class NNX(nnx.Module):
    def __init__(self, rngs):
        self.fc1 = nnx.Linear(2, 16, rngs=rngs)
        self.fc2 = nnx.Linear(16, 16, rngs=rngs)
        self.fc3 = nnx.Linear(16, 2, rngs=rngs)

    def __call__(self, x):
        return self.fc3(nnx.relu(self.fc2(nnx.relu(self.fc1(x)))))


def linen():
    module = Linen()
    return module, module.init(jax.random.key(0), np.zeros((1, 2)))


@pytest.mark.as_shipped
@pytest.mark.parametrize(
    "net",
    [
        pytest.param(None, id="equinox"),
        pytest.param(lambda: NNX(nnx.Rngs(0)), id="nnx", marks=pytest.mark.slow),
        pytest.param(linen, id="linen", marks=pytest.mark.slow),
    ],
)
def test_the_first_screen_runs_as_printed(net, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL).group(1)
    if net is not None:
        code, count = re.subn(r"^net = .*$", "net = make_net()", code, flags=re.MULTILINE)
        assert count == 1
    space = {"make_net": net}
    exec(compile(code, "README.md", "exec"), space)
    assert space["predictive"].probs.shape == (500, 2)
    assert (tmp_path / "run.posterior").exists()
    printed = capsys.readouterr().out
    assert "agreement" in printed
    assert "k-tied" in printed
    scores = space["px"].evaluate(space["truth"].predict(space["x_test"]), space["y_test"])
    assert scores["accuracy"] > 0.85
