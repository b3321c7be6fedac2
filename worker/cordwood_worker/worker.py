"""One worker: serves its queues on one device, and stops in the right order."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from threading import Condition, Event, Thread
from typing import TYPE_CHECKING, Final

import cordwood
from cordwood.errors import CordwoodError
from cordwood.keys import queue_keys
from cordwood_worker.backends import Backend, DeviceBroken
from cordwood_worker.exit_codes import ExitCode
from cordwood_worker.fetch import BLOCK_MS
from cordwood_worker.flow import Signals
from cordwood_worker.line import Line, batch_limits, build_engine, build_line, open_flow, open_server
from cordwood_worker.loop import Backoff, Loop, run_loop

if TYPE_CHECKING:
    from cordwood.settings import Settings
    from cordwood_worker.flow import Flow

BURST_IDLE_READS: Final = 2
"""With `burst`: reads in a row that found nothing, before the worker takes the queue for empty."""
CHECK_S: Final = 0.1
READ_ENDS_S: Final = BLOCK_MS / 1000 + 0.5
"""After this the last read has ended, if the server is there at all."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A queue to be served, the backend of its model, and the size of batches that this found best, 0 for no limit."""

    queue: str
    backend: Backend
    best_tokens: int = 0


class Worker:
    """Fetches jobs of its queues, runs them in batches and stores their outcomes, until it is told to stop.

    Its threads: for each queue fetch, prepare and finish, one for each stage, and heartbeat, renewal and janitor beside
    them; for all queues together run, so that one batch computes while the next is made ready and the last is stored.
    With a device that computes beside the CPU there is a stage thread too.
    """

    def __init__(self, settings: Settings, queues: Sequence[Loaded], url: str) -> None:
        self.consumer = f"{socket.gethostname()}.{os.getpid()}.{secrets.token_hex(4)}"
        self._settings = settings
        self._signals = Signals()
        self._stops_asked = 0
        self._ended_early = Event()
        self._code = ExitCode.CLEAN
        self._started_s = time.time()
        changed = Condition()
        self._lines = [self._make_line(loaded, url, changed) for loaded in queues]
        self._engine = build_engine(self._lines, self._signals, changed)
        self._threads: dict[str, Thread] = {}

    def _make_line(self, loaded: Loaded, url: str, changed: Condition) -> Line:
        settings, queue, backend = self._settings, loaded.queue, loaded.backend
        server = open_server(settings, url, queue_keys(queue), self.consumer)
        flow = open_flow(settings, batch_limits(settings, queue, loaded.best_tokens), backend, changed)
        signals = self._signals.of_another_queue()
        return build_line(settings, queue, server, flow, backend, signals, info=lambda: self.info(backend, flow))

    def stop(self) -> None:
        """Ask it to stop after the batch in hand; asked again, to stop now. Safe in a signal handler.

        It takes no lock, not even an event's: the handler may interrupt the very thread that holds it.
        """
        self._stops_asked += 1

    def info(self, backend: Backend, flow: Flow) -> dict[str, object]:
        """What the registry of a queue shows of this worker."""
        spec, costs, max_tokens = backend.spec, flow.costs, flow.hopper.max_tokens
        return {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "version": cordwood.__version__,
            "started_ms": round(self._started_s * 1000),
            "task": spec.task,
            "model": spec.model,
            "fingerprint": spec.fingerprint,
            "device": spec.device,
            "precision": spec.precision,
            "backend": spec.backend,
            "packed": spec.packed,
            "held": len(flow.held),
            "max_batch_tokens": max_tokens,
            "tokens_per_s": costs.tokens_per_s(max_tokens),
            "tokens_per_job": flow.lengths.tokens_per_job,
            "tokens_per_hint": flow.lengths.tokens_per_hint,
            "prepare_s": flow.pace.prepare.mean,
            "gap_s": flow.pace.gap.mean,
            "store_s": flow.pace.store.mean,
            "lane_weights": self._settings.lane_weights,
            "cost": asdict(costs.coefficients),
            "cost_error": costs.error,
        }

    def run(self, *, burst: bool = False) -> ExitCode:
        """Work until asked to stop, or with `burst` until the queues are empty; return how it ended."""
        waiting, backoff = self._lines, Backoff()
        while not self._is_stopping and not (burst and self._is_burst_over()):
            if not waiting:
                self._ended_early.wait(CHECK_S)
                continue
            # A queue that cannot be registered keeps none of the others from being served.
            registered = [line for line in waiting if self._register(line)]
            self._start([loop for line in registered for loop in self._loops_of(line)])
            waiting = [line for line in waiting if line not in registered]
            if registered and "run" not in self._threads:
                self._start(self._loops_of_engine())
            if waiting:
                self._pause(backoff.next_s())
            else:
                log.info("worker %s is ready", self.consumer)
        return self._shut_down() if self._threads else ExitCode.CLEAN

    def _start(self, loops: Sequence[tuple[str, Loop, Event]]) -> None:
        for name, loop, stop in loops:
            self._threads[name] = Thread(target=self._guard, args=(loop, stop), name=f"cordwood-{name}", daemon=True)
            self._threads[name].start()

    @property
    def _is_stopping(self) -> bool:
        return self._stops_asked > 0 or self._ended_early.is_set()

    @property
    def _is_cut_short(self) -> bool:
        return self._stops_asked > 1 or self._ended_early.is_set()

    def _loops_of_engine(self) -> list[tuple[str, Loop, Event]]:
        engine, signals = self._engine, self._signals
        if engine.stager is None:
            return [("run", engine.runner, signals.stop_working)]
        return [("run", engine.runner, signals.stop_working), ("stage", engine.stager, signals.stop_working)]

    def _loops_of(self, line: Line) -> list[tuple[str, Loop, Event]]:
        queue, signals = line.queue, line.signals
        return [
            (f"heartbeat-{queue}", line.heartbeat, signals.stop_all),
            (f"finish-{queue}", line.finisher, signals.stop_all),
            (f"prepare-{queue}", line.preparer, signals.stop_working),
            (f"renewal-{queue}", line.renewal, signals.stop_fetching),
            (f"janitor-{queue}", line.janitor, signals.stop_fetching),
            (f"fetch-{queue}", line.fetcher, signals.stop_fetching),
        ]

    def _register(self, line: Line) -> bool:
        """Show that it lives before it reads; return whether the server was there to see it."""
        spec = line.backend.spec
        published: dict[str, str | int] = {
            "task": spec.task,
            "model": spec.model,
            "fingerprint": spec.fingerprint,
            "dim": spec.dim,
            "max_tokens": spec.max_tokens,
            "precision": spec.precision,
            "backend": spec.backend,
            "max_inputs": self._settings.max_inputs,
            "max_payload_bytes": self._settings.max_payload_bytes,
        }
        try:
            line.heartbeat.beat()
            line.server.upkeep.announce(published)
            if line.server.reader.create_groups():
                line.signals.repair_wanted.set()
        except CordwoodError as error:
            log.warning("queue %s is not registered yet: %s", line.queue, error)
            # Some groups may have been created before the error: the next look would not tell.
            line.signals.repair_wanted.set()
            return False
        return True

    def _pause(self, seconds: float) -> None:
        """Wait, but not on when it is asked to stop."""
        end_s = time.monotonic() + seconds
        while not self._is_stopping and (left_s := end_s - time.monotonic()) > 0:
            self._ended_early.wait(min(left_s, CHECK_S))

    def _guard(self, loop: Loop, stop: Event) -> None:
        """Run one loop; whatever ends it early ends the worker: a process must not live on without one of its parts."""
        try:
            run_loop(loop, stop, log)
        except DeviceBroken as error:
            log.critical("the device is broken, nothing of its batch is acknowledged: %s", error)
            self._end_early(ExitCode.DEVICE_BROKEN)
        except Exception:
            log.exception("%s ended by an error", type(loop).__name__)
            self._end_early(ExitCode.CRASHED)

    def _end_early(self, code: ExitCode) -> None:
        self._code = code
        self._ended_early.set()

    def _is_burst_over(self) -> bool:
        return self._held == 0 and all(line.fetcher.idle_reads >= BURST_IDLE_READS for line in self._lines)

    @property
    def _held(self) -> int:
        return sum(len(line.flow.held) for line in self._lines)

    def _shut_down(self) -> ExitCode:
        """Stop in the order of the flow: fetch nothing, begin nothing, finish the batch in hand, hand back the rest.

        After a crash nothing is handed back and the marks stay: others take over, and know what was on the device.
        """
        deadline_s = time.monotonic() + self._settings.drain_s
        self._signals.stop_fetching.set()
        self._signals.stop_working.set()
        for line in self._lines:
            line.flow.hopper.close()
        log.info("stopping, with %d entries in hand", self._held)
        drained = self._code is ExitCode.CLEAN and self._drain(deadline_s)
        self._signals.stop_all.set()
        for line in self._lines:
            try:
                self._leave(line)
            except CordwoodError as error:
                log.warning("the server was not told of the end, others take over after the heartbeat's TTL: %s", error)
        if self._code is ExitCode.CLEAN and not drained:
            self._code = ExitCode.DRAIN_TIMED_OUT
        return self._code

    def _leave(self, line: Line) -> None:
        """Hand back what is left of a queue, unless after a crash, and show that this worker serves it no more."""
        if self._code is ExitCode.CLEAN:
            # An open read would be given what is being handed back.
            self._await_end(f"fetch-{line.queue}", f"renewal-{line.queue}", f"janitor-{line.queue}")
            handed_back = line.server.attempts.release(line.flow.held.everything())
            log.info("handed back %d entries", len(handed_back))
        self._await_end(f"heartbeat-{line.queue}")
        line.server.upkeep.withdraw()

    def _await_end(self, *names: str) -> None:
        """Wait for these threads, but no longer than a read may take: a server that is away must not delay the end."""
        deadline_s = time.monotonic() + READ_ENDS_S
        for name in names:
            if name in self._threads:
                self._threads[name].join(max(0.0, deadline_s - time.monotonic()))

    def _drain(self, deadline_s: float) -> bool:
        """Wait for the batch in hand and for what is computed to be stored; False if time or patience ended first."""
        working = {"run", *(f"prepare-{line.queue}" for line in self._lines)} & self._threads.keys()
        while time.monotonic() < deadline_s and not self._is_cut_short:
            busy = any(self._threads[name].is_alive() for name in working)
            if not busy and all(line.finisher.is_idle for line in self._lines):
                return True
            self._ended_early.wait(CHECK_S / 5)
        return False
