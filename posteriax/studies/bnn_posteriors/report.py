"""What is shown of the study of BNN posteriors, from its results alone: measures of the claims, tables, figures.

A value is one seed, or one split of a UCI set. Measures over networks have a part for each target that has the entry.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from posteriax._internal.plot_style import PALETTE, colours
from posteriax.studies.bnn_posteriors.experiments import AUGMENTATIONS, REGRESSION_ROWS, SHIFT_ROWS, noise_name
from posteriax.studies.bnn_posteriors.methods import ENSEMBLE_ROW, HMC_ROW, MAP_ROW, MCLMC_ROW, METHODS, VI_ROW
from posteriax.studies.bnn_posteriors.settings import SG_MCMC
from posteriax.studies.figures import Curve, Figure, Means, Panel, draw_panels, standard_error
from posteriax.studies.results import (
    Conditional,
    Measure,
    Parts,
    Results,
    Setting,
    combine,
    depending,
    entry,
    has,
    least,
    look_up,
    mean,
    most,
    per_cell,
)
from posteriax.studies.tables import Column, PageTable, Row, make_table, mean_with_error, rows_by

SG_MCMC_MEAN = "SG-MCMC"  # the mean of its kinds
FIDELITY = (SG_MCMC_MEAN, ENSEMBLE_ROW, VI_ROW, MAP_ROW)  # from the closest to HMC to the furthest, as the paper finds
OF_IMAGES = ("corrupted", "auroc", "detectors")  # what is measured of targets without reviews
NOTHING = Measure(lambda results: {})

# ---- measures: numbers by seed


def targets(results: Results, path: str = "", experiment: str = "methods") -> list[str]:
    """The targets of an experiment, in the order of the study; with a path, those whose results have it."""
    listed = results.settings.get("targets") if experiment == "methods" else None
    if listed and any(part in path.split(".") for part in OF_IMAGES):  # does not wait for those with reviews
        names = [target["name"] for target in listed if not target.get("words")]
    else:
        names = results.distinct("target", experiment=experiment)
    first = {name: results.select(experiment=experiment, target=name)[:1] for name in names}
    return [name for name, cells in first.items() if cells and (not path or has(cells[0], path))]


def score(target: str, method: str, path: str) -> Measure:
    """A score of a method on a target; of SG-MCMC, the mean of its kinds."""
    cells: dict[str, Setting] = {"experiment": "methods", "target": target}
    if method != SG_MCMC_MEAN:
        return entry(f"{method}.{path}", **cells)

    def choose(results: Results) -> Measure:
        kinds = [kind for kind in SG_MCMC if has(results.select(**cells)[0], kind)]
        return mean(*(entry(f"{kind}.{path}", **cells) for kind in kinds))

    return depending(choose)


def by_network_measures(measure: Callable[[str], Measure], path: str, experiment: str = "methods") -> Parts:
    """A measure by network, of the targets of an experiment that have this entry."""
    return Parts(lambda results: {short_name(t): measure(t) for t in targets(results, path, experiment)})


def short_name(target: str) -> str:
    """The network of a target, which is how pages call it.

    >>> short_name("Fashion-MNIST, MLP")
    'MLP'
    """
    return target.rpartition(", ")[2]


def by_network(method: str, path: str) -> Parts:
    """A score of a method, by network."""
    return by_network_measures(lambda target: score(target, method, path), f"{method}.{path}")


def difference(method: str, other: str, path: str) -> Parts:
    """A score of one method minus that of another, by network."""
    return difference_of_scores(method, path, other, path, f"{HMC_ROW}.{path}")


def difference_of_scores(method: str, path: str, other: str, other_path: str, needed: str) -> Parts:
    """One score minus another, by network, of those that have the entry `needed`."""
    return by_network_measures(lambda target: score(target, method, path) - score(target, other, other_path), needed)


def over_networks(parts: Parts) -> Measure:
    """The mean over networks, for checks that hold on each of them by construction."""
    return depending(lambda results: mean(*parts.by_name(results).values()))


def over_confidence(method: str) -> Parts:
    """Confidence minus accuracy."""
    return difference_of_scores(method, "confidence", method, "accuracy", f"{HMC_ROW}.confidence")


def detector_minus_hmc(detector: str) -> Parts:
    """The AUROC of a detector that is made for the purpose, minus HMC's, by network."""

    def gap(target: str) -> Measure:
        return entry(f"detectors.{detector}", experiment="methods", target=target) - score(target, HMC_ROW, "auroc")

    return by_network_measures(gap, f"detectors.{detector}")


def lost_accuracy(method: str, other: str) -> Parts:
    """Clean minus corrupted accuracy of one method, minus the same of another."""

    def loss(target: str, name: str) -> Measure:
        return score(target, name, "accuracy") - score(target, name, "corrupted.accuracy")

    return by_network_measures(lambda t: loss(t, method) - loss(t, other), f"{HMC_ROW}.corrupted.accuracy")


def closest_at_equal_draws() -> Parts:
    """Total variation from the first half of HMC's chains: of the closest method, minus that of the second half."""

    def distance(target: str) -> Measure:
        def closest(results: Results) -> Measure:
            first = results.select(experiment="methods", target=target)[0]
            names = [name for name in (*SG_MCMC, ENSEMBLE_ROW, VI_ROW, MAP_ROW) if has(first, f"halves.{name}")]
            return least(*(entry(f"halves.{n}", experiment="methods", target=target) for n in names))

        return depending(closest) - entry(f"halves.{HMC_ROW}", experiment="methods", target=target)

    return by_network_measures(distance, "halves")


def mclmc_lead() -> Parts:
    """Total variation from HMC: of the closest kind of SG-MCMC, minus that of MCLMC."""

    def lead(target: str) -> Measure:
        kinds = (score(target, name, "total_variation") for name in SG_MCMC)
        return least(*kinds) - score(target, MCLMC_ROW, "total_variation")

    return by_network_measures(lead, MCLMC_ROW)


FULL_SIZE = 28  # pixels a side of MNIST's images


def if_full_size(measure: Parts) -> Conditional:
    """A measure of noisy images; decides nothing if these are averaged down, which removes the noise."""

    def objection(results: Results) -> str:
        pixels = results.settings.get("shifted", {}).get("pixels", FULL_SIZE)
        return (
            "" if pixels >= FULL_SIZE else f"images are averaged to {pixels} x {pixels} pixels after they are corrupted"
        )

    return Conditional(measure, objection)


LONG_ENOUGH = 100  # draws of a chain for its R-hat to mean something; the paper has 240 and more


def if_long_enough(measure: Parts) -> Conditional:
    """A measure of R-hat; decides nothing if chains are short, where R-hat is large for any sampler."""

    def objection(results: Results) -> str:
        draws = [int(score(target, "quality", "draws")(results).min()) for target in targets(results, "quality")]
        if not draws or min(draws) >= LONG_ENOUGH:
            return ""
        return f"chains have {min(draws)} to {max(draws)} draws each, where the paper's have 240 and 400"

    return Conditional(measure, objection)


def weights_minus_functions() -> Parts:
    """log10 of the largest R-hat of weights, minus that of predictions."""
    logs = lambda weights, functions: np.log10(weights) - np.log10(functions)  # noqa: E731
    return by_network_measures(
        lambda t: combine(logs, score(t, "quality", "weight_plain"), score(t, "quality", "function_plain")),
        "quality.weight_plain",
    )


def sweep(results: Results, path: str, vary: str) -> dict[float, Measure]:
    """A result of the mixing experiment by trajectory length, or by step size at the whole trajectory."""
    other = {"trajectory": "step", "step": "trajectory"}[vary]
    values = sorted(map(float, results.distinct(vary, experiment="mixing", **{other: 1.0})))
    return {value: entry(path, experiment="mixing", **{vary: value, other: 1.0}) for value in values}


def first_minus_last(path: str, vary: str) -> Measure:
    """At the smallest value of what varies, minus at 1 (trajectories) or at the largest (steps)."""

    def choose(results: Results) -> Measure:
        by_value = sweep(results, path, vary)
        last = 1.0 if vary == "trajectory" else max(by_value, default=1.0)
        return by_value[min(by_value)] - by_value[last] if last in by_value and min(by_value) < last else NOTHING

    return depending(choose)


def settled() -> Measure:
    """Test NLL of single draws: that of the second quarter of a chain over that of its second half, minus 1."""

    def ratio(draws: np.ndarray) -> float:
        quarter, half = len(draws) // 4, len(draws) // 2
        return draws[quarter:half].mean() / draws[half:].mean() - 1

    cells: dict[str, Setting] = {"experiment": "mixing", "trajectory": 1.0, "step": 1.0}
    return per_cell(lambda cell: ratio(np.asarray(cell.result["draw_nll"], float)), **cells)


def by_temperature(results: Results, **settings: Setting) -> dict[float, Measure]:
    """The NLL by temperature."""
    temperatures = sorted(map(float, results.distinct("temperature", **settings)))
    return {t: entry("nll", temperature=t, **settings) for t in temperatures}


def colder(**settings: Setting) -> Measure:
    """NLL at the best temperature below 1, minus that at 1."""

    def choose(results: Results) -> Measure:
        nll = by_temperature(results, **settings)
        cold = [measure for t, measure in nll.items() if t < 1]
        return least(*cold) - nll[1.0] if cold and 1.0 in nll else NOTHING

    return depending(choose)


def colder_hmc() -> Parts:
    return by_network_measures(lambda target: colder(experiment="temperature", target=target), "", "temperature")


def colder_sghmc(augmentation: str) -> Measure:
    return colder(experiment="augmentation", augmentation=augmentation)


def colder_at_chosen_prior() -> Measure:
    """The same at the variance of the prior that HMC's held-out likelihood prefers, by seed."""

    def choose(results: Results) -> Measure:
        cells = results.select(experiment="grid")
        if not cells:
            return NOTHING
        held_out: dict[float, float] = {}
        for variance in results.distinct("variance", experiment="grid"):
            held_out[variance] = results.values(
                "held_out_nll", experiment="grid", variance=variance, temperature=1.0
            ).mean()
        return colder(experiment="grid", variance=min(held_out, key=lambda variance: held_out[variance]))

    return depending(choose)


def against_one(temperature: float) -> Parts:
    """NLL of HMC at a temperature minus that at 1."""

    def at(target: str, t: float) -> Measure:
        return entry("nll", experiment="temperature", target=target, temperature=t)

    return by_network_measures(lambda target: at(target, temperature) - at(target, 1.0), "", "temperature")


def prior_accuracies(results: Results, *, families: bool) -> list[Measure]:
    """Accuracies with Gaussians of all variances, or with all families of the variance that they share."""
    cells = results.select(experiment="prior")
    shared = {cell.settings["variance"] for cell in cells if cell.settings["family"] != "Normal"}
    chosen = {
        (cell.settings["family"], cell.settings["variance"])
        for cell in cells
        if (cell.settings["variance"] in shared if families else cell.settings["family"] == "Normal")
    }
    return [entry("accuracy", experiment="prior", family=f, variance=v) for f, v in sorted(chosen)]


def spread(*, families: bool) -> Measure:
    """The largest minus the smallest accuracy."""

    def choose(results: Results) -> Measure:
        accuracies = prior_accuracies(results, families=families)
        return most(*accuracies) - least(*accuracies)

    return depending(choose)


def above_map_by_prior() -> Parts:
    """HMC's accuracy minus MAP's under the same Gaussian prior, by its variance."""

    def above(variance: float) -> Measure:
        cells: dict[str, Setting] = {"experiment": "prior", "family": "Normal", "variance": variance}
        return Measure(
            lambda results: {
                c.seed: look_up(c.result, "accuracy") - look_up(c.result, "map.accuracy")
                for c in results.select(**cells)
                if has(c, "map.accuracy")
            }
        )

    variances = lambda results: results.distinct("variance", experiment="prior", family="Normal")  # noqa: E731
    return Parts(lambda results: {f"{variance:g}": above(variance) for variance in variances(results)})


def architecture_minus_prior() -> Measure:
    """The difference in accuracy between two architectures on the same images, minus the spread over families."""

    def choose(results: Results) -> Measure:
        if not results.select(experiment="architecture"):
            return NOTHING
        names = results.distinct("target", experiment="architecture")
        scores = [entry("accuracy", experiment="architecture", target=name) for name in names]
        return most(*scores) - least(*scores) - spread(families=True)

    return depending(choose)


def unlit(method: str) -> Measure:
    """Root mean square of the weights of unlit pixels, in units of the prior's scale."""
    return Measure(
        lambda results: {
            c.seed: look_up(c.result, f"unlit.{method}") for c in results.select(experiment="shift") if has(c, "unlit")
        }
    )


def under_noise(method: str, other: str, *, noisy: bool = True) -> Parts:
    """Accuracy of one row minus another: the mean over all levels of noise, or without noise; by network."""

    def accuracy(target: str, row: str, noise: float) -> Measure:
        return entry(f"{row}.{noise_name(noise)}", experiment="shift", target=target)

    def of_target(target: str) -> Measure:
        def choose(results: Results) -> Measure:
            levels = [noise for noise in results.settings.get("noises", ()) if (noise > 0) == noisy]
            return mean(*(accuracy(target, method, noise) - accuracy(target, other, noise) for noise in levels))

        return depending(choose)

    return Parts(lambda results: {short_name(target): of_target(target) for target in shift_targets(results)})


def shift_targets(results: Results) -> list[str]:
    """The targets of the experiment on shift."""
    return list(results.distinct("target", experiment="shift"))


def worst_noise(method: str, other: str, kinds: Sequence[str]) -> Parts:
    """Accuracy of one row minus another, the mean over some corruptions of severity 5; by network."""

    def of_target(target: str) -> Measure:
        cells: dict[str, Setting] = {"experiment": "shift", "target": target}
        return mean(*(entry(f"{method}.{kind}", **cells) - entry(f"{other}.{kind}", **cells) for kind in kinds))

    return Parts(lambda results: {short_name(target): of_target(target) for target in shift_targets(results)})


def log_likelihood(method: str, data: str) -> Measure:
    """The test log-likelihood of a method on a UCI set, by split."""
    return entry(f"{method}.log_likelihood", experiment="regression", data=data)


def above_approximations(data: str) -> Measure:
    """HMC's log-likelihood minus the better of mean-field VI and the deep ensemble here, by split."""
    return log_likelihood(HMC_ROW, data) - most(log_likelihood(ENSEMBLE_ROW, data), log_likelihood(VI_ROW, data))


def above_baselines(data: str) -> Measure:
    """HMC's log-likelihood minus the better of SGLD and MAP here, by split."""
    return log_likelihood(HMC_ROW, data) - most(log_likelihood("SGLD", data), log_likelihood(MAP_ROW, data))


def rmse_below_baselines(data: str) -> Measure:
    """HMC's RMSE minus the better of SGLD and MAP here, by split."""
    rmse = partial(entry, experiment="regression", data=data)
    return rmse(f"{HMC_ROW}.rmse") - least(rmse("SGLD.rmse"), rmse(f"{MAP_ROW}.rmse"))


MIXED = 1.1  # largest R-hat of the predictions


def if_mixed(data: str, measure: Measure) -> Conditional:
    """A measure of HMC on a set; decides nothing if its chains have not mixed in function space, or started at an
    ensemble that was trained for longer than the networks that they are compared with."""

    def objection(results: Results) -> str:
        rhats = results.values("quality.function_rhat", experiment="regression", data=data)
        reasons = []
        if len(rhats) and not rhats.max() < MIXED:
            reasons.append(
                f"HMC's chains have not mixed, R-hat of the predictions is {rhats.min():.1f} to {rhats.max():.1f}"
            )
        regression = results.settings.get("regression", {})
        # runs that have this setting trained an ensemble of its own for the chains to start at
        longer = regression.get("little_noise", ()) if "start_epochs" in regression else ()
        for name, _, epochs in longer:
            if name == data and epochs:
                others = regression["recipe"]["epochs"]
                reasons.append(f"they started at an ensemble of {epochs:,} epochs, and the others have {others:,}")
        return ", and ".join(reasons)

    return Conditional(measure, objection)


# ---- tables, beside the paper's figures

# CIFAR-10: accuracy (%), agreement (%), total variation, accuracy (%) and total variation on corrupted images
PAPER_METHODS = {
    "HMC": "89.64, 94.01, .074, 70.91, .133",
    "SGLD": "89.32, 91.54, .110, 78.80, .214",
    "SGHMC": "89.38, 91.98, .109, 78.20, .203",
    "cyclical SGHMC": "89.63, 92.67, .099, 76.43, .194",
    "preconditioned SGHMC": "87.46, 90.96, .111, 73.42, .205",
    "deep ensemble": "88.49, 91.52, .115, 76.99, .220",
    "mean-field VI": "86.45, 88.75, .136, 75.40, .245",
    "MAP": "83.44, 85.48, .190, 71.04, .334",
}
# IMDB: accuracy, NLL, ECE, read off its figures
PAPER_IMDB = {
    "HMC": ".868, .308, .032",
    "SGLD": ".861, .315, .007",
    "deep ensemble": ".859, .357, .042",
    "mean-field VI": ".854, .345, .037",
    "MAP": ".829, .757, .136",
}
PAPER_TEMPERATURES = {
    0.03: ".772, .47, .012",
    0.1: ".797, .425, .012",
    0.3: ".83, .38, .021",
    1.0: ".866, .31, .034",
    3.0: ".83, .42, .101",
    10.0: ".672, .66, .134",
}
# log-likelihood and RMSE of the paper, read off its figures: HMC, SGLD, SGD, SWAG
PAPER_UCI = {
    "uci/boston": ("-2.39, -2.46, -2.71, -2.76", "3.7, 3.7, 4.3, 3.5"),
    "uci/concrete": ("-2.67, -3.05, -3.37, -3.02", "4.45, 5.7, 5.0, 5.25"),
    "uci/energy": ("-1.1, -2.2, -1.5, -1.7", ".36, 1.3, .86, 1.6"),
    "uci/naval": ("9.65, 3.4, 3.7, 6.65", "1e-4, 6e-3, 6.3e-3, 1e-3"),
}
PAPER_STEPS, PAPER_ACCEPTANCE = (1.0, 5.0, 10.0, 50.0), (0.722, 0.463, 0.222, 0.125)  # CIFAR-10, units of 1e-5
SAMPLED = (
    *("acceptance", "divergent", "leapfrogs", "R-hat, largest", "above 1.1", "R-hat, weights", "effective draws"),
    "draws",
)
percent = mean_with_error(1, 100)
SCORED = (
    Column("accuracy (%)", "accuracy", percent),
    Column("NLL", "nll"),
    Column("ECE", "ece"),
    Column("agreement (%)", "agreement", percent),
    Column("total variation", "total_variation"),
)
SIMPLE = (Column("accuracy", "accuracy"), Column("NLL", "nll"), Column("ECE", "ece"))


def sampled(values: Callable[[str], np.ndarray], path: str = "quality") -> list[str]:
    """How well HMC sampled: means over seeds; R-hats are the largest."""
    quality = {name: values(f"{path}.{name}") for name in ("acceptance", "divergent", "leapfrogs", "chains", "draws")}
    functions = {
        name: values(f"{path}.function_{name}") for name in ("rhat", "rhat_far", "effective", "effective_least")
    }
    chains, total = quality["chains"].mean(), (quality["chains"] * quality["draws"]).mean()
    return [
        f"{quality['acceptance'].mean():.2f}",
        f"{quality['divergent'].mean():.1%}",
        f"{quality['leapfrogs'].mean():.0f}",
        f"{functions['rhat'].max():.2f}",
        f"{functions['rhat_far'].mean():.1%}",
        f"{values(f'{path}.weight_rhat').max():.2f}",
        f"{functions['effective'].mean():.0f} ({functions['effective_least'].min():.0f})",
        f"{chains:.0f} x {total / chains:.0f}",
    ]


def tables(results: Results) -> list[PageTable]:
    shown = [_methods(results, target) for target in targets(results)]
    shown += [_order(results), _sampling(results), _mixing(results), _temperatures(results), _augmentation(results)]
    shown += [_priors(results), _shift(results), *_regression(results)]
    return [table for table in shown if table.rows]


def _methods(results: Results, target: str) -> PageTable:
    first = results.select(experiment="methods", target=target)[0]
    columns = [*SCORED]
    if has(first, "HMC.corrupted"):
        columns += [Column(heading, f"corrupted.{path}", write) for heading, path, write in SCORED]
        columns[len(SCORED)] = columns[len(SCORED)]._replace(heading="corrupted: accuracy (%)")
    if has(first, "HMC.auroc"):
        columns.append(Column("AUROC", "auroc"))
    if target.startswith("IMDB"):
        paper, heading = PAPER_IMDB, "the paper, IMDB: accuracy, NLL, ECE"
    else:
        paper, heading = PAPER_METHODS, "the paper, CIFAR-10: accuracy, agreement, TV; corrupted: accuracy, TV"

    def row(name: str) -> Row:
        return Row((name,), lambda path: score(target, name, path)(results), (paper.get(name, "-"),))

    rows = [row(name) for name in METHODS if has(first, name)]
    caption = (
        f"{target}: all methods. Agreement and total variation are with HMC, those of HMC itself of one chain with the "
        "others. MAP is the mean over the members of the deep ensemble, one at a time."
    )
    return make_table(caption, ("method",), columns, rows, (heading,))


def _order(results: Results) -> PageTable:
    """Distances of the groups that the order is about, by target."""
    write, rows = mean_with_error(), []
    for target in targets(results):
        distances = [score(target, name, "total_variation") for name in FIDELITY]
        steps = [further - closer for closer, further in itertools.pairwise(distances)]
        rows.append([target, *(write(measure(results)) for measure in (*distances, *steps))])
    names = [f"{further} minus {closer}" for closer, further in itertools.pairwise(FIDELITY)]
    caption = (
        "Total variation from HMC by network, and the steps of the order, by seed. SG-MCMC is the mean of its kinds."
    )
    return PageTable(caption, ["target", *FIDELITY, *names], rows)


def _sampling(results: Results) -> PageTable:
    rows = []
    for target in targets(results):
        values = partial(results.values, experiment="methods", target=target)
        row = [target, *sampled(values)]
        for space in ("function", "weight"):
            row += [
                f"{values(f'quality.{space}_plain').max():.2f}",
                f"{values(f'quality.{space}_plain_far').mean():.1%}",
            ]
        rows.append(row)
    caption = (
        "HMC, the reference: how well it sampled. R-hat is rank-normalised and split, the largest over all class "
        "probabilities at 200 test points, or over 2,000 weights; effective draws are the median over predictions "
        "(and the fewest). The last four columns have R-hat as the paper computes it."
    )
    last = ("R-hat of predictions, plain", "above 1.1", "R-hat of weights, plain", "above 1.1")
    return PageTable(caption, ["target", *SAMPLED, *last], rows)


def _mixing(results: Results) -> PageTable:
    caption = (
        "HMC with unit masses and fixed step size from random weights: trajectories in units of pi / 2 times the "
        "prior's scale, step sizes in units of the smallest."
    )
    rows = rows_by(results, ("trajectory", "step"), sampled, experiment="mixing")
    return make_table(caption, ("trajectory", "step size"), SIMPLE[:2], rows, SAMPLED)


def _temperatures(results: Results) -> PageTable:
    rows = []
    for row in rows_by(results, ("target", "temperature"), sampled, experiment="temperature"):
        target, temperature = row.start
        paper = PAPER_TEMPERATURES.get(float(temperature), "") if target.startswith("IMDB") else ""
        rows.append(row._replace(end=(paper, *row.end)))
    end = ("the paper: accuracy, NLL, ECE", *SAMPLED)
    return make_table("HMC by temperature, without augmentation", ("target", "T"), SIMPLE, rows, end)


def _augmentation(results: Results) -> PageTable:
    rows = rows_by(results, ("augmentation", "temperature"), experiment="augmentation")
    caption = (
        "SGHMC by temperature, with and without augmentation (with augmentation there is no single log joint for HMC)"
    )
    return make_table(caption, ("augmentation", "T"), SIMPLE, rows)


def _priors(results: Results) -> PageTable:
    rows = rows_by(results, ("family", "variance"), sampled, experiment="prior")
    return make_table("HMC by prior", ("family", "variance"), SIMPLE, rows, SAMPLED)


def _shift(results: Results) -> PageTable:
    name = shift_targets(results)[0] if shift_targets(results) else ""
    cells = results.select(experiment="shift", target=name)
    values = partial(results.values, experiment="shift", target=name)
    columns = [
        Column(name.replace("_", "." if name.startswith("noise") else " "), name)
        for name in (cells[0].result["HMC"] if cells else ())
    ]

    def row(name: str) -> Row:
        path = {"HMC": "quality", "HMC, EmpCov": "quality_empcov"}.get(name)
        quality = sampled(values, path) if path else [""] * len(SAMPLED)
        return Row((name,), lambda shift: values(f"{name}.{shift}"), quality)

    rows = [row(name) for name in SHIFT_ROWS] if cells else []
    caption = "MNIST: accuracy with noise on the pixels, in units of the inputs, and under corruptions of severity 5"
    return make_table(caption, ("",), columns, rows, SAMPLED)


def _regression(results: Results) -> list[PageTable]:
    shown = []
    for number, (path, words) in enumerate((("log_likelihood", "log-likelihood"), ("rmse", "RMSE"))):
        rows = []
        for data in results.distinct("data", experiment="regression"):
            values = partial(results.values, experiment="regression", data=data)
            write = mean_with_error(5 if data == "uci/naval" and path == "rmse" else 3)
            scores = [write(values(f"{name}.{path}")) for name in REGRESSION_ROWS]
            paper = PAPER_UCI.get(data, ("-", "-"))[number]
            rows.append([data, f"{values('rows').mean():.0f}", *scores, paper, *sampled(values)])
        headings = ["data", "training rows", *REGRESSION_ROWS, "the paper: HMC, SGLD, SGD, SWAG", *SAMPLED]
        shown.append(PageTable(f"UCI: test {words}, mean over splits and its standard error", headings, rows))
    return shown


# ---- figures

COLOURS = colours(METHODS) | {ENSEMBLE_ROW: PALETTE[9], "HMC, EmpCov": "0.5"}
NLL_LABEL = "test NLL (nats per example)"


def _means(results: Results, measures: dict[float, Measure], colour: str, label: str | None = None) -> Means:
    """A line through the means over seeds, by what varies."""
    return Means(list(measures), [measure(results) for measure in measures.values()], "o-", colour, label)


def fidelity(results: Results) -> Figure:
    """Total variation from HMC against test NLL, one panel per target."""
    panels = []
    for target in targets(results):
        first, points = results.select(experiment="methods", target=target)[0], []
        for name in (name for name in METHODS if has(first, name)):
            x, y = (score(target, name, path)(results) for path in ("total_variation", "nll"))
            marker = "s" if name == "HMC" else "^" if name in SG_MCMC else "o"
            label = "HMC (one chain from the others)" if name == "HMC" else name
            options = {"xerr": standard_error(x), "capsize": 2, "markersize": 5}
            points.append(Means([x.mean()], [y], marker, COLOURS[name], label, options))
        panels.append(Panel(points, {"title": target, "xlabel": "total variation from HMC", "ylabel": NLL_LABEL}))
    return draw_panels(panels, 4.2, 3.6, below=3)[0]


def mixing(results: Results) -> Figure:
    """Trajectory length, step size, and single draws along the chains."""
    cells = results.select(experiment="mixing", trajectory=1.0, step=1.0)
    burn_in = results.settings["mixing"]["burn_in"] if cells else 0
    draws = [np.asarray(cell.result["draw_nll"], float) for cell in cells]
    options = {"linewidth": 1}
    chains = [Curve(burn_in + 1 + np.arange(len(nll)), nll, "-", PALETTE[2], options=options) for nll in draws]
    lengths, steps = sweep(results, "nll", "trajectory"), sweep(results, "quality.acceptance", "step")
    paired = {length: nll - lengths[1.0] for length, nll in lengths.items() if 1.0 in lengths}
    paper = dict(zip(PAPER_STEPS, PAPER_ACCEPTANCE, strict=True))
    acceptance: list[Curve | Means] = [
        _means(results, steps, PALETTE[0], "here"),
        Curve(list(paper), list(paper.values()), "x--", "0.5", "the paper, CIFAR-10", {"linewidth": 1}),
    ]
    units = {"xlabel": "step size (units of the smallest)", "ylabel": "acceptance", "ylim": (0, 1.02), "xscale": "log"}
    panels = [
        Panel(
            [_means(results, paired, PALETTE[0])],
            {"xlabel": "trajectory (units of $\\pi\\alpha/2$)", "ylabel": "test NLL minus that at 1 (nats)"},
            reference=(0.0, "0.8", None),
        ),
        Panel(acceptance, units, legend={}),
        Panel(chains, {"xlabel": "iteration", "ylabel": "test NLL of single draws (nats)"}),
    ]
    return draw_panels(panels, 3.6, 3.2)[0]


def temperatures(results: Results) -> Figure:
    """Test NLL by temperature: HMC, and SGHMC with and without augmentation."""
    hmc = [
        _means(results, by_temperature(results, experiment="temperature", target=target), PALETTE[i], target)
        for i, target in enumerate(targets(results, experiment="temperature"))
    ]
    sghmc = [
        _means(
            results,
            by_temperature(results, experiment="augmentation", augmentation=name),
            PALETTE[2 + i],
            f"augmentation: {name}",
        )
        for i, name in enumerate(AUGMENTATIONS)
    ]
    settings = {"xscale": "log", "xlabel": "temperature", "ylabel": NLL_LABEL}
    panels = [Panel(lines, {**settings, "title": name}, legend={}) for name, lines in (("HMC", hmc), ("SGHMC", sghmc))]
    figure, axes = draw_panels(panels, 4.4, 3.4)
    for axis in axes:
        axis.axvline(1.0, color="0.8", linewidth=1, zorder=0)
    return figure


def priors(results: Results) -> Figure:
    """Accuracy by the variance of a Gaussian prior, and by family."""
    variances = sorted(map(float, results.distinct("variance", experiment="prior", family="Normal")))
    names = sorted(set(results.distinct("family", experiment="prior")))
    scales, families = (
        [measure(results) for measure in prior_accuracies(results, families=families)] for families in (False, True)
    )
    scale_axes = {"xscale": "log", "xlabel": "variance of a Gaussian prior", "ylabel": "test accuracy"}
    family_axes = {"xlabel": "family, of one variance", "xlim": (-0.5, max(len(names), 1) - 0.5)}
    panels = [
        Panel([Means(variances, scales, "o-", PALETTE[0])], scale_axes),
        Panel([Means(range(len(families)), families, "o", PALETTE[3], options={})], family_axes),
    ]
    figure, axes = draw_panels(panels, 4.2, 3.2, sharey=True)
    axes[0].set_xticks(variances, [f"{variance:g}" for variance in variances])
    axes[0].minorticks_off()
    axes[1].set_xticks(range(len(names)), names, fontsize="small")
    return figure


def noise(results: Results) -> Figure:
    """Accuracy by noise on the pixels."""
    levels = list(results.settings["noises"]) if results.select(experiment="shift") else []
    target, lines = (shift_targets(results) or [""])[0], []
    for name in SHIFT_ROWS:
        values = [results.values(f"{name}.{noise_name(level)}", experiment="shift", target=target) for level in levels]
        lines.append(Means(levels, values, "o--" if name == "HMC, EmpCov" else "o-", COLOURS[name], name))
    labels = {"xlabel": "standard deviation of the noise (units of the inputs)", "ylabel": "test accuracy, MNIST"}
    return draw_panels([Panel(lines, {**labels, "ylim": (0, 1)}, legend={})], 5.0, 3.4)[0]


def regression(results: Results) -> Figure:
    """Test log-likelihood on UCI sets, as the difference from HMC by split; one panel for each set."""
    names, panels = results.distinct("data", experiment="regression"), []
    methods = REGRESSION_ROWS[1:]
    for name in names:
        lines: list[Curve | Means] = []
        for height, method in enumerate(reversed(methods)):
            gaps = (log_likelihood(method, name) - log_likelihood(HMC_ROW, name))(results)
            options = {"markersize": 4, "alpha": 0.5}
            lines.append(Curve(gaps, np.full(len(gaps), height), "o", COLOURS[method], options=options))
            bar = {"markersize": 14, "markeredgewidth": 2}
            lines.append(Curve([gaps.mean()], [height], "|", COLOURS[method], options=bar))
        rhat = results.values("quality.function_rhat", experiment="regression", data=name).max()
        ticks = {"yticks": range(len(methods)), "yticklabels": methods[::-1], "ylim": (-0.6, len(methods) - 0.4)}
        title = f"{name.rpartition('/')[2]}, R-hat {rhat:.1f}"
        panels.append(Panel(lines, {"xlabel": "log-likelihood minus HMC's (nats)", **ticks}, title))
    figure, axes = draw_panels(panels, 3.2, 2.2, columns=3, sharey=True)
    for axis in axes:
        axis.axvline(0.0, color="0.5", linewidth=1, zorder=0)
        axis.locator_params(axis="x", nbins=5)
    return figure


def reliability(results: Results) -> Figure:
    """Accuracy by confidence, in bins of equal mass, of HMC, the deep ensemble and single networks."""
    panels = []
    for target in targets(results):
        cells = [c for c in results.select(experiment="methods", target=target) if has(c, "HMC.reliability")]
        lines = [Curve([0, 1], [0, 1], "-", "0.8")]
        for name in (HMC_ROW, ENSEMBLE_ROW, VI_ROW, MAP_ROW):
            if cells:
                bins = np.mean([cell.result[name]["reliability"] for cell in cells], axis=0)
                lines.append(Curve(bins[0], bins[1], "o-", COLOURS[name], name, {"markersize": 4}))
        panels.append(Panel(lines, {"title": target, "xlabel": "confidence", "ylabel": "accuracy"}))
    return draw_panels(panels, 3.6, 3.4, below=4)[0]


def corruption(results: Results) -> Figure:
    """Accuracy by severity of corruption, 0 is clean; means over kinds and seeds."""
    panels = []
    for target in targets(results, f"{HMC_ROW}.severity"):
        cells = results.select(experiment="methods", target=target)
        at, lines = [0, *results.settings["severities"]], []
        for name in (HMC_ROW, "SGLD", ENSEMBLE_ROW, VI_ROW, MAP_ROW):
            curves = np.array([[c.result[name]["accuracy"], *c.result[name]["severity"]] for c in cells])
            lines.append(Means(at, list(curves.T), "o-", COLOURS[name], name))
        panels.append(Panel(lines, {"title": target, "xlabel": "severity", "ylabel": "test accuracy"}))
    return draw_panels(panels, 4.0, 3.4, below=5)[0]


FIGURES = {
    "fidelity": fidelity,
    "reliability": reliability,
    "mixing": mixing,
    "corruption": corruption,
    "noise": noise,
    "temperatures": temperatures,
    "priors": priors,
    "regression": regression,
}
NEEDS = {
    "reliability": lambda results: any(has(cell, "HMC.reliability") for cell in results.cells),
    "corruption": lambda results: any(has(cell, "HMC.severity") for cell in results.cells),
    "regression": lambda results: bool(results.select(experiment="regression")),
}
