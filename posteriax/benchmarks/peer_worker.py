"""Times other libraries' steps when asked. Runs in the peers' own environment, so it imports nothing of posteriax.

Reads case names from standard input; writes the seconds of one step or leapfrog to standard output.
"""

import sys
import time
from typing import Any

import torch
from torch import nn

BATCH, BATCHES, STEPS = 1024, 10, 10
torch.manual_seed(0)


def training(model: Any, loss: Any) -> Any:
    """A function that trains for some steps and returns the seconds of one."""
    x, y = torch.randn(BATCH * BATCHES, 784), torch.randint(0, 10, (BATCH * BATCHES,))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def seconds() -> Any:
        began = time.perf_counter()
        for i in range(STEPS):
            rows = slice(i * BATCH, (i + 1) * BATCH)
            optimizer.zero_grad()
            loss(model, x[rows], y[rows]).backward()
            optimizer.step()
        return (time.perf_counter() - began) / STEPS

    return seconds


def mlp(linear: Any) -> Any:
    return nn.Sequential(linear(784, 400), nn.ReLU(), linear(400, 400), nn.ReLU(), linear(400, 10))


def cross_entropy(model: Any, x: Any, y: Any) -> Any:
    return nn.functional.cross_entropy(model(x), y)


def deterministic() -> Any:
    return training(mlp(nn.Linear), cross_entropy)


def bayesian_torch() -> Any:
    from bayesian_torch.layers import LinearReparameterization

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            sizes = ((784, 400), (400, 400), (400, 10))
            self.layers = nn.ModuleList(
                LinearReparameterization(i, o, prior_mean=0.0, prior_variance=0.09, posterior_rho_init=-4.6)
                for i, o in sizes
            )

        def forward(self, x: Any) -> Any:
            kl = 0.0
            for i, layer in enumerate(self.layers):
                x, layer_kl = layer(x)
                kl = kl + layer_kl
                x = torch.relu(x) if i < 2 else x
            return x, kl

    def loss(model: Any, x: Any, y: Any) -> Any:
        logits, kl = model(x)
        return nn.functional.cross_entropy(logits, y) + kl / (BATCH * BATCHES)

    return training(Model(), loss)


def torchbnn() -> Any:
    import torchbnn as bnn

    model = mlp(lambda i, o: bnn.BayesLinear(prior_mu=0, prior_sigma=0.3, in_features=i, out_features=o))
    divergence = bnn.BKLLoss(reduction="sum", last_layer_only=False)
    return training(model, lambda m, x, y: cross_entropy(m, x, y) + divergence(m) / (BATCH * BATCHES))


def blitz() -> Any:
    from blitz.modules import BayesianLinear
    from blitz.utils import variational_estimator

    @variational_estimator
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = mlp(BayesianLinear)

        def forward(self, x: Any) -> Any:
            return self.net(x)

    def loss(model: Any, x: Any, y: Any) -> Any:
        return cross_entropy(model, x, y) + model.nn_kl_divergence() / (BATCH * BATCHES)

    return training(Model(), loss)


def pyro() -> Any:
    """Leapfrogs of Pyro's HMC on an MLP 2-29-29-2 with 500 points."""
    import pyro as pyro_ppl
    import pyro.distributions as dist
    from pyro.infer.mcmc import HMC
    from pyro.infer.mcmc.util import initialize_model
    from pyro.ops.integrator import velocity_verlet

    x, y = torch.randn(500, 2), torch.randint(0, 2, (500,))
    sizes = ((2, 29), (29, 29), (29, 2))

    def model() -> Any:
        hidden = x
        for i, (inputs, outputs) in enumerate(sizes):
            kernel = pyro_ppl.sample(f"w{i}", dist.Normal(torch.zeros(inputs, outputs), 1.0).to_event(2))
            bias = pyro_ppl.sample(f"b{i}", dist.Normal(torch.zeros(outputs), 1.0).to_event(1))
            hidden = hidden @ kernel + bias
            hidden = torch.relu(hidden) if i < 2 else hidden
        with pyro_ppl.plate("data", len(x)):
            pyro_ppl.sample("y", dist.Categorical(logits=hidden), obs=y)

    start, potential, _, _ = initialize_model(model, max_plate_nesting=1)
    kernel = HMC(potential_fn=potential, step_size=1e-3, num_steps=100, adapt_step_size=False, adapt_mass_matrix=False)
    kernel.initial_params = start
    kernel.setup(warmup_steps=0)
    momenta = {name: torch.zeros_like(value) for name, value in start.items()}
    count = 100

    def seconds() -> Any:
        began = time.perf_counter()
        velocity_verlet(start, momenta, potential, lambda m: m, 1e-3, count)
        return (time.perf_counter() - began) / count

    return seconds


CASES = {
    "deterministic PyTorch": deterministic,
    "bayesian-torch": bayesian_torch,
    "torchbnn": torchbnn,
    "blitz": blitz,
    "Pyro": pyro,
}


def main(names: list[str]) -> None:
    cases = {name: CASES[name]() for name in names}
    for line in sys.stdin:
        print(cases[line.strip()](), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
