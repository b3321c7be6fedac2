"""Cordwood's light package: put embed and classify jobs onto Redis streams, and read their results."""

from __future__ import annotations

from cordwood.async_client import AsyncClient
from cordwood.client import Client
from cordwood.errors import (
    CordwoodError,
    DeadlineUnmeetable,
    InvalidInput,
    JobCancelled,
    JobConflict,
    JobDead,
    JobError,
    JobExpired,
    JobFailed,
    JobNotFound,
    PayloadTooLarge,
    QueueFull,
    ServerFull,
    ServerUnavailable,
    SettingsError,
    SpecMismatch,
    Submission,
    WaitTimeout,
)
from cordwood.job import Job
from cordwood.options import EmbedOptions
from cordwood.result import JobRecord, Outcome, Outputs, Result

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "Client",
    "CordwoodError",
    "DeadlineUnmeetable",
    "EmbedOptions",
    "InvalidInput",
    "Job",
    "JobCancelled",
    "JobConflict",
    "JobDead",
    "JobError",
    "JobExpired",
    "JobFailed",
    "JobNotFound",
    "JobRecord",
    "Outcome",
    "Outputs",
    "PayloadTooLarge",
    "QueueFull",
    "Result",
    "ServerFull",
    "ServerUnavailable",
    "SettingsError",
    "SpecMismatch",
    "Submission",
    "WaitTimeout",
    "__version__",
]
