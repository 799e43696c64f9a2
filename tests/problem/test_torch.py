"""PyTorch modules: outputs and gradients are PyTorch's, and draws go back into modules."""

import copy
import pickle
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posteriax as px
from posteriax import families as q
from posteriax import priors as p
from posteriax.networks.tracing.coupling import couples_examples

torch = pytest.importorskip("torch")
torch_modules = pytest.importorskip("benchmarks.torch_modules")
nn, F = torch.nn, torch.nn.functional

RNG = np.random.default_rng(0)
KEY = jax.random.key(7)
CASES = {
    "MLP": (lambda: torch_modules.MLP(6, 8, 3), (6,), 0),
    "GroupNormCNN": (lambda: torch_modules.GroupNormCNN(2, 3, 8), (2, 8, 8), 0),
    "BatchNormNet": (torch_modules.BatchNormNet, (8,), 0),
    "ResNet18": (lambda: torch_modules.ResNet18(5), (3, 32, 32), 0),
    "MobileNetV2": (lambda: torch_modules.MobileNetV2(5), (3, 32, 32), 0),
    "GPT": (lambda: torch_modules.GPT(30, 12, 16, 2, 2), (10,), 30),
    "BERT": (lambda: torch_modules.BERT(30, 12, 16, 2, 2), (10,), 30),
    "LSTM": (lambda: torch_modules.LSTMClassifier(4, 8, 3), (7, 4), 0),
    "UNet": (lambda: torch_modules.UNet(1, 1, 8), (1, 12, 12), 0),
}
SLOW = {"ResNet18", "MobileNetV2"}


def made(name, n=5):
    """A module, and inputs for it."""
    build, shape, words = CASES[name]
    torch.manual_seed(0)
    x = RNG.integers(0, words, (n, *shape)) if words else RNG.normal(size=(n, *shape)).astype(np.float32)
    return build(), x


def of_torch(module, x):
    """What the module computes in PyTorch, and the gradients of a sum of its outputs, by the leaves' paths."""
    module, x = copy.deepcopy(module), torch.tensor(x)
    outputs = module(x)
    (outputs * torch.linspace(0.5, 2.0, outputs[0].numel()).reshape(outputs.shape[1:])).sum().backward()
    gradients = {name.replace(".", "/"): weight.grad.numpy() for name, weight in module.named_parameters()}
    return outputs.detach().numpy(), gradients


def of_jax(net, x):
    def weighted(params):
        outputs = net.apply(params, jnp.asarray(x))
        return (outputs * jnp.linspace(0.5, 2.0, outputs[0].size).reshape(outputs.shape[1:])).sum(), outputs

    gradients, outputs = jax.jit(jax.grad(weighted, has_aux=True))(net.params)
    return np.asarray(outputs), dict(zip(leaf_names(net), map(np.asarray, jax.tree.leaves(gradients)), strict=True))


def leaf_names(net):
    return [line.split()[0] for line in px.paths(net)]


def assert_equal(computed, wanted, depth=1):
    """Equal up to float32's rounding, whose errors add up over the network's layers and sums."""
    np.testing.assert_allclose(computed, wanted, rtol=0, atol=depth * 1e-5 * max(np.abs(wanted).max(), 1e-2))


# ------------------------------------------------------------------------------------------ outputs and gradients


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in CASES])
def test_outputs_and_gradients_are_pytorchs(name):
    module, x = made(name)
    module.eval()
    net = px.network(module)
    assert leaf_names(net) == sorted(n.replace(".", "/") for n, _ in module.named_parameters())
    outputs, gradients = of_jax(net, x)
    wanted, wanted_gradients = of_torch(module, x)
    assert_equal(outputs, wanted, 10)
    for path, gradient in gradients.items():
        if name == "BERT" and path == "tokens/weight":
            gradient = np.concatenate(
                [0 * gradient[:1], gradient[1:]]
            )  # PyTorch never trains the row of padding; here it is a row like the others
        assert_equal(gradient, wanted_gradients[path], 100)
    np.testing.assert_allclose(net.apply(net.params, x[:2]), outputs[:2], rtol=1e-3, atol=1e-5)  # any batch size


def test_batch_norm_in_training_mode_uses_the_batch_and_its_statistics_can_be_measured():
    module, x = made("BatchNormNet", 40)
    net = px.network(module)
    assert couples_examples(net, x)
    outputs, gradients = of_jax(net, x)
    wanted, wanted_gradients = of_torch(module, x)
    assert_equal(outputs, wanted)
    for path, gradient in gradients.items():
        assert_equal(gradient, wanted_gradients[path], 100)
    measured = net.batch_statistics.measure(net.params, x)
    reference = copy.deepcopy(module)
    reference.norm.momentum = 1.0
    reference(torch.tensor(x))
    for name, value in measured.items():
        assert_equal(value, reference.state_dict()[name].numpy())
    applied = net.batch_statistics.apply(net.params, measured, x[:3])
    assert_equal(applied, reference.eval()(torch.tensor(x[:3])).detach().numpy())
    assert module.training and float(module.norm.num_batches_tracked) == 0  # the user's module is as it was
    module.eval()
    assert not couples_examples(px.network(module), x)


def test_statistics_of_batch_norm_are_measured_for_a_posterior_and_kept_in_its_file(tmp_path):
    module, x = made("BatchNormNet", 40)
    mode = px.fit(px.Problem(module, px.Categorical()), (x, np.arange(40) % 3), px.MAP(), steps=3, key=0)
    calibrated = px.posterior.with_batch_statistics(mode, x)
    (trained,) = px.to_torch(mode.sample(0, 1), module)
    torch.optim.swa_utils.update_bn([torch.tensor(x)], trained)
    with torch.no_grad():
        wanted = trained.eval()(torch.tensor(x)).softmax(-1).numpy()
    # PyTorch's variances are of n - 1, as are those measured here
    assert_equal(calibrated.predict(x).probs, wanted, 10)
    stored = px.fit(px.Problem(module.eval(), px.Categorical()), (x, np.arange(40) % 3), px.MAP(), steps=3, key=0)
    stored.save(tmp_path / "run.posterior")
    again = px.load(tmp_path / "run.posterior", made("BatchNormNet")[0].eval())
    np.testing.assert_array_equal(again.predict(x).probs, stored.predict(x).probs)
    with pytest.raises(ValueError, match=r"module\.eval\(\)"):
        px.load(tmp_path / "run.posterior", made("BatchNormNet")[0].train())


class Words(nn.Module):
    """A module of one function."""

    def __init__(self, function):
        super().__init__()
        self.function, self.scale = function, nn.Parameter(torch.ones(4))

    def forward(self, x):
        return self.function(x * self.scale)


ACTIVATIONS = [
    *(
        F.relu,
        F.gelu,
        F.silu,
        F.elu,
        F.selu,
        F.celu,
        F.mish,
        F.softplus,
        F.hardswish,
        F.hardsigmoid,
        F.relu6,
        F.sigmoid,
    ),
    *(F.logsigmoid, F.leaky_relu, F.hardtanh, F.tanhshrink, F.softsign, F.softshrink),
]
FUNCTIONS = {
    "activations": lambda x: sum(
        f(x)
        for f in ACTIVATIONS
    ),
    "softmaxes": lambda x: F.softmax(x, -1) + F.log_softmax(x, 1) + torch.logsumexp(x, -1, keepdim=True),
    "arithmetic": lambda x: torch.add(x, x**2, alpha=0.5) / (x.abs() + 1) - 2 / (3 + x * x) + (1 - x) ** 3,
    "rounding": lambda x: x.floor() + x.ceil() + x.trunc() + x.detach() // 0.7 + x % 0.3 + torch.fmod(x, 0.3),
    "functions": lambda x: x.sin() * x.cos() + x.tanh() + (x.abs() + 0.1).log() + x.exp() + torch.erf(x) + x.atan(),
    "reductions": lambda x: (
        x.sum(1, keepdim=True) + x.mean() + x.var(-1, keepdim=True) + x.std() + x.norm(dim=1, keepdim=True)
        + x.amax(-1, keepdim=True) + x.max(1, keepdim=True).values + x.prod(-1, keepdim=True) + x.min()
    ),
    "shapes": lambda x: torch.cat(
        [x.flatten(1), x.permute(0, 2, 1).reshape(x.shape[0], -1), x.flip(2).flatten(1), x.roll(1, 2).flatten(1)], 1
    ),
    "slices": lambda x: x[:, 1:, ::2] + x[:, :2, 2:] + x.select(2, -1)[:, 1:, None] + x.narrow(1, 0, 2)[..., :1],
    "splits": lambda x: sum(x.chunk(2, -1)) + x.split([1, 3], 2)[1][..., :2] + torch.stack(x.unbind(2), 2)[..., :2],
    "masks": lambda x: torch.where(x > 0, x, -x).masked_fill(x > 1, 0.5).clamp(0.1, 0.8) + x.tril() + x.triu(1),
    "indices": lambda x: x[:, torch.tensor([2, 0, 1])] + x.index_select(1, torch.tensor([0, 0, 2])) + x.gather(
        2, x.argsort(-1)
    ),
    "sorting": lambda x: x.sort(-1).values + x.topk(2, dim=-1).values.sum(-1, keepdim=True) + x.cumsum(1),
    "assignment": lambda x: _assigned(x),
    "scatter": lambda x: torch.zeros_like(x).scatter_add(1, (x[:, :2] > 0).long(), x[:, :2]),
    "einsum": lambda x: torch.einsum("bij,bkj->bik", x, x) @ x,
    "one_hot": lambda x: F.one_hot((x > 0).long().sum(-1), 5).float() * x.sum(-1, keepdim=True),
    "broadcasting": lambda x: x + torch.arange(4) * 0.1 + torch.linspace(0, 1, 3)[:, None] + torch.tensor(2.0).double(),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    "norms": lambda x: F.layer_norm(x, (4,)) + F.rms_norm(x, (4,)) + F.instance_norm(x) + F.normalize(x, dim=1),
    "detached": lambda x: x + (x.round() - x).detach(),
    "no_grad": lambda x: _without_gradient(x),
    "padding": lambda x: F.pad(x, (1, 2), value=3.0)[..., :4] + F.pad(x, (2, 1), mode="reflect")[..., :4]
    + F.pad(x, (1, 1), mode="replicate")[..., :4] + F.pad(x, (-1, 1)) + F.pad(x, (1, 1), mode="circular")[..., 1:5],
    "pooling1d": lambda x: F.avg_pool1d(x, 3, 2, 1) + F.max_pool1d(x, 2) + F.adaptive_avg_pool1d(x, 2)
    + F.avg_pool1d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False)[..., :2],
}  # fmt: skip


def _assigned(x):
    x = x.clone()
    x[:, 0] = x[:, 1] * 2
    x[:, :, 1] += 1
    x[:, 2:, -1] = 0.5
    return x


def _without_gradient(x):
    with torch.no_grad():
        scale = x.abs().mean()
    return x / scale


@pytest.mark.parametrize("name", [name for name in FUNCTIONS])
def test_operations_are_pytorchs(name):
    module, x = Words(FUNCTIONS[name]), RNG.normal(size=(5, 3, 4)).astype(np.float32)
    net = px.network(module)
    outputs, gradients = of_jax(net, x)
    wanted, wanted_gradients = of_torch(module, x)
    np.testing.assert_array_equal(of_jax(net, x)[0], outputs)  # traced again, with the program that was kept
    assert outputs.dtype == wanted.dtype
    assert_equal(outputs, wanted)
    assert_equal(gradients["scale"], wanted_gradients["scale"], 10)


class Images(Words):
    def forward(self, x):
        return self.function(x * self.scale[:, None, None]).flatten(1)


LAYERS = {
    "strided": lambda: nn.Conv2d(4, 6, 3, 2, 1),
    "grouped": lambda: nn.Conv2d(4, 6, (3, 1), padding="same", groups=2, dilation=2),
    "transposed": lambda: nn.ConvTranspose2d(4, 6, 3, 2, 1, output_padding=1),
    "transposed, grouped": lambda: nn.ConvTranspose2d(4, 6, 4, 2, 1, groups=2, dilation=2),
    "max-pooling": lambda: nn.MaxPool2d(3, 2, 1, ceil_mode=True),
    "average pooling": lambda: nn.AvgPool2d(3, 2, 1, ceil_mode=True),
    "adaptive pooling": lambda: nn.Sequential(nn.AdaptiveAvgPool2d((3, 5)), nn.AdaptiveMaxPool2d((2, 2))),
    "nearest": lambda: nn.Sequential(nn.Upsample(scale_factor=2), nn.Upsample(size=(11, 17))),
    "bilinear": lambda: nn.Sequential(nn.Upsample(scale_factor=1.5, mode="bilinear"), nn.PReLU(4)),
    "corners": lambda: nn.UpsamplingBilinear2d(size=(9, 5)),
    "shuffled": lambda: nn.Sequential(nn.PixelShuffle(2), nn.Dropout2d()),
    "bicubic": lambda: nn.Upsample(scale_factor=2, mode="bicubic"),
    "local response": lambda: nn.LocalResponseNorm(3),
    "unfolded": lambda: nn.Unfold(3),
}


@pytest.mark.parametrize("name", [name for name in LAYERS])
def test_layers_of_images_are_pytorchs(name):
    torch.manual_seed(0)
    module, x = Images(LAYERS[name]()).eval(), RNG.normal(size=(5, 4, 7, 8)).astype(np.float32)
    outputs, gradients = of_jax(px.network(module), x)
    wanted, wanted_gradients = of_torch(module, x)
    assert_equal(outputs, wanted)
    for path, gradient in gradients.items():
        assert_equal(gradient, wanted_gradients[path], 10)


class Recurrent(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        outputs, state = self.layer(x)
        state = torch.cat([s.sum(0) for s in (state if isinstance(state, tuple) else (state,))], -1)
        return torch.cat([outputs.sum(1), state], -1)


@pytest.mark.parametrize(
    "layer",
    [
        nn.GRU(4, 5, 2, batch_first=True, bidirectional=True),
        nn.RNN(4, 5, nonlinearity="relu", bias=False, batch_first=True),
        nn.LSTM(4, 5, 2, proj_size=3, batch_first=True),
    ],
    ids=["GRU", "RNN", "LSTM with projections"],
)
def test_recurrent_layers_are_pytorchs(layer):
    module, x = Recurrent(layer), RNG.normal(size=(5, 6, 4)).astype(np.float32)
    outputs, gradients = of_jax(px.network(module), x)
    wanted, wanted_gradients = of_torch(module, x)
    assert_equal(outputs, wanted)
    for path, gradient in gradients.items():
        assert_equal(gradient, wanted_gradients[path], 10)


# ----------------------------------------------------------------------------------------- what is read off a module


def test_axes_of_leaves_are_those_of_pytorchs_layouts():
    module, x = made("GroupNormCNN")
    leaves = {leaf.path: leaf for leaf in px.network(module, example=x).leaf_infos}
    assert (leaves["conv2/weight"].in_axes, leaves["conv2/weight"].out_axes) == ((1,), (0,))
    assert leaves["conv2/weight"].fan_in == 8 * 9
    assert (leaves["fc/weight"].in_axes, leaves["fc/weight"].out_axes, leaves["fc/weight"].fan_in) == ((1,), (0,), 16)
    assert leaves["conv2/bias"].is_bias
    module, x = made("LSTM")
    leaves = {leaf.path: leaf for leaf in px.network(module, example=x).leaf_infos}
    assert leaves["lstm/weight_hh_l0"].fan_in == 8 and leaves["lstm/weight_ih_l1"].fan_in == 16
    module, x = made("BERT")
    leaves = {leaf.path: leaf for leaf in px.network(module, example=x).leaf_infos}
    assert leaves["tokens/weight"].fan_in == 1
    assert leaves["encoder/layers/0/self_attn/in_proj_weight"].fan_in == 16


def test_noise_of_weights_is_per_example_where_a_layer_is_used_once():
    module, x = made("GroupNormCNN")
    posterior = px.fit(px.Problem(module, px.Categorical()), (x, np.arange(5) % 3), px.VI(q.Normal()), steps=1, key=0)
    assert not any("could not be traced" in note for note in posterior.trace.notes)


def test_dropout_follows_the_key_unless_it_was_switched_off():
    module, x = made("BERT")
    net = px.network(module)
    off, one, two = (np.asarray(net.apply(net.params, x, key=k)) for k in (None, KEY, jax.random.key(8)))
    assert np.abs(one - off).max() > 1e-3 and np.abs(one - two).max() > 1e-3
    assert_equal(off, copy.deepcopy(module).eval()(torch.tensor(x)).detach().numpy(), 10)
    still = px.network(module.eval())
    np.testing.assert_array_equal(still.apply(still.params, x, key=KEY), still.apply(still.params, x))


def test_tied_weights_are_one_leaf():
    module, _ = made("GPT")
    net = px.network(module)
    assert "lm_head/weight" not in leaf_names(net) and "wte/weight" in leaf_names(net)
    assert net.num_parameters == sum(weight.numel() for weight in module.parameters())


def test_frozen_parameters_are_fixed_unless_the_problem_says_otherwise():
    module, x = made("GroupNormCNN")
    for name, weight in module.named_parameters():
        weight.requires_grad = name.startswith("fc")
    problem = px.Problem(module, px.Categorical())
    assert problem.leaf_names == ["fc/bias", "fc/weight"]
    posterior = px.fit(problem, (x, np.arange(5) % 3), px.HMC(), draws=4, key=0)
    assert any("computed once" in note for note in posterior.trace.notes)
    draws = posterior.sample(0, 2)
    np.testing.assert_array_equal(draws["conv1"]["weight"][1], module.conv1.weight.detach().numpy())
    assert "norm2/weight" in px.Problem(module, px.Categorical(), fixed="conv1").leaf_names
    for weight in module.parameters():
        weight.requires_grad = False
    with pytest.raises(ValueError, match="all parameters of the PyTorch module GroupNormCNN have requires_grad=False"):
        px.network(module)


def test_one_program_serves_every_number_of_examples_unless_the_code_depends_on_it():
    class Counting(nn.Module):
        def __init__(self, divisor):
            super().__init__()
            self.fc, self.divisor, self.calls = nn.Linear(3, 2), divisor, 0

        def forward(self, x):
            self.calls += 1
            return self.fc(x) / self.divisor(x.shape[0])

    divisors = (lambda n: n, int, lambda n: 1 if n > 4 else 2, lambda n: 1 if n % 2 else 2)
    for divisor in divisors:
        module = Counting(divisor)
        net = px.network(module)
        for n in (1, 2, 7):
            x = RNG.normal(size=(n, 3)).astype(np.float32)
            assert_equal(net.apply(net.params, x), (module.fc(torch.tensor(x)) / divisor(n)).detach().numpy())
        assert divisor is not divisors[0] or module.calls <= 3


def test_precision_and_integers():
    torch.manual_seed(0)
    module, x = torch_modules.MLP(6, 8, 3), RNG.normal(size=(5, 6)).astype(np.float32)
    low = copy.deepcopy(module).to(torch.bfloat16)
    net = px.network(low)
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(net.params)} == {"bfloat16"}
    wanted = low(torch.tensor(x).to(torch.bfloat16)).float().detach().numpy()
    np.testing.assert_allclose(np.asarray(net.apply(net.params, x), np.float32), wanted, atol=0.02)  # bfloat16: 1/256
    double = px.network(copy.deepcopy(module).double())
    assert_equal(double.apply(double.params, x), module(torch.tensor(x)).detach().numpy())
    mixed = px.network(module, compute="bfloat16")
    np.testing.assert_allclose(mixed.apply(mixed.params, x), module(torch.tensor(x)).detach().numpy(), atol=0.02)
    bert, tokens = made("BERT")
    net = px.network(bert)
    np.testing.assert_array_equal(net.apply(net.params, tokens.astype(np.int32)), net.apply(net.params, tokens))
    with jax.enable_x64(True):
        double = px.network(copy.deepcopy(module).double())
        wanted = copy.deepcopy(module).double()(torch.tensor(x).double()).detach().numpy()
        np.testing.assert_allclose(double.apply(double.params, x.astype(np.float64)), wanted, rtol=1e-12)


def test_several_inputs_and_arguments_by_name():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 2), nn.Linear(4, 2)

        def forward(self, image, table, *, scale=1.0):
            return self.a(image) + scale * self.b(table)

    torch.manual_seed(0)
    module, a, b = Two(), RNG.normal(size=(5, 3)).astype(np.float32), RNG.normal(size=(5, 4)).astype(np.float32)
    wanted = module(torch.tensor(a), torch.tensor(b), scale=3.0).detach().numpy()
    net = px.network(module, call={"scale": 3.0})
    assert_equal(net.apply(net.params, (a, b)), wanted)
    assert_equal(net.apply(net.params, {"table": b, "image": a}), wanted)


# ------------------------------------------------------------------------------------------------- posteriors and back


@pytest.mark.parametrize("name", ["GroupNormCNN", "BERT", "LSTM"])
def test_every_kind_of_posterior_works_and_draws_predict_the_same_in_pytorch(name, tmp_path):
    module, x = made(name, 24)
    y = np.arange(24) % 3
    problem = px.Problem(module, px.Categorical(), p.HeNormal())
    mode = px.fit(problem, (x, y), px.MAP(), steps=2, batch_size=8, key=0)
    head = "!fc" if name != "BERT" else "!head"
    for fitted in (
        mode,
        px.fit(problem, (x, y), px.VI(q.Normal()), steps=2, batch_size=8, key=0),
        px.fit(problem, (x, y), px.VI({"**/weight": q.KTied(1), "**": q.Normal()}), steps=2, batch_size=8, key=0),
        px.fit(px.Problem(mode.network, px.Categorical(), fixed=head), (x, y), px.Laplace(), steps=2, key=0),
        px.fit(px.Problem(mode.network, px.Categorical(), fixed=head), (x, y), px.HMC(), draws=3, key=0),
    ):
        draws = fitted.sample(1, 2)
        for i, drawn in enumerate(px.to_torch(draws, module)):
            with torch.no_grad():
                wanted = drawn.eval()(torch.tensor(x)).numpy()
            computed = problem.network.apply(jax.tree.map(lambda a, i=i: jnp.asarray(a[i]), draws), jnp.asarray(x))
            assert_equal(np.asarray(computed), wanted, 10)
    mode.save(tmp_path / "run.posterior")
    for again in (px.load(tmp_path / "run.posterior", made(name)[0]), pickle.loads(pickle.dumps(mode))):
        np.testing.assert_array_equal(again.predict(x).probs, mode.predict(x).probs)


def test_to_torch_says_what_does_not_fit():
    module, _ = made("MLP")
    net = px.network(module)
    with pytest.raises(ValueError, match=r"leading axis of draws .* has shape \(8,\).*\. For one set of params add"):
        px.to_torch(net.params, module)
    with pytest.raises(ValueError, match=r"the module has no parameter 9\.weight"):
        px.to_torch({"9": {"weight": np.zeros((1, 2))}}, module)
    with pytest.raises(TypeError, match="module must be a PyTorch module, got Network"):
        px.to_torch(net.params, net)
    (filled,) = px.to_torch(jax.tree.map(lambda a: a[None] + 1, net.params), module)
    assert float((filled[0].weight - module[0].weight).detach().mean()) == pytest.approx(1, abs=1e-6)


# ----------------------------------------------------------------------------------------------------- what it refuses


class Deciding(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        return self.fc(x) if x.sum() > 0 else self.fc(-x)


class Untranslated(Deciding):
    def forward(self, x):
        return self.fc(x) + torch.linalg.eigvalsh(x.T @ x).sum()


class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sign()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class OwnGradient(Deciding):
    def forward(self, x):
        return Own.apply(self.fc(x))


def refused(module, x=np.ones((5, 3), np.float32)):
    with pytest.raises((ValueError, NotImplementedError)) as caught:
        px.Problem(module, px.Categorical()).check((x, np.zeros(len(x), int)))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_cannot_be_translated_is_named_in_a_line():
    said = refused(Deciding())
    assert "Deciding decides by the values of its inputs" in said and "if x.sum() > 0" in said and "torch.where" in said
    said = refused(Untranslated())
    assert "_linalg_eigh" in said and "does not translate" in said and "torch.linalg.eigvalsh(x.T @ x)" in said
    assert "the autograd function Own, which has a gradient of its own" in refused(OwnGradient())
    said = refused(nn.Linear(4, 2))
    assert "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x2)" in said
    images = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.LazyLinear(2))
    images(torch.zeros(1, 3, 8, 8))
    said = refused(images, np.zeros((5, 8, 8, 3), np.float32))
    assert "channels first: px.network(net, inputs=px.data.channels_first)" in said


@pytest.mark.slow
def test_the_page_runs_as_pasted():
    page = Path(__file__).parents[2] / "docs" / "pytorch.md"
    space = {}
    for code in re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE):
        exec(code, space)
    assert float(space["probs"].sum(-1).std()) < 1e-6
