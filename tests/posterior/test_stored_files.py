"""Posterior files that were written earlier still load, and predict what they did then."""

from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest

import posteriax as px

FILES = Path(__file__).parent / "stored_files"


@pytest.mark.parametrize("name", ["vi", "hmc", "swag"])
def test_a_stored_file_predicts_what_it_did(name):
    net = eqx.nn.MLP(2, 2, 3, 1, key=jax.random.key(0))
    expected = np.load(FILES / "expected.npz")
    posterior = px.load(FILES / f"{name}.posterior", net)
    predictive = posterior.predict(expected["x"], draws=None if name == "hmc" else 8, key=0)
    predicted = predictive.mean if name == "swag" else predictive.probs  # regression, the others are classifiers
    np.testing.assert_allclose(predicted, expected[name], atol=1e-6)
