"""Every error that Cordwood raises, each saying what its reader should do next."""

from __future__ import annotations

from dataclasses import dataclass


class CordwoodError(Exception):
    """The root: catch it to catch everything that Cordwood raises on purpose.

    Raised by a bulk submit, `submissions` says of each job of the call whether it was accepted.
    """

    submissions: tuple[Submission, ...] = ()


@dataclass(frozen=True, slots=True)
class Submission:
    """What became of one job of a submit call.

    Accepted jobs have a `state`: `new`, or that of the same job submitted before. The others have the `error`; after
    ServerUnavailable it is not known whether the job was accepted, and submitting it again with this ID is safe.
    """

    job_id: str
    state: str = ""
    error: CordwoodError | None = None

    @property
    def accepted(self) -> bool:
        """Whether the server has certainly taken the job."""
        return self.error is None


class SettingsError(CordwoodError):
    """A setting is wrong; the message names the key, the value and where it came from. Correct it and start again."""


class ServerUnavailable(CordwoodError):
    """No server answered. Nothing is known of the call in flight: repeat it with the same job IDs, which is safe."""


class ServerFull(CordwoodError):
    """The server is out of memory or close to it. The jobs were not accepted: wait and submit them again."""


class QueueFull(CordwoodError):
    """The queue is at its depth limit. The jobs were not accepted: wait and submit them again."""


class DeadlineUnmeetable(CordwoodError):
    """A deadline cannot be met and nothing was sent. Ask for a later one, or have more workers: both are in seconds.

    `expected_s` is when the job would be done, inf where nobody serves the queue; `index` its position in the call.
    """

    def __init__(self, message: str, *, expected_s: float, deadline_s: float, index: int | None = None) -> None:
        super().__init__(message)
        self.expected_s = expected_s
        self.deadline_s = deadline_s
        self.index = index


class InvalidInput(CordwoodError, ValueError):
    """An argument is not acceptable and nothing was sent. Correct it: `index` is the position of the job or text."""

    def __init__(self, message: str, *, index: int | None = None) -> None:
        super().__init__(message)
        self.index = index


class PayloadTooLarge(InvalidInput):
    """A job is over a size limit and nothing was sent. Cut it: `size` and `limit` are in bytes or inputs."""

    def __init__(self, message: str, *, size: int, limit: int, index: int | None = None) -> None:
        super().__init__(message, index=index)
        self.size = size
        self.limit = limit


class CodecError(CordwoodError, ValueError):
    """Bytes or a value cannot cross the wire: malformed, over a limit, of another version, or not finite."""


class MessageTooLarge(CodecError):
    """A message is over its limit of bytes; it has at least `size`. Send less."""

    def __init__(self, message: str, *, size: int) -> None:
        super().__init__(message)
        self.size = size


class JobError(CordwoodError):
    """One job did not end in a result; `job_id` names it."""

    def __init__(self, job_id: str, message: str) -> None:
        super().__init__(message)
        self.job_id = job_id


class JobConflict(JobError):
    """Another job with other contents already has this ID. Choose another ID."""


class JobNotFound(JobError):
    """No such job, or its result has expired, or it was wiped from the server. Submit it again if still wanted."""


class JobFailed(JobError):
    """The job's input is at fault, so no retry was made. `code` and the message say why: correct the input."""

    def __init__(self, job_id: str, message: str, *, code: str) -> None:
        super().__init__(job_id, message)
        self.code = code


class JobDead(JobError):
    """The job was given up after its last attempt and lies in the dead letters: mend the cause, submit it anew."""

    def __init__(self, job_id: str, message: str, *, code: str) -> None:
        super().__init__(job_id, message)
        self.code = code


class JobCancelled(JobError):
    """Somebody cancelled the job."""


class JobExpired(JobError):
    """The job's `expires` time passed before it had an outcome, while no worker was at it."""


class SpecMismatch(JobError):
    """What serves the queue is not what the caller expected; the message gives both sides."""


class WaitTimeout(CordwoodError, TimeoutError):
    """The time to wait is over and the jobs in `job_ids` have no outcome yet: they go on, wait again or cancel them."""

    def __init__(self, message: str, *, job_ids: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.job_ids = job_ids
