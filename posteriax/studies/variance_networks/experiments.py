"""The experiments: accuracies of a network and what its variance layer needs for them, curvature, attacks, a toy.

    kappa = sigma^2 d2(-log p(D | w)) / dw^2               at the means, scaled to the size of the training set, in nats
    x <- clip(x + step sign(d log p(t | x, D) / dx))       a targeted attack; t: the label after the true one

Weights outside of the variance layers are point estimates under N(0, 1). A short run passes through the phase
transition, which takes the paper's runs many thousands of steps, because log alpha is held first, so that the means
learn, and then has a large rate and an Adam with a short memory of squared gradients (b2): the gradient of the KL
falls as 1 / alpha, and with the usual memory of a thousand steps the first gradients would keep all later steps
small. If log alpha rises slowly instead, the weights keep signs that agree within a unit, and the means go on
predicting well although the noise does too.

Every iteration of an attack is against new draws of the weights, and its result is predicted with draws that it has not
seen. The toy problem is four Gaussians in the plane, and a network whose only way from inputs to outputs is two
zero-mean units,

    x -> four layers of 100 -> b_j = eps_j sqrt(sum_i a_i^2 sigma_ij^2), j = 1, 2 -> one layer of 100 -> four classes

where nothing but the standard deviations of the two units can tell the classes apart."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from posteriax import analysis, zoo
from posteriax import families as q
from posteriax import priors as p
from posteriax.data import RandomCrop, RandomFlip
from posteriax.evaluation import FGSM
from posteriax.families import DiagonalGaussian
from posteriax.likelihoods import Categorical
from posteriax.methods import VI
from posteriax.posterior import Posterior, VariationalPosterior
from posteriax.problem import Problem
from posteriax.run import Watch
from posteriax.studies.results import Json
from posteriax.studies.study import Cell
from posteriax.studies.variance_networks.settings import VarianceSettings
from posteriax.studies.workbench import Examples, Workbench, join_members
from posteriax.zoo.layers import BatchNorm, Conv, Dense, max_pool

Families = dict[str, q.Family]  # by pattern of the leaves' paths
LAYER = "dense/weight"  # the first dense layer, in LeNet-5 and in the VGG-like network
STUDENT_DF = 1e-16
ADDITIVE_SCALE = 2e-3  # with weights of about 0.02, alpha starts near exp(-5), as in the other parameterisations
# the coarse label of each fine one: what the paper calls CIFAR-100 has these 20 labels
COARSE = (
    *(4, 1, 14, 8, 0, 6, 7, 7, 18, 3, 3, 14, 9, 18, 7, 11, 3, 9, 7, 11, 6, 11, 5, 10, 7, 6, 13, 15, 3, 15, 0, 11, 1),
    *(10, 12, 14, 16, 9, 11, 5, 5, 19, 8, 8, 15, 13, 14, 17, 18, 10, 16, 4, 17, 4, 2, 0, 17, 4, 18, 17, 10, 3, 2, 12),
    *(12, 16, 12, 1, 9, 19, 2, 10, 0, 1, 16, 12, 9, 13, 15, 13, 16, 19, 2, 4, 6, 19, 5, 5, 8, 19, 18, 1, 2, 15, 6, 0),
    *(17, 8, 14, 13),
)
WATCHED_DRAWS = 10
THRESHOLD = 10**1.5  # the paper's kappa_0
EDGES = np.arange(-14.0, 8.0)  # of the histogram of log10 |kappa|; values outside count in the first or last bin
CENTRES = np.array([[3, 3], [3, 10], [10, 3], [10, 10]], np.float32)
TOY_DRAWS = 101
SHOWN = 25  # points per class whose standard deviations are kept for the figure


class VarianceLayer(NamedTuple):
    """How the weights of the variance layers are distributed, their prior, and the activation behind the dense one."""

    family: q.Family
    prior: p.Prior
    activation: Callable[[jax.Array], jax.Array] = jax.nn.relu


def layer(method: str, settings: VarianceSettings) -> VarianceLayer:
    """The layer that a method is named after."""
    start = settings.log_alpha
    return {
        "layer": VarianceLayer(q.MultiplicativeNormal("layer", start), p.LogUniform()),
        "neuron": VarianceLayer(q.MultiplicativeNormal("neuron", start), p.LogUniform()),
        "weight": VarianceLayer(q.MultiplicativeNormal("weight", start), p.LogUniform()),
        "additive": VarianceLayer(q.Normal(ADDITIVE_SCALE), p.LogUniform()),
        "student-t": VarianceLayer(q.MultiplicativeNormal("layer", start), p.StudentT(df=STUDENT_DF)),
        "softplus": VarianceLayer(q.MultiplicativeNormal("layer", start), p.LogUniform(), jax.nn.softplus),
        # a ReLU would drop half of the units of a zero-mean layer at random
        "zero-mean": VarianceLayer(q.ZeroMeanNormal(), p.LogUniform(), jnp.abs),
        "dropout": VarianceLayer(q.Point(), p.Normal(scale=1.0)),
    }[method]


def load_images(
    bench: Workbench, name: str, examples: int, test: int, seed: int | None = None
) -> tuple[Examples, Examples]:
    """The first training and test examples (0: all), with an axis of channels and pixels in [0, 1].

    With a seed, a random part of the training examples in place of the first.
    """
    loaded = bench.load(name)
    both = []
    for (x, y), count in ((loaded.train, examples), (loaded.test, test)):
        if seed is not None and x is loaded.train[0]:
            order = np.random.default_rng((seed, 8)).permutation(len(y))[: count or None]
            x, y = x[order], y[order]
        x, y = x[: count or None], y[: count or None]
        x = x[..., None] if x.ndim == 3 else x
        both.append((x, np.asarray(COARSE, np.int32)[y] if name.endswith("cifar100") else y))
    return both[0], both[1]


class NormalisedLeNet(eqx.Module):
    """LeNet-5 with batch normalisation between its first dense layer and the activation behind it."""

    convolutions: list[Conv]
    dense: Dense
    norm: BatchNorm
    out: Dense
    activation: Callable[[jax.Array], jax.Array] = eqx.field(static=True)

    def __init__(self, channels: tuple[int, int], hidden: int, activation: Any, *, key: jax.Array):
        net = zoo.lenet5(channels=channels, hidden=hidden, activation=activation, key=key)
        self.convolutions, self.dense, self.out, self.activation = net.convolutions, net.dense, net.out, activation
        self.norm = BatchNorm(hidden, epsilon=1e-3)

    def __call__(self, x: jax.Array, state: eqx.nn.State) -> tuple[jax.Array, eqx.nn.State]:
        for convolution in self.convolutions:
            x = max_pool(jax.nn.relu(convolution(x)))
        hidden, state = self.norm(self.dense(x.reshape(-1)), state)
        return self.out(self.activation(hidden)), state


def lenet_problem(
    method: str, settings: VarianceSettings, seed: int, *, table: bool = False
) -> tuple[Problem, Families]:
    """LeNet-5 and the families of its leaves; `table` for the network of the accuracy table."""
    chosen = layer(method, settings)
    layers = settings.variance_layers if table and method == "layer" else LAYER
    channels = settings.channels if table else settings.subset_channels
    hidden = settings.hidden if table else settings.subset_hidden
    key = jax.random.key(seed)
    net: Any
    # the likelihood must have second derivatives example by example where softplus is used, and |.| needs a mean of 0
    if settings.batch_norm and chosen.activation is jax.nn.relu:
        net = eqx.nn.make_with_state(NormalisedLeNet)(channels, hidden, chosen.activation, key=key)
    else:
        net = zoo.lenet5(channels=channels, hidden=hidden, activation=chosen.activation, key=key)
    families: Families = {"**": q.Point(), layers: chosen.family}
    if method == "dropout":
        families["out/weight"] = q.Dropout(0.5)  # of the hidden units
    return Problem(net, Categorical(), {"**": p.Normal(scale=1.0), layers: chosen.prior}), families


def vgg_problem(method: str, classes: int, settings: VarianceSettings, seed: int) -> tuple[Problem, Families]:
    """The VGG-like network: dropout of 0.3 to 0.5, or variance layers in its last stage and its dense layer.

    Dropout removes whole channels of a convolution here, single activations in the paper.
    """
    chosen = layer(method, settings)
    net = zoo.vgg_like(width=settings.vgg_width, classes=classes, key=jax.random.key(seed))
    families: Families = {"**": q.Point(), "out/weight": q.Dropout(0.5)}
    for stage, (rate, count) in enumerate(((0.3, 2), (0.4, 2), (0.4, 3), (0.4, 3))):
        families |= {f"convolutions/{stage}/{i}/weight": q.Dropout(rate) for i in range(1, count)}
    if method == "dropout":
        families[LAYER] = q.Dropout(0.5)
        return Problem(net, Categorical(), p.Normal(scale=1.0)), families
    variance = (LAYER,) if method == "zero-mean" else (LAYER, "convolutions/4/*/weight")
    families |= dict.fromkeys(variance, chosen.family)
    prior = {"**": p.Normal(scale=1.0)} | dict.fromkeys(variance, chosen.prior)
    return Problem(net, Categorical(), prior), families


def rates(method: str, settings: VarianceSettings, steps: int) -> optax.GradientTransformation:
    """Adam with rates that fall to 0 linearly, and one of its own for log alpha or log scales."""
    zero_mean = method == "zero-mean"  # log scales, with no transition to pass
    free = {"weight": settings.free_rate, "additive": settings.free_rate / 2}  # log alpha is twice a log scale
    noise = settings.scale_rate if zero_mean else free.get(method, settings.noise_rate)
    held = 0 if zero_mean else settings.held * steps

    def falling(rate: float, start: float = 0) -> optax.Schedule:
        return lambda step: jnp.where(step < start, 0.0, rate * (1 - step / steps))

    quick = optax.adam(falling(noise, held), b1=settings.momentum, b2=settings.memory)
    slow = optax.adam(falling(settings.rate), b1=settings.momentum)

    def kinds(tree: Any) -> Any:
        named = {"log_alpha": "noise", "log_scale": "noise"}
        return {leaf: {name: named.get(name, "weights") for name in params} for leaf, params in tree.items()}

    return optax.multi_transform({"noise": quick, "weights": slow}, kinds)


def train(
    bench: Workbench,
    method: str,
    problem: Problem,
    families: Families,
    examples: Examples,
    settings: VarianceSettings,
    *,
    epochs: int,
    batch_size: int,
    key: int,
    watch: Callable[[Posterior], dict[str, float]] | None = None,
) -> VariationalPosterior:
    """A fit by variational inference, with the local reparameterisation of dense layers."""
    steps = epochs * -(-len(examples[1]) // batch_size)
    return bench.fit_variational(
        problem,
        examples,
        VI(families, optimizer=rates(method, settings, steps)),
        epochs=epochs,
        batch_size=batch_size,
        key=key,
        watch=None if watch is None else Watch(watch, every=max(1, steps // settings.watched)),
        augment=(RandomCrop(4), RandomFlip()) if examples[0].shape[-1] == 3 else None,
    )


def run_accuracy(cell: Cell, settings: VarianceSettings, bench: Workbench) -> dict[str, Json]:
    """One row of the accuracy table, or one parameterisation."""
    method, name, table = cell["method"], cell["data"], cell["experiment"] == "accuracy"
    sizes = (settings.examples, settings.test) if table else (settings.subset, settings.subset_test)
    training, test = load_images(bench, name, *sizes, cell.seed if settings.own_images else None)
    epochs = settings.dropout_epochs if method == "dropout" else settings.epochs
    batch_size = settings.batch_size
    if not table:
        epochs, batch_size = settings.subset_epochs, settings.subset_batch
    if cell["network"] == "VGG":
        classes = 100 if name.endswith("cifar100") else 10  # with coarse labels too, as in the paper
        problem, families = vgg_problem(method, classes, settings, cell.seed)
        epochs = settings.vgg_epochs
    else:
        problem, families = lenet_problem(method, settings, cell.seed, table=table)
    watch = watched_accuracies(test, settings) if method == "layer" else None
    schedule: dict[str, Any] = {"epochs": epochs, "batch_size": batch_size, "key": cell.seed}
    posterior = train(bench, method, problem, families, training, settings, **schedule, watch=watch)
    measured = measure(posterior, training, test, settings)
    return measured if watch is None else measured | {"curve": curve(posterior)}


def watched_accuracies(test: Examples, settings: VarianceSettings) -> Any:
    """What is measured along a run, on some of the test examples."""
    few = settings.watched_test or None
    return analysis.accuracies((test[0][:few], test[1][:few]), draws=min(settings.draws, WATCHED_DRAWS))


def measure(
    posterior: VariationalPosterior, training: Examples, test: Examples, settings: VarianceSettings
) -> dict[str, Json]:
    """Accuracies, and for a variance layer: log alpha, the ELBO, and the accuracies without means and with shuffled
    variances."""
    x, y = test
    predictive: Any = posterior.predict(x, settings.draws)
    fixed: Any = analysis.at_mean(posterior).predict(x)
    measured = {
        "stochastic": (predictive.log_probs_per_draw.argmax(axis=-1) == y).mean(),
        "deterministic": (fixed.probs.argmax(axis=-1) == y).mean(),
        "ensemble": (predictive.probs.argmax(axis=-1) == y).mean(),
        "above_chance": above_chance(np.asarray(fixed.probs.argmax(axis=-1)), np.asarray(y)),
    }
    family = posterior.families[LAYER]
    if isinstance(family, DiagonalGaussian):
        mean, scale = (np.asarray(a[0]) for a in _moments(posterior, family))
        measured["log_alphas"] = log_alphas(posterior)
        if mean.any():
            measured["log_alpha"] = np.median(2 * np.log(scale[mean != 0] / np.abs(mean[mean != 0])))
        measured |= elbo(posterior, training, settings)
        few = slice(settings.subset_test or None)
        measured["kept"] = (predictive.probs[few].argmax(axis=-1) == y[few]).mean()
        for name, change in (("without_means", analysis.zero_mean), ("shuffled", analysis.permute)):
            measured[name] = ensemble_accuracy(change(posterior, LAYER), (x[few], y[few]), settings.draws)
    return measured


def log_alphas(posterior: VariationalPosterior) -> dict[str, float]:
    """The median log alpha of every layer that has one."""
    found = {}
    for name, params in posterior.variational.items():
        if "log_alpha" in params:
            found[name] = float(np.median(np.asarray(params["log_alpha"])))
    return found


def above_chance(predicted: np.ndarray, y: np.ndarray) -> float:
    """How far an accuracy is above that of guessing labels as often as they are predicted, in standard errors.

    A constant prediction is exactly at chance, whichever class it is.

    >>> above_chance(np.zeros(10, int), np.arange(10))
    0.0
    """
    classes = range(int(max(predicted.max(), y.max())) + 1)
    chance = sum((predicted == c).mean() * (y == c).mean() for c in classes)
    error = np.sqrt(chance * (1 - chance) / len(y))
    return float(((predicted == y).mean() - chance) / error) if error > 0 else 0.0


def elbo(posterior: VariationalPosterior, training: Examples, settings: VarianceSettings) -> dict[str, float]:
    """The ELBO on the training set, in nats, with the KL of the variance layer alone: other weights are points.

    Its expected log-likelihood is that of some examples, times the size of the training set over their number.
    """
    x, y = (part[: settings.elbo_examples] for part in training)
    predictive: Any = posterior.predict(x, settings.draws)
    log_probs = predictive.log_probs_per_draw[:, np.arange(len(y)), y]
    index = posterior.problem.leaf_names.index(LAYER)
    prior = posterior.problem.leaf_priors[index]
    kl = _layer_kl(posterior, prior)
    likelihood = len(training[1]) * float(np.asarray(log_probs, np.float64).mean())
    return {"elbo": likelihood - kl, "kl": kl}


def _layer_kl(posterior: VariationalPosterior, prior: Any) -> float:
    family, params = posterior.families[LAYER], posterior.variational[LAYER]
    return float(family.kl(jax.tree.map(lambda a: a[0], params), prior, jax.random.key(0)))


def _moments(posterior: VariationalPosterior, family: DiagonalGaussian) -> Any:
    return jax.vmap(family.moments)(posterior.variational[LAYER])


def ensemble_accuracy(posterior: Posterior, test: Examples, draws: int) -> float:
    """Accuracy of the average over draws."""
    predictive: Any = posterior.predict(test[0], draws)
    return float((predictive.probs.argmax(axis=-1) == test[1]).mean())


def curve(posterior: Posterior) -> dict[str, Json]:
    """The accuracies along the run."""
    phases = analysis.phase_transition(posterior)
    return {
        "step": phases.steps,
        "stochastic": phases.stochastic,
        "deterministic": phases.deterministic,
        "ensemble": phases.ensemble,
        "log_alpha": phases.log_alpha,
        "transition": phases.transition,
    }


def run_curvature(cell: Cell, settings: VarianceSettings, bench: Workbench) -> dict[str, Json]:
    """LeNet-5 with softplus behind its variance layer, so that the likelihood has second derivatives."""
    own = cell.seed if settings.own_images else None
    training, test = load_images(bench, cell["data"], settings.subset, settings.subset_test, own)
    accuracy = watched_accuracies(test, settings)

    def watch(posterior: Any) -> dict[str, float]:
        return accuracy(posterior) | _summary(_kappa(posterior, training, settings))

    problem, families = lenet_problem("softplus", settings, cell.seed)
    posterior = train(
        bench,
        "softplus",
        problem,
        families,
        training,
        settings,
        epochs=settings.subset_epochs,
        batch_size=settings.subset_batch,
        key=cell.seed,
        watch=watch,
    )
    trace, kappa = posterior.trace, analysis.kappa(posterior, _first(training, settings), LAYER)
    accuracy_by_share: dict[str, list[float]] = {"zero": [], "mean": [], "random": []}
    shuffled = shuffle_kappa(kappa, cell.seed)
    for share in settings.shares:
        threshold = kappa.threshold(keep=1 - share)
        for rest, values in accuracy_by_share.items():
            chosen, value = (shuffled, "zero") if rest == "random" else (kappa, rest)
            sparse = analysis.sparse_ensemble(posterior, chosen, threshold, value).posterior  # type: ignore[arg-type]
            values.append(ensemble_accuracy(sparse, test, settings.draws))
    return {
        "curve": curve(posterior) | {"above": trace["above"]},
        "histograms": np.stack([trace[name] for name in _bins()], axis=1),
        "ensemble": ensemble_accuracy(posterior, test, settings.draws),
        "removed": settings.shares,
        **accuracy_by_share,
    }


def shuffle_kappa(kappa: analysis.Kappa, seed: int) -> analysis.Kappa:
    """The same values in random order: as many weights are removed, but not those that matter least."""
    rng = np.random.default_rng((seed, 9))
    leaves = {name: rng.permutation(values.ravel()).reshape(values.shape) for name, values in kappa.items()}
    return replace(kappa, leaves=leaves)


def _first(training: Examples, settings: VarianceSettings) -> Examples:
    return training[0][: settings.kappa_examples], training[1][: settings.kappa_examples]


def _kappa(posterior: Any, training: Examples, settings: VarianceSettings) -> np.ndarray:
    few = _first(training, settings)
    return np.abs(analysis.kappa(posterior, few, LAYER)[LAYER]) * len(training[1]) / len(few[1])


def _bins() -> list[str]:
    return [f"kappa_{i:02d}" for i in range(len(EDGES) - 1)]


def _summary(values: np.ndarray) -> dict[str, float]:
    """The share of weights above the threshold and in each bin of the histogram; zeros are in the first.

    >>> summary = _summary(np.array([0.0, 1e-20, 2.0, 1e3]))
    >>> summary["above"], summary["kappa_00"], summary["kappa_14"]
    (0.25, 0.5, 0.25)
    """
    logs = np.log10(np.maximum(values.reshape(-1), 1e-25))
    counts, _ = np.histogram(np.clip(logs, EDGES[0], EDGES[-1]), EDGES)
    return {"above": float((values > THRESHOLD).mean())} | dict(
        zip(_bins(), (counts / values.size).tolist(), strict=True)
    )


def run_attack(cell: Cell, settings: VarianceSettings, bench: Workbench) -> dict[str, Json]:
    """Success rates and entropies by iteration, for five ways to predict."""
    name = cell["data"]
    own = cell.seed if settings.own_images else None
    training, test = load_images(bench, name, settings.subset, settings.attacked, own)
    short = settings.attack_epochs or settings.subset_epochs
    trained = {}
    for method in ("dropout", "layer"):
        members = []
        for member in range(settings.members):
            key = settings.members * cell.seed + member
            if cell["network"] == "VGG":
                (problem, families), epochs = vgg_problem(method, 10, settings, key), settings.vgg_epochs
            else:
                (problem, families), epochs = lenet_problem(method, settings, key), short
            schedule: dict[str, Any] = {"epochs": epochs, "batch_size": settings.subset_batch}
            members.append(train(bench, method, problem, families, training, settings, **schedule, key=key))
        trained[method] = members
    predictors: dict[str, Posterior] = {
        "dropout, means": analysis.at_mean(trained["dropout"][0]),
        "dropout": trained["dropout"][0],
        "deep ensemble": analysis.at_mean(join_members(trained["dropout"])),
        "variance": trained["layer"][0],
        "variance ensemble": join_members(trained["layer"]),
    }
    return {name: attacked(posterior, test, settings) for name, posterior in predictors.items()}


def attacked(posterior: Posterior, test: Examples, settings: VarianceSettings) -> dict[str, Json]:
    """Success rate, accuracy and mean predictive entropy in nats after each iteration; 0 is the clean images."""
    (x, y), attack = test, FGSM(settings.step, target="next", draws=settings.attack_draws)
    success, accuracy, entropy, open_to_attack = [], [], [], None
    for iteration in range(settings.iterations + 1):
        step = attack.run(posterior, x, y, key=iteration)
        labels, target = step.labels[0], np.asarray(step.target)
        open_to_attack = labels != target if open_to_attack is None else open_to_attack
        success.append((labels == target)[open_to_attack].mean())
        accuracy.append((labels == step.y).mean())
        entropy.append(step.entropies[0].mean())
        x = step.x
    return {"success": success, "accuracy": accuracy, "entropy": entropy}


class TwoUnits(eqx.Module):
    """Dense layers with leaky ReLU, and two units in their middle."""

    before: list[Dense]
    variance: Dense
    after: Dense
    out: Dense

    def __init__(self, width: int, *, key: Any):
        keys = jax.random.split(key, 7)
        sizes = (2, width, width, width, width)
        self.before = [Dense(n, m, key=k) for n, m, k in zip(sizes[:-1], sizes[1:], keys[:4], strict=True)]
        self.variance = Dense(width, 2, bias=False, key=keys[4])
        self.after, self.out = Dense(2, width, key=keys[5]), Dense(width, 4, key=keys[6])

    def features(self, x: jax.Array) -> jax.Array:
        for layer in self.before:
            x = jax.nn.leaky_relu(layer(x))
        return x

    def __call__(self, x: jax.Array) -> jax.Array:
        hidden = jax.nn.leaky_relu(self.variance(self.features(x)))
        return self.out(jax.nn.leaky_relu(self.after(hidden)))


def four_gaussians(points: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """So many points per class with unit covariance around the four centres."""
    y = np.repeat(np.arange(4, dtype=np.int32), points)
    noise = np.random.default_rng(seed).standard_normal((len(y), 2))
    return (CENTRES[y] + noise).astype(np.float32), y


def run_toy(cell: Cell, settings: VarianceSettings, bench: Workbench) -> dict[str, Json]:
    """Accuracies on new points, and the standard deviations of the two units at some of them."""
    training, (x, y) = four_gaussians(settings.toy_points, cell.seed), four_gaussians(settings.toy_points, 1000)
    net = TwoUnits(settings.toy_width, key=jax.random.key(cell.seed))
    weights = "variance/weight"
    problem = Problem(net, Categorical(), {"**": p.Normal(scale=1.0), weights: p.LogUniform()})
    rate = optax.linear_schedule(settings.toy_rate, 0.0, settings.toy_steps)
    posterior = bench.fit_variational(
        problem,
        training,
        VI({"**": q.Point(), weights: q.ZeroMeanNormal()}, optimizer=optax.adam(rate)),
        steps=settings.toy_steps,
        batch_size=len(training[1]),
        key=cell.seed,
    )
    predictive: Any = posterior.predict(x, TOY_DRAWS)
    fixed: Any = analysis.at_mean(posterior).predict(x)
    scales = jnp.exp(jnp.asarray(posterior.variational[weights]["log_scale"][0]))
    shown = np.concatenate([np.flatnonzero(y == label)[:SHOWN] for label in range(4)])
    features = jax.vmap(posterior.network.params.features)(jnp.asarray(x[shown]))
    return {
        "stochastic": (predictive.log_probs_per_draw.argmax(axis=-1) == y).mean(),
        "deterministic": (fixed.probs.argmax(axis=-1) == y).mean(),
        "above_chance": above_chance(np.asarray(fixed.probs.argmax(axis=-1)), y),
        "ensemble": (predictive.probs.argmax(axis=-1) == y).mean(),
        "deviations": jnp.sqrt(jnp.square(features) @ jnp.square(scales)),
        "labels": y[shown],
    }
