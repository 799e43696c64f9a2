"""Times other libraries' steps when asked. Runs in an environment of theirs, so it imports nothing of posteriax.

Reads case names from standard input; writes the seconds of one step or leapfrog to standard output.
"""

import sys
import time
from typing import Any

import torch
from torch import nn

BATCH, BATCHES, STEPS = 1024, 10, 10
LEAPFROGS, STEP_SIZE = 100, 1e-3
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


def small_data() -> Any:
    """500 points in two dimensions. A leapfrog costs the same whatever their values and labels are."""
    return torch.randn(500, 2), torch.randint(0, 2, (500,))


def small_mlp() -> Any:
    return nn.Sequential(nn.Linear(2, 29), nn.ReLU(), nn.Linear(29, 29), nn.ReLU(), nn.Linear(29, 2))


def leapfrogs(run: Any) -> Any:
    """A function that has `run` take its leapfrogs and returns the seconds of one.

    On one thread: these products are so small that more threads make PyTorch slower, many times on a busy machine.
    """
    torch.set_num_threads(1)

    def seconds() -> Any:
        began = time.perf_counter()
        run(LEAPFROGS)
        return (time.perf_counter() - began) / LEAPFROGS

    return seconds


def pyro_leapfrogs(start: Any, potential: Any) -> Any:
    """Of the integrator of Pyro's HMC."""
    from pyro.ops.integrator import velocity_verlet

    momenta = {name: torch.zeros_like(value) for name, value in start.items()}
    return leapfrogs(lambda count: velocity_verlet(start, momenta, potential, lambda m: m, STEP_SIZE, count))


def pyro(**options: Any) -> Any:
    """Leapfrogs of Pyro's HMC on an MLP 2-29-29-2 with 500 points."""
    import pyro as pyro_ppl
    import pyro.distributions as dist
    from pyro.infer.mcmc.util import initialize_model

    x, y = small_data()
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

    start, potential, _, _ = initialize_model(model, max_plate_nesting=1, **options)
    return pyro_leapfrogs(start, potential)


def pyro_compiled() -> Any:
    return pyro(jit_compile=True, skip_jit_warnings=True)


def tyxe() -> Any:
    """The same network as a TyXe MCMC_BNN: Pyro's HMC on the potential that TyXe makes."""
    import pyro.distributions as dist
    import tyxe as library
    from pyro.infer.mcmc import HMC

    x, y = small_data()
    prior, likelihood = library.priors.IIDPrior(dist.Normal(0.0, 1.0)), library.likelihoods.Categorical(len(y))
    network = library.MCMC_BNN(small_mlp(), prior, likelihood, lambda model: HMC(model, adapt_step_size=False))
    network.kernel.setup(0, x, y)
    return pyro_leapfrogs(network.kernel.initial_params, network.kernel.potential_fn)


def eager(log_prior: Any = None) -> Any:
    """A minimal hand-written leapfrog loop on PyTorch's autograd, with all weights in one vector."""
    x, y = small_data()
    model = small_mlp()
    names = [name for name, _ in model.named_parameters()]
    shapes = [weight.shape for weight in model.parameters()]

    def log_joint(vector: Any) -> Any:
        parts = torch.split(vector, [shape.numel() for shape in shapes])
        weights = {name: part.view(shape) for name, part, shape in zip(names, parts, shapes, strict=True)}
        logits = torch.func.functional_call(model, weights, x)
        prior = log_prior(parts) if log_prior else -0.5 * vector.square().sum()
        return prior - nn.functional.cross_entropy(logits, y, reduction="sum")

    def gradient(vector: Any) -> Any:
        vector = vector.detach().requires_grad_()
        return torch.autograd.grad(log_joint(vector), vector)[0]

    def run(count: int) -> None:
        vector = nn.utils.parameters_to_vector(model.parameters()).detach()
        momentum = torch.zeros_like(vector) + 0.5 * STEP_SIZE * gradient(vector)
        for _ in range(count):
            vector = vector + STEP_SIZE * momentum
            momentum = momentum + STEP_SIZE * gradient(vector)

    return leapfrogs(run)


def eager_with_distributions() -> Any:
    """The same, with a PyTorch distribution as the prior of every leaf, as in hamiltorch."""
    prior = torch.distributions.Normal(torch.tensor(0.0), torch.tensor(1.0))
    return eager(lambda parts: sum(prior.log_prob(part).sum() for part in parts))


class FilterResponseNorm(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        start = torch.ones(1, channels, 1, 1), torch.zeros(1, channels, 1, 1), torch.zeros(1, channels, 1, 1)
        self.gamma, self.beta, self.tau = map(nn.Parameter, start)

    def forward(self, x: Any) -> Any:
        scale = torch.rsqrt(x.square().mean((2, 3), keepdim=True) + 1e-6)
        return torch.maximum(x * scale * self.gamma + self.beta, self.tau)


def convolution_and_norm(inputs: int, outputs: int, size: int, stride: int) -> Any:
    return nn.Sequential(nn.Conv2d(inputs, outputs, size, stride, size // 2), FilterResponseNorm(outputs))


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        first, second = convolution_and_norm(inputs, outputs, 3, stride), convolution_and_norm(outputs, outputs, 3, 1)
        self.main = nn.Sequential(first, nn.SiLU(), second)
        self.shortcut = convolution_and_norm(inputs, outputs, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: Any) -> Any:
        return nn.functional.silu(self.main(x) + self.shortcut(x))


def resnet20() -> Any:
    blocks, inputs = [], 16
    for stage in range(3):
        for i in range(3):
            blocks.append(Block(inputs, 16 * 2**stage, 2 if stage and not i else 1))
            inputs = 16 * 2**stage
    model = nn.Sequential(
        convolution_and_norm(3, 16, 3, 1),
        nn.SiLU(),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )
    return on_images(model, (3, 32, 32))


def lenet() -> Any:
    model = nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10),
    )  # fmt: skip
    return on_images(model, (1, 28, 28))


def on_images(model: Any, shape: tuple[int, ...]) -> Any:
    """A function that trains for three steps in the faster of PyTorch's two layouts, and returns the seconds of one."""
    x, y = torch.randn(128, *shape), torch.randint(0, 10, (128,))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def seconds(layout: Any) -> float:
        images, network = x.to(memory_format=layout), model.to(memory_format=layout)
        began = time.perf_counter()
        for _ in range(3):
            optimizer.zero_grad()
            cross_entropy(network, images, y).backward()
            optimizer.step()
        return (time.perf_counter() - began) / 3

    return lambda: min(seconds(layout) for layout in (torch.contiguous_format, torch.channels_last))


CASES = {
    "PyTorch, ResNet-20-FRN": resnet20,
    "PyTorch, LeNet-5": lenet,
    "deterministic PyTorch": deterministic,
    "bayesian-torch": bayesian_torch,
    "torchbnn": torchbnn,
    "blitz": blitz,
    "Pyro": pyro,
    "Pyro, jit_compile": pyro_compiled,
    "TyXe": tyxe,
    "eager PyTorch, lean": eager,
    "eager PyTorch, hamiltorch's way": eager_with_distributions,
}


def main(names: list[str]) -> None:
    cases = {name: CASES[name]() for name in names}
    for line in sys.stdin:
        print(cases[line.strip()](), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
