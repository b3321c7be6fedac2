"""Workers of a simulated fleet: the real broker classes on a connection that misbehaves as told."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from cordwood.calls import record_keys
from cordwood.keys import GROUP
from cordwood.steps import Argument, ScriptCall
from cordwood_worker.allowance import allow
from cordwood_worker.broker.attempts import Attempts, Done
from cordwood_worker.broker.attempts import Fault as JobFault
from cordwood_worker.broker.connection import QueueConnection
from cordwood_worker.broker.lanes import LaneReader
from cordwood_worker.broker.upkeep import Upkeep
from cordwood_worker.entry import Attempt, Entry, Refusal
from cordwood_worker.held import Held, Room
from cordwood_worker.lanes import LanePolicy
from tests.interleaving.world import Fault, World

DEAD_TTL_S = 10.0**7
HEARTBEAT_S, TTL_S = 0.2, 1.0


@dataclass(frozen=True)
class FaultyConnection(QueueConnection):
    """A connection whose next script call meets the fault in `next_fault`."""

    world: World
    next_fault: list[Fault] = field(default_factory=list)

    def call(self, name: str, job_ids: Iterable[str], args: Iterable[Argument]) -> Any:
        """Run the call in the world, under the fault that is due."""
        fault = self.next_fault.pop() if self.next_fault else Fault.NONE
        return self.world.call(ScriptCall(name, record_keys(self.keys, job_ids), tuple(args)), fault)


class Actor:
    """One worker: what it was given, what it started, and everything it can do next."""

    def __init__(self, world: World, name: str, random: Random) -> None:
        self.name = name
        self.frozen = False
        self.connection = FaultyConnection(world.redis, world.keys, name, world)
        self._random = random
        self._held = Held(Room(10_000, 10**9))
        self._waiting: list[Entry] = []
        self._started: list[Attempt] = []
        self._attempts = Attempts(self.connection, DEAD_TTL_S, lambda: 0.0)
        self._reader = LaneReader(self.connection, lambda: 0.0)
        self._upkeep = Upkeep(self.connection, heartbeat_s=HEARTBEAT_S, ttl_s=TTL_S, clock=lambda: 0.0)

    def beat(self) -> None:
        """Show that it lives."""
        self._upkeep.beat(b"")

    def read(self) -> None:
        """Fetch entries; sometimes the reply is lost."""
        room = self._random.randint(1, 8)
        entries = self._reader.read(allow(LanePolicy(), {}, room, room))
        if self._random.random() < 0.9:
            self._waiting += self._held.add(entries)

    def pump(self) -> None:
        """Let jobs in whose tenant's turn it is."""
        self._reader.pump(self._random.randint(1, 8))

    def start(self) -> None:
        """Begin attempts at some of what it was given."""
        entries = self._some(self._waiting)
        answers = self._attempts.start(
            entries, stage=self._random.choice(["", "tokenise"]), spare_suspects=self._random.random() < 0.5
        )
        spared = [each.entry for each in answers if isinstance(each, Refusal) and each.reason == "suspect"]
        self._waiting = [entry for entry in self._waiting if entry not in entries or entry in spared]
        begun = [answer for answer in answers if isinstance(answer, Attempt)]
        self._held.begin(begun)
        over = [each.entry for each in answers if isinstance(each, Refusal) and each.reason != "suspect"]
        self._held.remove(over)
        self._started += begun

    def mark(self) -> None:
        """Say what it is handling."""
        self._attempts.mark(self._random.choice(["tokenise", "run"]), [item.job_id for item in self._started])

    def finish(self) -> None:
        """End some attempts well."""
        some = self._some(self._started)
        self._attempts.finish([Done(item, json.dumps(item.job_id).encode()) for item in some])
        self._forget(some)

    def fail(self) -> None:
        """End some attempts as failed or dead, or put them aside for another."""
        some = self._some(self._started)
        faults = [JobFault(item, "code", "text") for item in some]
        choice = self._random.choice(["fail", "bury", "retry"])
        if choice == "fail":
            self._attempts.fail(faults)
        elif choice == "bury":
            self._attempts.bury(faults)
        else:
            self._attempts.retry(faults, self._random.choice([0, 10, 500]))
        self._forget(some)

    def release(self) -> None:
        """Hand some of what it holds back, started or not."""
        held = self._held.everything()
        some = self._random.sample(held, self._random.randint(0, len(held)))
        self._attempts.release(some)
        entries = [entry for entry, _ in some]
        self._held.remove(entries)
        self._waiting = [entry for entry in self._waiting if entry not in entries]
        self._started = [item for item in self._started if item.entry not in entries]

    def renew(self) -> None:
        """Renew, and take up what it does not know of."""
        self._waiting += self._held.add(self._reader.fetch(self._held.compare(self._upkeep.renew())))

    def reclaim(self) -> None:
        """Take over from the dead."""
        self._waiting += self._held.add(self._upkeep.reclaim(self._random.randint(1, 20)).entries)

    def sweep(self) -> None:
        """Do one of the janitor's other duties."""
        self._random.choice([self._upkeep.promote, self._upkeep.expire, self._upkeep.reap])()

    def repair(self) -> None:
        """Create lost groups again, then give lost jobs their places back."""
        self._reader.create_groups()
        self._upkeep.repair()

    def work_off(self) -> bool:
        """Do a round of everything without faults, and finish all that comes; return whether anything was there."""
        self.beat()
        self._upkeep.promote()
        self._upkeep.expire()
        self._waiting += self._held.add(self._upkeep.reclaim(500).entries)
        self._reader.pump(100)
        self._waiting += self._held.add(self._reader.read(allow(LanePolicy(), {}, 500, 500)))
        self.renew()
        busy = bool(self._waiting or self._started)
        while self._waiting:
            self.start()
        while self._started:
            self.finish()
        self._upkeep.reap()
        return busy

    def pending(self, lane: str) -> int:
        """How many entries a lane's group has given out."""
        answer: Any = self.connection.redis.xpending(self.connection.keys.lane(lane), GROUP)
        return int(answer["pending"])

    def _some(self, items: list[Any]) -> list[Any]:
        return items[: self._random.randint(1, len(items))] if items else []

    def _forget(self, attempts: list[Attempt]) -> None:
        self._held.remove(item.entry for item in attempts)
        self._started = [item for item in self._started if item not in attempts]
