"""px.Laplace beside laplace-torch: the same weights, data and prior, in three structures.

    python -m benchmarks laplace_beside_laplace_torch

The first run installs laplace-torch, with PyTorch, into ``.venv-laplace-torch`` in the current folder; it computes in
double precision there. For a classification and a regression it prints the largest relative differences of the
marginal variances of the weights and of the standard deviations of the linearised outputs at new inputs, and the log
marginal likelihood of both.
"""

import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from rich.table import Table

import posteriax as px
from benchmarks.worker import make_environment
from posteriax import priors as p

ENVIRONMENT = Path(".venv-laplace-torch")
PACKAGES = ("torch==2.13.0", "laplace-torch==0.3")
WORKER = Path(__file__).with_name("laplace_torch_worker.py")
STRUCTURES = ("diagonal", "kronecker", "full")
SCALE, NOISE = 0.7, 0.3


class LaplaceCase(NamedTuple):
    """A trained network and its data; `noise` is 0 for classes."""

    net: Any
    data: tuple[np.ndarray, np.ndarray]
    x_test: np.ndarray
    noise: float

    @property
    def problem(self) -> px.Problem:
        return px.Problem(self.net, px.Normal(self.noise) if self.noise else px.Categorical(), p.Normal(SCALE))


def classification() -> LaplaceCase:
    """Three overlapping clouds."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    x = (np.array([[0, 0, 1, 0], [2, 0, 0, 1], [0, 2, 1, 1]])[y] + rng.normal(size=(300, 4))).astype(np.float32)
    return trained(
        LaplaceCase(eqx.nn.MLP(4, 3, 16, 2, activation=jnp.tanh, key=jax.random.key(0)), (x, y), x[:50] + 0.5, 0.0)
    )


def regression() -> LaplaceCase:
    """Two targets."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-2, 2, size=(200, 3)).astype(np.float32)
    y = np.stack([np.sin(2 * x[:, 0]) * x[:, 1], np.cos(x[:, 2])], axis=1) + NOISE * rng.normal(size=(200, 2))
    net = eqx.nn.MLP(3, 2, 16, 2, activation=jnp.tanh, key=jax.random.key(1))
    return trained(LaplaceCase(net, (x, y.astype(np.float32)), 1.5 * x[:50], NOISE))


def trained(case: LaplaceCase) -> LaplaceCase:
    posterior = px.fit(case.problem, case.data, px.MAP(), epochs=300, key=0)
    weights = iter(jax.tree.leaves(posterior.mean))
    return case._replace(net=jax.tree.map(lambda leaf: next(weights) if eqx.is_array(leaf) else leaf, case.net))


def theirs(case: LaplaceCase, python: str) -> dict[str, np.ndarray]:
    layers = case.net.layers
    given = {f"weight{i}": np.asarray(layer.weight) for i, layer in enumerate(layers)}
    given |= {f"bias{i}": np.asarray(layer.bias) for i, layer in enumerate(layers)}
    with tempfile.TemporaryDirectory() as folder:
        sent, received = Path(folder) / "given.npz", Path(folder) / "results.npz"
        more = {"layers": len(layers), "scale": SCALE, "noise": case.noise, "x_test": case.x_test}
        np.savez(sent, x=case.data[0], y=case.data[1], **given, **more)
        subprocess.run([python, "-W", "ignore", str(WORKER), str(sent), str(received)], check=True)
        return dict(np.load(received))


def ours(case: LaplaceCase, structure: Any) -> tuple[np.ndarray, np.ndarray, float]:
    """Marginal variances of the weights, covariances of the outputs, and the log evidence."""
    method = px.Laplace(structure=structure, mode="network")
    posterior = px.fit(case.problem, case.data, method, epochs=1, batch_size=32, key=0)
    weights: Any = posterior.drawn_from
    covariance = np.zeros((0, 0))
    for block in weights.blocks:
        variational = {name: jnp.asarray(value[0]) for name, value in weights.variational[block.name].items()}
        part = np.asarray(block.family.covariance(variational), np.float64)
        covariance = np.block(
            [
                [covariance, np.zeros((len(covariance), len(part)))],
                [np.zeros((len(part), len(covariance))), part],
            ]
        )
    jacobian = jax.jacobian(lambda params: case.problem.outputs(params, case.x_test))(posterior.mean)
    leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(jacobian)]
    rows = np.concatenate([leaf.reshape(*leaf.shape[:2], -1) for leaf in leaves], axis=2)
    return np.diag(covariance), rows @ covariance @ rows.swapaxes(1, 2), float(posterior.trace["log_evidence"])


def report() -> list[Table]:
    # torchvision is not needed, and imported if it is there: its build need not match that of PyTorch
    python = make_environment(ENVIRONMENT, PACKAGES, remove=["torchvision"])
    table = Table("", "structure", "variances", "outputs' sd", "log evidence", "laplace-torch", "relative")
    for case in (classification, regression):
        made = case()
        other = theirs(made, python)
        for structure in STRUCTURES:
            variance, outputs, evidence = ours(made, structure)
            expected = float(other[f"{structure} evidence"])
            weight_error = np.abs(variance / other[f"{structure} variance"] - 1).max()
            covariances = outputs, other[f"{structure} outputs"]
            sd, their_sd = (np.sqrt(np.diagonal(c, axis1=1, axis2=2)) for c in covariances)
            table.add_row(
                case.__name__,
                structure,
                f"{weight_error:.1e}",
                f"{np.abs(sd / their_sd - 1).max():.1e}",
                f"{evidence:.4f}",
                f"{expected:.4f}",
                f"{abs(evidence / expected - 1):.1e}",
            )
    return [table]
