"""Laplace approximations by laplace-torch. Runs in an environment of its own, so it imports nothing of posteriax.

    python benchmarks/laplace_torch_worker.py GIVEN.npz RESULTS.npz

GIVEN has the weights and biases of an MLP with tanh units, data, inputs to predict, the prior's scale and the noise (0
for classes). RESULTS gets, for every structure, the marginal variances of the weights, the covariances of the outputs,
and the log marginal likelihood; all computed in double precision.
"""

import sys

import numpy as np
import torch
from laplace import Laplace
from laplace.curvature import BackPackGGN
from torch import nn

STRUCTURES = {"diagonal": "diag", "kronecker": "kron", "full": "full"}
BATCH = 32


def network(given):
    layers = []
    for i in range(int(given["layers"])):
        outputs, inputs = given[f"weight{i}"].shape
        layer = nn.Linear(inputs, outputs)
        layer.weight.data, layer.bias.data = (torch.tensor(given[f"{name}{i}"]) for name in ("weight", "bias"))
        layers += [layer, nn.Tanh()]
    return nn.Sequential(*layers[:-1]).double()


def main(path, result_path):
    given, results = np.load(path), {}
    noise, y = float(given["noise"]), torch.tensor(given["y"])
    data = torch.utils.data.TensorDataset(torch.tensor(given["x"]).double(), y.double() if noise else y.long())
    for name, theirs in STRUCTURES.items():
        approximation = Laplace(
            network(given),
            "regression" if noise else "classification",
            subset_of_weights="all",
            hessian_structure=theirs,
            sigma_noise=noise or 1.0,
            prior_precision=float(given["scale"]) ** -2,
            backend=BackPackGGN,
        )
        approximation.fit(torch.utils.data.DataLoader(data, batch_size=BATCH))
        _, covariance = approximation._glm_predictive_distribution(torch.tensor(given["x_test"]).double())
        if theirs == "full":
            variance = approximation.posterior_covariance.diagonal()
        elif theirs == "diag":
            variance = approximation.posterior_variance
        else:
            variance = approximation.posterior_precision.diag(exponent=-1)
        results |= {
            f"{name} variance": variance.detach().numpy(),
            f"{name} outputs": covariance.detach().numpy(),
            f"{name} evidence": approximation.log_marginal_likelihood().item(),
        }
    np.savez(result_path, **results)


if __name__ == "__main__":
    main(*sys.argv[1:])
