"""``posteriax compare``: from a file to a report, without writing code."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
from rich.markup import escape

import posteriax as px
from posteriax.cli.no_code.description import Description, save_described
from posteriax.cli.no_code.methods import REFERENCE, check_methods, expected_seconds
from posteriax.cli.no_code.networks import choose_network, make_problem
from posteriax.cli.no_code.units import in_units_of
from posteriax.cli.user_data.array_files import is_npz, joined, read_npz, table_of
from posteriax.cli.user_data.image_preparation import ImagePreparation, prepare_images
from posteriax.cli.user_data.messages import DataError
from posteriax.cli.user_data.settings import DataSettings, Prepared
from posteriax.cli.user_data.table_files import read_table
from posteriax.cli.user_data.table_preparation import prepare
from posteriax.cli.user_data.targets import Classes, Quantity
from posteriax.methods import DEFAULT_METHODS, RECIPES, Circumstances, RecipeRun
from posteriax.problem import Units


@dataclass(frozen=True, kw_only=True)
class Settings(DataSettings):
    """The options of the command line.

    Args:
        methods: by name.
        quick: a fifth of the steps and draws.
    """

    methods: Sequence[str] = DEFAULT_METHODS
    quick: bool = False


def run_compare(data: Path, out: Path, folder: Path, settings: Settings, screen: Any) -> px.Comparison:
    """Fit every method to a file's data, save each posterior as it is done, compare them, and write the report."""
    began = time.monotonic()
    names = check_methods(settings.methods)
    prepared = read_prepared(data, settings)
    for place in (folder, out.parent):  # first, so that a folder that cannot be written to is an error at once
        place.mkdir(parents=True, exist_ok=True)
    preparation, target, rows = prepared.preparation, prepared.preparation.target, len(prepared.train[1])
    pixels = (preparation.mean, preparation.scale) if isinstance(preparation, ImagePreparation) else (0.0, 1.0)
    architecture = choose_network(prepared.train[0].shape[1:], target.outputs, rows, *pixels)
    problem = make_problem(architecture, target, settings.seed)
    _introduce(screen, data, prepared, problem)
    at = Circumstances(rows, architecture.kind == "images", settings.quick)
    posteriors: dict[str, px.Posterior] = {}
    for name in names:
        posterior = _fit(screen, name, RECIPES[name].run(at), problem, prepared, settings.seed)
        if posterior is not None:
            posteriors[name] = in_units_of(target, posterior)
            save_described(posterior, Description(name, architecture, preparation), folder / f"{name}.posterior")
    if not posteriors:
        raise DataError("no method could be fitted")
    x_test, y_test = prepared.test
    if isinstance(target, Quantity):
        y_test = Units(target.mean, target.scale).restore(y_test)
    comparison = px.compare(
        posteriors,
        (x_test, y_test),
        reference=REFERENCE if REFERENCE in posteriors and len(posteriors) > 1 else None,
        class_names=target.labels if isinstance(target, Classes) else None,
    )
    _say(screen, "")
    screen.print(comparison)
    if REFERENCE in posteriors:
        _say(screen, f"\n{REFERENCE}: {posteriors[REFERENCE].diagnose(x_test).verdict}")
    comparison.to_html(out, title=f"{data.name}: which posterior predicts {target.name} best")
    _say(
        screen,
        f"\nThe report is {out}; for new rows: posteriax predict {folder}/{next(iter(posteriors))}.posterior new.csv",
    )
    _say(screen, f"Total time: {time.monotonic() - began:.0f} s.")
    return comparison


def read_prepared(data: Path, settings: DataSettings) -> Prepared:
    """A file's data, prepared for training."""
    if not is_npz(data):
        return prepare(read_table(data), settings)
    arrays = read_npz(data)
    if arrays.is_image:
        return prepare_images(arrays, settings)
    x, y, split = joined(arrays)
    return prepare(table_of(arrays.name, x, y), replace(settings, target="y"), split)


def _introduce(screen: Any, data: Path, prepared: Prepared, problem: px.Problem) -> None:
    target = prepared.preparation.target
    what = f"one of {len(target.labels)} classes" if isinstance(target, Classes) else "a real number"
    _say(
        screen,
        f"{data.name}: {len(prepared.train[1])} training examples, {len(prepared.test[1])} test examples; "
        f"{target.name!r} is {what}. A network with {problem.network.num_parameters:,} weights.",
    )
    for note in prepared.notes:
        _say(screen, f"note: {note}")


def _fit(
    screen: Any, name: str, run: RecipeRun, problem: px.Problem, prepared: Prepared, seed: int
) -> px.Posterior | None:
    """One posterior, and a line about it; None if the method failed: the others continue."""
    expected = expected_seconds(name, run, problem, prepared.train)
    if expected is not None and expected > 30:
        _say(
            screen,
            f"{name} uses the whole data set at every step: roughly {expected / 60:.0f} to "
            f"{4 * expected / 60:.0f} min here. Leave it out of --methods if that is too long.",
        )
    began = time.monotonic()
    try:
        posterior = px.fit(problem, prepared.train, run.method, key=jax.random.key(seed), **run.arguments)
    except (FloatingPointError, RuntimeError, ValueError) as error:
        _say(screen, f"{name}: failed: {error}")
        return None
    finding = posterior.diagnose(prepared.test[0][:200]).verdict.splitlines()[0] if name != REFERENCE else "sampled."
    _say(screen, f"{name}: {time.monotonic() - began:.0f} s. {finding}")
    return posterior


def _say(screen: Any, text: str) -> None:
    screen.print(escape(text), highlight=False, soft_wrap=True)
    screen.file.flush()  # so that a pipe gets each line at once
