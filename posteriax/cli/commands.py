"""The command line: ``posteriax demo``, ``compare``, ``predict``, ``doctor``, ``bench``."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def main() -> None:
    """Run the command line, or say what it needs."""
    try:
        app = make_app()
    except ImportError:
        sys.exit("the command line needs typer: pip install 'posteriax[cli]'")
    app()


def make_app() -> Any:
    """The commands. Whatever is heavy is imported by the command that needs it."""
    import typer

    app = typer.Typer(help="Bayesian neural networks for JAX.", no_args_is_help=True, add_completion=False)
    bench = typer.Typer(help="Ratios of speed, measured interleaved in one run.", no_args_is_help=True)
    app.add_typer(bench, name="bench")
    rounds_option = typer.Option(15, min=1, help="How often each case is timed, all in turn.")
    peers_option = typer.Option(False, "--peers", help="Also time other libraries, from a second environment.")

    @app.callback()
    def _() -> None:
        """Bayesian neural networks for JAX."""
        use_all_cores()
        use_compilation_cache()

    @app.command()
    def demo(
        out: Path = typer.Option(Path("posteriax-demo"), help="The folder for figures."),
        seed: int = typer.Option(0, help="Of data, networks and all methods."),
    ) -> None:
        """Four posteriors of one network, on two moons and on images, and how far each is from HMC."""
        from posteriax.cli.demo import run_demo

        run_demo(out, seed)

    @app.command()
    def compare(
        data: Path = typer.Argument(
            help="A table, CSV; or arrays x and y, NPZ: (N, columns) or images (N, h, w[, c])."
        ),
        target: str | None = typer.Option(None, help="The column to predict. Not for arrays, which have y."),
        methods: str = typer.Option("map,ensemble,mean-field,k-tied,rank-1,swag,hmc", help="Also: nuts, mclmc, sghmc."),
        out: Path = typer.Option(Path("report.html"), help="The report to write."),
        posteriors: Path | None = typer.Option(None, help="The folder for posteriors; by default beside the report."),
        task: str | None = typer.Option(None, help="classification or regression; by default found from the target."),
        drop: list[str] = typer.Option([], help="A column to leave out; may be given several times."),
        categories: list[str] = typer.Option([], help="A column of numbers to take as categories; several times."),
        test_fraction: float = typer.Option(0.2, help="The part of the rows to test on."),
        seed: int = typer.Option(0, help="Of the split, the network and all methods."),
        quick: bool = typer.Option(False, "--quick", help="A fifth of the steps and draws, for a first look."),
    ) -> None:
        """Which posterior predicts your data best? Fits all methods, prints their scores and writes a report."""
        with errors_for_people():
            from posteriax.cli.automatic.comparing import Settings, run_compare

            settings = Settings(
                target=target,
                methods=methods.split(","),
                task=task,  # type: ignore[arg-type]
                drop=drop,
                categories=categories,
                test_fraction=test_fraction,
                seed=seed,
                quick=quick,
            )
            run_compare(
                data, out, posteriors or out.with_name(f"{out.stem}_posteriors"), settings, console(piped_width=180)
            )

    @app.command()
    def predict(
        posterior: Path = typer.Argument(help="A file that `posteriax compare` saved."),
        data: Path = typer.Argument(help="New rows, CSV with the same columns, or NPZ with x. The target is optional."),
        out: Path | None = typer.Option(None, help="The CSV file to write; by default standard output."),
    ) -> None:
        """Predictions with uncertainty for new rows: class probabilities, or mean, std and quantiles."""
        with errors_for_people():
            from posteriax.cli.automatic.predicting import run_predict

            run_predict(posterior, data, out)

    @app.command()
    def doctor(
        unguarded: bool = typer.Option(
            False, "--unguarded", help="Only as JAX compiles by itself, even if posteriax would correct it."
        ),
    ) -> None:
        """Does this installation compute rightly? Small compiled programs beside float64 NumPy."""
        from posteriax.cli.doctor.examination import examine
        from posteriax.cli.doctor.installation import describe_installation
        from posteriax.cli.doctor.report import print_report

        found = examine(unguarded)
        print_report(console(), describe_installation(), found)
        raise typer.Exit(0 if found.right else 1)

    @bench.command()
    def step(rounds: int = rounds_option, peers: bool = peers_option) -> None:
        """A step of mean-field VI over a deterministic one: MLP 784-400-400-10, batch 1024, Adam."""
        from posteriax.cli.bench.step import run_step, table

        console().print(table(run_step(rounds, peers)))

    @bench.command()
    def families(rounds: int = rounds_option) -> None:
        """A step of every family over a deterministic one, its memory and its parameters: the same MLP."""
        from posteriax.cli.bench.families import run_families, table

        console().print(table(*run_families(rounds)))

    @bench.command()
    def leapfrog(rounds: int = rounds_option, peers: bool = peers_option) -> None:
        """One HMC leapfrog over a hand-written loop, and two chains on two cores."""
        from posteriax.cli.bench.leapfrog import run_leapfrog, table

        console().print(table(run_leapfrog(rounds, peers)))

    @bench.command()
    def sampling(rounds: int = rounds_option, peers: bool = peers_option) -> None:
        """HMC, NUTS and MCLMC beside BlackJAX's and NumPyro's: gradients and effective draws a second."""
        from posteriax.cli.bench.sampling import run_sampling, tables

        console().print(*tables(*run_sampling(rounds, peers)), sep="\n")

    @bench.command()
    def gradients(rounds: int = rounds_option) -> None:
        """A step of mean-field VI with its gradients' signal and noise recorded over one without."""
        from posteriax.cli.bench.gradients import run_gradients, table

        console().print(table(run_gradients(rounds)))

    @bench.command()
    def start(rounds: int = typer.Option(5, min=1, help="Measurements of each.")) -> None:
        """Importing posteriax, and the README's first training step, each in a new process."""
        from posteriax.cli.bench.start import run_start, table

        console().print(table(run_start(rounds)))

    @bench.command()
    def compilers(
        python: list[str] = typer.Option(help="An interpreter that has JAX and posteriax; give several."),
        rounds: int = rounds_option,
        cpu_time: bool = typer.Option(False, "--cpu-time", help="Seconds of all threads, for a busy machine."),
    ) -> None:
        """The same steps and leapfrogs with several installations of JAX, in turn."""
        from posteriax.cli.bench.compilers import run_compilers, tables

        console().print(*tables(run_compilers(python, rounds, cpu_time)), sep="\n")

    @bench.command()
    def memory() -> None:
        """Peak memory of predictions with many draws, and of a long run of HMC."""
        from posteriax.cli.bench.memory import run_memory, table

        console().print(table(run_memory()))

    return app


@contextlib.contextmanager
def errors_for_people() -> Iterator[None]:
    """What is wrong with a person's files, in one line on standard error, and the exit code 2."""
    from posteriax.cli.tables.reading import DataError
    from posteriax.posterior import PosteriorFileError

    try:
        yield
    except (DataError, PosteriorFileError, OSError) as error:
        print("error: " + " ".join(str(error).split()), file=sys.stderr)
        raise SystemExit(2) from None


def use_all_cores() -> None:
    """Make every core a device of its own, so that chains and members run side by side. Before JAX's backend starts."""
    import jax

    if not os.environ.get("JAX_NUM_CPU_DEVICES"):
        jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)


def use_compilation_cache() -> None:
    """Keep compiled programs between commands, so that the second run of a command starts sooner."""
    import jax

    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "posteriax" / "compiled"
        jax.config.update("jax_compilation_cache_dir", str(cache))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def console(piped_width: int = 120) -> Any:
    """Where results go: standard output, plain when piped."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else piped_width)
