"""The OpenAPI description, attacked by Schemathesis: no error of the service, no answer that it does not describe."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.shares import current, share_of
from weft.service.api.app import make_service
from weft.service.hub.hub import SessionHub

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
