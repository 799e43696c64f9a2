"""The figures of docs/gallery.md, from fits on the data that ship with posteriax. About ten minutes on two cores.

    python examples/gallery.py [FOLDER [NAME ...]]

Each figure is one function, which prints the numbers it shows. FOLDER is docs/gallery by default; NAMEs choose some.
"""

import sys
import time
from pathlib import Path

import equinox as eqx
import jax
import matplotlib
import numpy as np
import optax

import posteriax as px
from posteriax import families as q
from posteriax import priors as p
from posteriax._internal.plot_style import PALETTE, subplots

matplotlib.use("Agg")
FOLDER = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "docs" / "gallery"
KEY = jax.random.key(0)
(images, y), (images_test, y_test) = px.data.fashion_small()
images, images_test = (a.reshape(len(a), -1) for a in (images, images_test))  # pixels in [0, 1]


def save(figure, name: str) -> None:
    figure.savefig(FOLDER / f"{name}.png", dpi=110)
    print(f"  {name}.png", flush=True)


def product_matrices() -> None:
    """Independent weights, correlated products."""
    # 4 x 4 averages of the images: a whole network is then a matrix of 10 x 16
    small, small_test = (a.reshape(-1, 4, 7, 4, 7).mean(axis=(2, 4)).reshape(-1, 16) for a in (images, images_test))
    figure, (axes,) = subplots(1, 4, 4.4, 4.0)
    for axis, layers in zip(axes, (1, 2, 5, 5), strict=True):
        activation = leaky if axis is axes[3] else linear
        net = eqx.nn.MLP(16, 10, 16, layers - 1, activation, use_bias=False, use_final_bias=False, key=KEY)
        problem = px.Problem(net, px.Categorical(), prior=p.Normal(scale=0.23))
        posterior = px.fit(problem, (small, y), px.VI(q.Normal(0.05)), epochs=60, key=0)
        if activation is linear:
            product = px.analysis.product_matrix(posterior, "layers/*/weight")
            product.plot(axis, limit=0.5)
            axis.set_xlabel(f"{layers} linear layer{'s' if layers > 1 else ''}")
        else:
            local = px.analysis.local_product_matrix(posterior, small_test[0], draws=10_000)
            product = local.moments
            local.plot(axis, limit=0.5)
            axis.set_xlabel(f"{layers} layers with leaky ReLU, at one image")
            error = np.abs(local.offsets).max()
            print(f"  {local.distinct_patterns} activation patterns in 10,000 draws; |y - P x| at most {error:.1e}")
        print(
            f"  {layers} layers: {product.correlated_share():.1%} of pairs correlate beyond 0.05; "
            f"{product.outside_share:.1%} of the covariance is outside rows and columns"
        )
    save(figure, "product_matrices")


def linear(x):
    return x


def leaky(x):
    return jax.nn.leaky_relu(x, 0.1)


def mean_field_cost() -> None:
    """One, two and three hidden layers with some 55 weights each, sampled with NUTS."""
    train, _ = px.data.two_moons(train=100)
    figure, (axes,) = subplots(1, 2, 3.6, 3.4)
    costs = {}
    for depth, width in ((1, 10), (2, 5), (3, 4)):
        net = eqx.nn.MLP(2, 2, width, depth, key=KEY)
        posterior = px.fit(px.Problem(net, px.Categorical()), train, px.NUTS(), draws=2000, chains=6, key=0)
        costs[depth] = px.analysis.mean_field_cost(posterior)
        print(f"  {depth} hidden layers: {str(costs[depth]).replace(chr(10), '; ')}")
    for axis, name, label in ((axes[0], "kl_excess", "$E_{KL}$ less its null (nats)"), (axes[1], "w_excess", "$E_W$")):
        values = np.array([getattr(cost, name) for cost in costs.values()])
        axis.errorbar(
            list(costs), values[:, 0], [values[:, 0] - values[:, 1], values[:, 2] - values[:, 0]], fmt="o-", capsize=4
        )
        axis.set(xlabel="hidden layers", ylabel=label, xticks=list(costs))
        axis.set_ylim(bottom=min(0.0, values[:, 1].min()))
    save(figure, "mean_field_cost")
    save(costs[1].plot(), "mean_field_cost_restarts")


def spectra_and_signal() -> None:
    """Standard deviations of rank two, and the gradients that tied ones get."""
    x, x_test = 2 * images - 1, 2 * images_test - 1
    net = eqx.nn.MLP(784, 10, 100, 2, key=KEY)
    problem = px.Problem(net, px.Categorical(), prior=p.Normal(scale=0.2))
    record = px.run.GradientNoise(window=10, every=50)
    fitted = {
        name: px.fit(problem, (x, y), px.VI(family), epochs=200, key=0, record=record)
        for name, family in {"mean-field": q.Normal(), "KTied(2)": q.KTied(2)}.items()
    }
    spectra = px.analysis.spectra(fitted["mean-field"])
    for name, spectrum in spectra.items():
        shares = " ".join(f"{share:.3f}" for share in spectrum.scale_explained[:3])
        print(f"  {name}: scales {shares}; means {spectrum.mean_explained[:3].sum():.3f} in the first three")
    save(spectra.plot(), "spectra")
    save(px.analysis.spectra(fitted["mean-field"], "layers/1/weight").plot_approximations(), "approximations")
    table = px.analysis.truncation_table(fitted["mean-field"], (x_test, y_test), train=(x, y))
    print(table)
    save(table.plot(), "truncation")
    figure, ((axis,),) = subplots(1, 1, 5.0, 3.4)
    for colour, (name, posterior) in zip(PALETTE, fitted.items(), strict=False):
        signal = px.analysis.gradient_noise(posterior)
        scales = [leaf for leaf in signal.paper if leaf.startswith("layers/1/weight/") and not leaf.endswith("mean")]
        for style, leaf in zip(("-", "--"), scales, strict=False):
            label = f"{name}, {leaf.rsplit('/', 1)[1].replace('_', ' ')}"
            axis.plot(signal.steps, signal.pooled[leaf], style, color=colour, label=label)
        ratios = (f"{leaf} {signal.pooled[leaf][1]:.3g} (averaged {signal.paper[leaf][1]:.3g})" for leaf in scales)
        print(f"  {name} at step {signal.steps[1]}: {', '.join(ratios)}")
    axis.axhline(1.0, color="0.6", linewidth=1)
    axis.set(yscale="log", xlabel="step", xlim=(0, 2000), ylabel="signal to noise of the scales, layer 2")
    axis.legend(frameon=False, fontsize="small")
    save(figure, "gradient_noise")


def variance_network() -> None:
    """A layer loses its means, but not its information."""
    middle = "layers/1/weight"
    net = eqx.nn.MLP(784, 10, 100, 2, key=KEY)
    problem = px.Problem(net, px.Categorical(), {"**": p.Normal(scale=1.0), middle: p.LogUniform()})
    # the single log alpha of the layer has a noisy gradient and far to go, so it gets its own learning rate
    rates = {"log_alpha": optax.adam(0.3), "other": optax.adam(optax.linear_schedule(3e-3, 1e-4, 12_000))}
    label = lambda tree: {  # noqa: E731
        leaf: {name: name if name == "log_alpha" else "other" for name in params} for leaf, params in tree.items()
    }
    families = {"**": q.Point(), middle: q.MultiplicativeNormal("layer")}
    method = px.VI(families, optimizer=optax.multi_transform(rates, label))
    watch = px.run.Watch(px.analysis.accuracies((images_test, y_test), draws=50), every=100)
    posterior = px.fit(problem, (images, y), method, epochs=1000, batch_size=256, key=0, watch=watch)
    transition = px.analysis.phase_transition(posterior)
    print(f"  the means are lost from step {transition.transition}")
    save(transition.plot(), "phase_transition")
    kappa = px.analysis.kappa(posterior, (images, y), middle)
    threshold = kappa.threshold(keep=0.1)
    save(kappa.plot(threshold), "kappa")
    figure, ((axis,),) = subplots(1, 1, 5.0, 3.2)
    shares = np.array([0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999])
    for colour, rest in zip(PALETTE, ("zero", "mean"), strict=False):
        random, accuracy = [], []
        for share in shares:
            sparse = px.analysis.sparse_ensemble(posterior, kappa, kappa.threshold(keep=1 - share), rest)
            random.append(1 - sparse.removed)
            accuracy.append(px.evaluate(sparse.predict(images_test, draws=100), y_test)["accuracy"])
        print(f"  set to {rest}: " + ", ".join(f"{s:.1%} {a:.3f}" for s, a in zip(shares, accuracy, strict=True)))
        axis.plot(
            np.log10(random),
            accuracy,
            "o-",
            color=colour,
            label=f"the others set to {rest}" if rest == "zero" else "the others set to their mean",
        )
    sparse = px.analysis.sparse_ensemble(posterior, kappa, threshold)
    print("  " + str(sparse).replace("\n", "; "))
    axis.set(xlabel="log10 of the share of weights that stay random", ylabel="ensemble accuracy", ylim=(0, 1))
    axis.legend(frameon=False, fontsize="small")
    save(figure, "sparse_ensemble")


def score_variance() -> None:
    """What a rank-1 perturbation does to the likelihood of single examples."""
    train, test = px.data.two_moons()
    problem = px.Problem(eqx.nn.MLP(2, 2, 16, 2, jax.nn.softplus, key=KEY), px.Categorical())
    posterior = px.fit(problem, train, px.MAP(), epochs=100, key=0)
    variance = px.analysis.score_variance(posterior, tuple(a[:60] for a in test), "layers/1/weight", 1e-4, draws=20_000)
    ratio, alone = variance.rank1 / variance.full_rank, (variance.rank1 / variance.independent).mean()
    print(f"  rank-1 over full rank {ratio.mean():.3f} +- {ratio.std():.3f}; over independent weights {alone:.2f}")
    save(variance.plot(), "score_variance")


FIGURES = (product_matrices, mean_field_cost, spectra_and_signal, variance_network, score_variance)

if __name__ == "__main__":
    began = time.monotonic()
    FOLDER.mkdir(parents=True, exist_ok=True)
    chosen = sys.argv[2:] or [figure.__name__ for figure in FIGURES]
    for figure in FIGURES:
        if figure.__name__ in chosen:
            print(f"{figure.__name__}: {figure.__doc__}", flush=True)
            figure()
    print(f"{(time.monotonic() - began) / 60:.1f} minutes")
