"""One random run: a fleet, its applications and everything that can go wrong, from one seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

from cordwood.calls import submit_call, sweep_call, watch_call
from cordwood.errors import CordwoodError
from cordwood.job import Job, JobLimits, encode_job
from cordwood.keys import ALL_LANES, GROUP, LANES
from tests.interleaving.actors import Actor
from tests.interleaving.world import Fault, Violation, World

STEPS: Final = 500
CHECK_EVERY: Final = 25
MAX_DEPTH: Final = 10_000
LIMITS: Final = JobLimits(max_payload_bytes=10_000, max_inputs=4)
DEFAULTS: Final = Job(inputs=(), max_attempts=3, result_ttl_s=100.0)
MAX_QUIET_ROUNDS: Final = 200
FAULTS: Final = (*[Fault.NONE] * 7, Fault.REFUSED, Fault.LOST_REPLY, Fault.TWICE)


class Run:
    """A world with some workers in it, and the next random step."""

    def __init__(self, redis: Any, seed: int, replaced: Mapping[str, str]) -> None:
        self.world = World(redis, f"run{seed}", replaced)
        self._random = Random(seed)
        self._names = 0
        self._actors: list[Actor] = []
        self._memory_refused = False
        for _ in range(3):
            self._hire()
        self._fleet_steps: list[Callable[[Actor], None]] = [
            *[Actor.beat] * 6,
            *[Actor.read] * 6,
            *[Actor.pump] * 3,
            *[Actor.start] * 8,
            Actor.mark,
            *[Actor.finish] * 5,
            *[Actor.fail] * 2,
            Actor.release,
            *[Actor.renew] * 2,
            *[Actor.reclaim] * 3,
            *[Actor.sweep] * 3,
        ]
        self._other_steps: list[Callable[[], None]] = [
            *[self._submit] * 8,
            *[self._advance] * 8,
            *[self._cancel] * 2,
            self._watch,
            *[self._crash] * 2,
            *[self._freeze] * 2,
            self._jump,
            self._toggle_memory,
            self._lose_entry,
            self._lose_stream,
        ]

    def steps(self, count: int) -> None:
        """Make steps, with a look at everything now and then."""
        for number in range(count):
            self._step()
            if number % CHECK_EVERY == 0:
                self.world.check()
        self.world.check()

    def settle(self) -> None:
        """Let one last worker do all that is left, and check that everything ends."""
        self._allow_memory()
        self._actors.clear()
        last = self._hire()
        last.repair()
        # After the clock was set back, what was due lies in the future: that time has to come.
        self.world.advance(self.world.latest_ms - self.world.now_ms)
        for _ in range(MAX_QUIET_ROUNDS):
            self.world.advance(700)
            if not last.work_off() and self.world.accepted.keys() == self.world.ended.keys():
                break
        self.world.check()
        self.world.check_quiet()
        pending = {lane: last.pending(lane) for lane in ALL_LANES}
        if any(pending.values()):
            raise Violation(f"entries are pending for nobody: {pending}")

    def _step(self) -> None:
        try:
            if self._random.random() < 0.65:
                actor = self._random.choice(self._actors)
                step = self._random.choice(self._fleet_steps)
                if actor.frozen and step is not Actor.finish:
                    return
                actor.connection.next_fault[:] = [self._random.choice(FAULTS)]
                step(actor)
            else:
                self._random.choice(self._other_steps)()
        except CordwoodError:
            # Refused and lost calls are the point: whoever made them goes on, or has just died of it.
            pass
        finally:
            for actor in self._actors:
                actor.connection.next_fault.clear()

    def _hire(self) -> Actor:
        self._names += 1
        actor = Actor(self.world, f"worker-{self._names}", self._random)
        self._actors.append(actor)
        actor.repair()
        actor.beat()
        return actor

    def _submit(self) -> None:
        jobs = []
        for _ in range(self._random.randint(1, 6)):
            known = list(self.world.accepted)
            again = known and self._random.random() < 0.2
            job_id = self._random.choice(known) if again else f"job-{len(known)}-{self._random.randint(0, 10**9)}"
            job = Job(
                inputs=(f"text of {job_id}",),
                id=job_id,
                lane=self._random.choice(LANES),
                tenant=self._random.choice([None, "a", "b"]),
                delay_s=self._random.choice([0, 0, 0, 0.3]),
                expires_s=self._random.choice([None, None, None, 2.0]),
                max_attempts=self._random.choice([None, 1]),
            )
            jobs.append(encode_job(job, LIMITS, DEFAULTS))
        call = submit_call(self.world.keys, jobs, max_depth=MAX_DEPTH, waiter_mask=self._random.choice([1, 2, 128]))
        self.world.call(call, self._random.choice(FAULTS))

    def _cancel(self) -> None:
        if self.world.accepted:
            job_id = self._random.choice(list(self.world.accepted))
            self.world.call(sweep_call("cancel", self.world.keys, [job_id]), self._random.choice(FAULTS))

    def _watch(self) -> None:
        ids = list(self.world.accepted)[-5:]
        self.world.call(watch_call(self.world.keys, ids, waiter_mask=4), self._random.choice(FAULTS))

    def _advance(self) -> None:
        self.world.advance(self._random.choice([1, 20, 100, 400]))

    def _jump(self) -> None:
        """The server's clock is set, forwards or backwards."""
        self.world.advance(self._random.choice([-3_600_000, -1500, 2500, 3_600_000]))

    def _crash(self) -> None:
        """A worker dies between two commands; another one with another name takes its place."""
        self._actors.remove(self._random.choice(self._actors))
        self._hire()

    def _freeze(self) -> None:
        """A worker stops as by SIGSTOP, or one that did goes on with what it held."""
        actor = self._random.choice(self._actors)
        if actor.frozen or sum(not other.frozen for other in self._actors) > 1:
            actor.frozen = not actor.frozen

    def _toggle_memory(self) -> None:
        self._memory_refused = not self._memory_refused
        self.world.redis.config_set("maxmemory", "1mb" if self._memory_refused else "0")

    def _allow_memory(self) -> None:
        self._memory_refused = False
        self.world.redis.config_set("maxmemory", "0")

    def _lose_entry(self) -> None:
        """Somebody deletes an entry by hand, and an operator has it repaired."""
        stream = self.world.keys.lane(self._random.choice(ALL_LANES))
        entries = self.world.redis.xrange(stream, count=3)
        if entries:
            self.world.redis.xdel(stream, self._random.choice(entries)[0])
        aside = self.world.keys.aside(self._random.choice(LANES))
        waiting = self.world.redis.zrange(aside, 0, 2)
        if waiting:
            self.world.redis.zrem(aside, self._random.choice(waiting))
        self._repair()

    def _lose_stream(self) -> None:
        """Somebody deletes a stream, or only its group; workers find that out at their next read."""
        stream = self.world.keys.lane(self._random.choice(ALL_LANES))
        if self._random.random() < 0.5:
            self.world.redis.delete(stream)
        else:
            self.world.redis.xgroup_destroy(stream, GROUP)
        self._repair()

    def _repair(self) -> None:
        self._allow_memory()
        self._random.choice(self._actors).repair()


def run_seed(redis: Any, seed: int, replaced: Mapping[str, str] | None = None, *, steps: int = STEPS) -> World:
    """Make one run and return its world; raises Violation, with the seed, if an invariant does not hold."""
    run = Run(redis, seed, replaced or {})
    try:
        run.steps(steps)
        run.settle()
    except Violation as violation:
        tail = "\n  ".join(run.world.history[-12:])
        raise Violation(f"seed {seed}: {violation}\nthe last calls:\n  {tail}") from violation
    finally:
        redis.config_set("maxmemory", "0")
        redis.flushall()
    return run.world
