"""The OpenAPI description, attacked by Schemathesis: no error of the service, no answer that it does not describe."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.shares import current, share_of
from tests.unit.service.api.running import wait_for
from weft.service.api.app import make_service
from weft.service.hub.hub import SessionHub

pytestmark = pytest.mark.ci  # thousands of requests

# No schema describes SQL, names that are free and sources that are allowed: a text may fit and still be refused.
EXCLUDED = [positive_data_acceptance]
LIVE = "/api/v1/queries/{name}/results/live"  # which does not end


@pytest.mark.parametrize(
    "mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda one: one.value
)
def test_every_operation_keeps_its_word(hub: SessionHub, url: str, mode: GenerationMode) -> None:
    """Whatever is sent that fits the description, or just does not."""
    description = make_service(hub).app.openapi()
    schema = schemathesis.openapi.from_dict(description).exclude(path=LIVE)
    rejection = schema.config.checks.negative_data_rejection
    rejection.expected_statuses = [*rejection.expected_statuses, "413"]  # too large is a refusal, too
    tried = 0
    for found in schema.get_all_operations():
        assert isinstance(found, Ok)
        cases = found.ok().as_strategy(generation_mode=mode)

        @seed(current().seed)
        @settings(
            max_examples=share_of(8), deadline=None, database=None, suppress_health_check=list(HealthCheck)
        )
        @given(case=cases)
        def attack(case: Any) -> None:
            nonlocal tried
            tried += 1
            case.call_and_validate(base_url=url, timeout=60, excluded_checks=EXCLUDED)

        with suppress(Unsatisfiable):  # an operation without parameters cannot be asked for wrongly
            attack()
    assert tried > share_of(8)
    assert hub.health().ready, "no request ends the session"
    wait_for(lambda: not hub._lanes._busy)


def test_every_operation_refuses_all_other_methods(hub: SessionHub, url: str) -> None:
    """As a problem document that says which there are."""
    description = make_service(hub).app.openapi()
    for template, operations in description["paths"].items():
        if template.endswith("/queries/plan"):
            continue  # which may also be a query of that name
        known = {method.upper() for method in operations}
        path = template.replace("{name}", "q").replace("{batch}", "0")
        for method in {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"} - known:
            found = httpx.request(method, f"{url}{path}")
            assert found.status_code == 405, (method, path)
            assert set(found.headers["allow"].split(", ")) == known
            assert found.headers["content-type"] == "application/problem+json"
