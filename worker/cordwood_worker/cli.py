"""The `cordwood-worker` command."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

import cordwood
from cordwood.embedded import EmbeddedServer, resolve_url
from cordwood.errors import CordwoodError, ServerUnavailable, SettingsError
from cordwood.keys import LANES
from cordwood.settings import Settings, load
from cordwood_worker.backends import DeviceOutOfMemory
from cordwood_worker.backends.faults import device_fault
from cordwood_worker.backends.loading import load_backend
from cordwood_worker.exit_codes import ExitCode
from cordwood_worker.worker import Loaded, Worker

if TYPE_CHECKING:
    from types import FrameType

CONTEXT: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 120}
LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"

log = logging.getLogger(__name__)


class NumberRange(click.FloatRange):
    """A range that NaN is not in."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number, or fail."""
        number = super().convert(value, param, ctx)
        if number != number:  # noqa: PLR0124 - only NaN differs from itself
            self.fail(f"{value!r} is not a number", param, ctx)
        return float(number)


def settings_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command one flag for every plain setting, named as in TOML with dashes."""
    for name, field in reversed(Settings.model_fields.items()):
        if name != "queues":
            default = "none" if field.default is None else field.default
            option = click.option(f"--{name.replace('_', '-')}", name, help=f"Setting {name}; default {default}.")
            command = option(command)
    return command


@click.group(context_settings=CONTEXT)
@click.version_option(cordwood.__version__, prog_name="cordwood-worker")
def cli() -> None:
    """Run Cordwood's workers."""


@cli.command()
@click.option("--config", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="Settings, as TOML.")
@click.option(
    "--queue", "queues", multiple=True, help="A queue to serve, may be given again; else all of the settings."
)
@click.option("--burst", is_flag=True, help="Exit when the queues are empty or paused.")
@settings_options
def run(config: Path | None, queues: tuple[str, ...], *, burst: bool, **flags: str | None) -> None:
    """Serve queues until SIGTERM or Ctrl-C. A second signal hands everything back at once.

    Several queues share the device by their weights; the models of all are loaded at the start.

    Without a server's URL it takes the embedded server that runs under the data dir, or starts one, and stops it after
    the worker.

    Exit codes: 0 clean, 1 crashed, 2 wrong usage, 3 the batch in hand was not done within drain_s, 4 device broken,
    5 not started, 130 told to stop twice before it had begun.

    \b
    Example:
      cordwood-worker run --config configs/local.toml
    """  # noqa: D301 - click wants the character itself
    try:
        settings = load(config, os.environ, {name: value for name, value in flags.items() if value is not None})
        configure_logging(settings.log_level)
        code = serve(settings, choose_queues(settings, queues), burst=burst)
    except CordwoodError as error:
        click.echo(f"cordwood-worker: {error}", err=True)
        code = ExitCode.NOT_STARTED
    end_process(code)


@cli.command()
@click.option("--config", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="Settings, as TOML.")
@click.option("--queue", default="embed", show_default=True, help="The queue whose settings and workers count.")
@click.option("--arrivals", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="Recorded jobs, as CSV.")
@click.option("--rate", type=NumberRange(1e-6, 1e9), help="Or so many jobs a second, at random (Poisson).")
@click.option("--load", type=NumberRange(1e-3, 1e3), help="Or this part of what the devices can do.")
@click.option(
    "--jobs", type=click.IntRange(1, 100_000_000), default=20_000, show_default=True, help="How many to make up."
)
@click.option("--tokens", type=NumberRange(1, 1e6), default=60, show_default=True, help="Their mean length.")
@click.option(
    "--max-tokens", type=click.IntRange(1, 1_000_000), default=256, show_default=True, help="Their greatest length."
)
@click.option("--lanes", default="0:1:0", show_default=True, help="Their parts in the lanes high, normal, low.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="What chance depends on.")
@click.option("--devices", type=click.IntRange(1, 4096), default=1, show_default=True, help="Workers in the fleet.")
@click.option("--cost", metavar="A,B,C,D", help="Seconds a token, row, square, batch; else what workers have learned.")
@click.option("--padded", is_flag=True, help="With --cost: batches are padded to their longest row.")
@click.option(
    "--overhead-ms",
    type=NumberRange(0, 1e6),
    help="From a job's submission to its being tokenised; else what workers have learned, or 2.",
)
@click.option(
    "--noise", type=NumberRange(0, 3), default=0.0, show_default=True, help="Spread of batch times (log-normal)."
)
@click.option("--objective-ms", type=NumberRange(0, 1e9), help="Find how many devices keep the p99 wait below this.")
@click.option(
    "--objective-lane", type=click.Choice(["all", *LANES]), default="all", show_default=True, help="For which jobs."
)
@click.option(
    "--plot", type=click.Path(path_type=Path, dir_okay=False), help="Write a chart of wait against load, PNG."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@settings_options
def simulate(config: Path | None, queue: str, **flags: Any) -> None:
    """Show what a fleet would do with a traffic: how busy it is, how long jobs wait, how many devices it takes.

    It runs the batch former, lanes and cost model of a worker on a simulated clock. What batches cost it takes from the
    queue's live workers, or from --cost. `cordwood queue arrivals` records a traffic.

    \b
    Example:
      cordwood-worker simulate --rate 500 --devices 2 --objective-ms 100
    """  # noqa: D301 - click wants the character itself
    from cordwood_worker.simulation.command import simulate_command

    try:
        simulate_command(config, queue, flags)
    except CordwoodError as error:
        raise click.ClickException(str(error)) from error


def serve(settings: Settings, queues: Sequence[str], *, burst: bool) -> ExitCode:
    """Load the models, find the server, and work; raises SettingsError or ServerUnavailable if it cannot begin."""
    with signals_kept() as pending, server_url(settings) as url:
        worker = Worker(settings, load_apart(settings, queues), url)
        pending.deliver_to(worker.stop)
        return worker.run(burst=burst)


def load_apart(settings: Settings, queues: Sequence[str]) -> list[Loaded]:
    """Load the backends of queues and warm them up, in a thread that ends with that.

    Raises SettingsError, also for a model that does not fit the device beside those before it.

    OpenMP keeps a team of threads for every thread that ever computed. With those of two, the one that loads and the
    one that runs, there are more than cores, and libgomp lets them sleep between any two operations instead of waiting
    a moment: a text alone took 10 ms instead of 5.4 (MiniLM, 2 cores). The teams of a thread end with it.
    """
    with ThreadPoolExecutor(1, "cordwood-load") as loader:
        loaded: list[Loaded] = []
        for queue in queues:
            loaded.append(loader.submit(_load, settings, queue, [each.queue for each in loaded]).result())
    devices = {each.queue: each.backend.spec.device for each in loaded}
    if len(set(devices.values())) > 1:
        raise SettingsError(
            f"one worker serves queues on one device, not on {devices}: start one for each with --queue"
        )
    return loaded


def _load(settings: Settings, queue: str, before: Sequence[str]) -> Loaded:
    try:
        backend = load_backend(settings.queue(queue))
        learned = backend.warm_up(settings.batch_limits(queue))
    except Exception as error:
        if not isinstance(device_fault(error) or error, DeviceOutOfMemory):
            raise
        beside = f" beside {', '.join(before)}" if before else ""
        model = settings.queue(queue).model
        raise SettingsError(f"model {model!r} of queue {queue} does not fit the memory{beside}: {error}") from error
    return Loaded(queue, backend, learned.best_tokens)


def choose_queues(settings: Settings, asked: Sequence[str]) -> list[str]:
    """Return the queues to serve, each once: those that were asked for, or all there are."""
    for queue in asked:
        settings.queue(queue)
    queues = list(dict.fromkeys(asked or settings.queues))
    if not queues:
        raise SettingsError("the settings have no queue to serve: name its model under [queues.<name>]")
    return queues


@contextmanager
def server_url(settings: Settings) -> Iterator[str]:
    """Give the URL of the configured server, or of the embedded one that runs under `data_dir`.

    Where neither is there, run the embedded server for as long as the block lasts.
    """
    try:
        url = resolve_url(settings)
    except ServerUnavailable:
        with EmbeddedServer(settings.data_dir) as server:
            yield server.url
    else:
        yield url


class PendingSignals:
    """Takes SIGTERM and SIGINT from the start of the process on, also before there is a worker to tell."""

    def __init__(self) -> None:
        self._count = 0
        self._receiver: Callable[[], None] | None = None

    def take(self, number: int, frame: FrameType | None) -> None:
        """The handler."""
        del number, frame
        self._count += 1
        if self._receiver is not None:
            self._receiver()
        elif self._count > 1:
            # Still loading: there is nothing in hand that could be lost.
            os._exit(ExitCode.INTERRUPTED)

    def deliver_to(self, receiver: Callable[[], None]) -> None:
        """Tell the receiver of each signal from now on, and of those that came before."""
        self._receiver = receiver
        for _ in range(self._count):
            receiver()


@contextmanager
def signals_kept() -> Iterator[PendingSignals]:
    """Handle SIGTERM and SIGINT by `PendingSignals` while the block lasts."""
    pending = PendingSignals()
    before = {number: signal.signal(number, pending.take) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield pending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def configure_logging(level: str) -> None:
    """Log to standard error."""
    logging.basicConfig(level=level.upper(), format=LOG_FORMAT, stream=sys.stderr)


def end_process(code: ExitCode) -> None:
    """Leave at once: a thread that still hangs in a batch must not keep the process."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    """Run the command line."""
    cli()
