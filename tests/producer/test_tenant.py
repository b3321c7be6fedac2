"""What a tenant may be called."""

from __future__ import annotations

from typing import Any

import pytest

from cordwood.errors import InvalidInput
from cordwood.job import Job, JobLimits, encode_job


def tenant_of(tenant: Any) -> str:
    """Encode the second job of a call, with this tenant, and return the tenant that would be sent."""
    limits, defaults = JobLimits(max_payload_bytes=1000, max_inputs=1), Job(inputs=(), max_attempts=1)
    return encode_job(Job(inputs=("x",), tenant=tenant), limits, defaults, index=1).tenant


@pytest.mark.parametrize("tenant", ["a", "acme.example/7", "ä" * 32])
def test_a_tenant_is_sent_as_it_is(tenant: str) -> None:
    """Any short name without spaces will do."""
    assert tenant_of(tenant) == tenant
    assert tenant_of(None) == ""


@pytest.mark.parametrize(
    ("tenant", "why"),
    [
        ("", "0 bytes"),
        ("a b", "'a b'"),
        ("x" * 65, "64 bytes"),
        ("ä" * 33, "66 bytes"),
        ("\udc80", "surrogate"),
        (7, "int"),
    ],
)
def test_what_no_tenant_can_be_called_is_refused(tenant: Any, why: str) -> None:
    """The error says what is wrong, and with which job."""
    with pytest.raises(InvalidInput, match=rf"a tenant.*{why}.*\(job 1\)"):
        tenant_of(tenant)
