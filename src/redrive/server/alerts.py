"""Alerts: how each stands; silenced, and heard again."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import AfterValidator, Field

from redrive.domain.access import Role
from redrive.domain.alerting import LONGEST_SILENCE
from redrive.domain.durations import parse_duration
from redrive.server import documents
from redrive.server.answers import answer
from redrive.server.auditing import audited
from redrive.server.callers import caller_of, desk_of, route
from redrive.server.idempotency import IdempotentRoute
from redrive.server.inputs import Input, Name, Reason
from redrive.server.problems import not_found
from redrive.settings.alerts import rules_by
from redrive.work.alert_list import list_alerts

router = APIRouter(tags=["alerts"], route_class=IdempotentRoute)


def _lasting(text: str) -> str:
    if not timedelta() < parse_duration(text) <= LONGEST_SILENCE:
        raise ValueError("expected a duration up to 365d")
    return text


class SilenceAlert(Input):
    """Tell nobody of an alert for a while."""

    name: Name
    lasts: Annotated[
        str, Field(alias="for", max_length=50, examples=["2h"]), AfterValidator(_lasting)
    ]
    reason: Reason = ""


class HearAlert(Input):
    """Tell of an alert again."""

    name: Name


@router.get("/alerts", **route(Role.VIEWER, documents.Alerts))
async def list_all_alerts(request: Request) -> Response:
    """Every alert and how it stands, those that fire first; and sinks that have not taken all."""
    return answer(await _all(request))


@router.post("/alerts/silence", **route(Role.OPERATOR, documents.Alert))
async def silence_alert(request: Request, silence: SilenceAlert) -> Response:
    """Tell nobody of an alert for a while; how it stands goes on being judged."""
    await _one(request, silence.name)
    detail = {"name": silence.name, "for": silence.lasts, "reason": silence.reason}
    async with audited(request, "alerts.silence", detail):
        await desk_of(request).store.alerts.silence(
            silence.name,
            parse_duration(silence.lasts),
            silence.reason,
            caller_of(request).actor,
        )
    return answer(await _one(request, silence.name))


@router.post("/alerts/hear", **route(Role.OPERATOR, documents.Alert))
async def hear_alert(request: Request, hear: HearAlert) -> Response:
    """End the silence of an alert. Nothing happens if there was none."""
    await _one(request, hear.name)
    async with audited(request, "alerts.hear", {"name": hear.name}):
        await desk_of(request).store.alerts.end_silence(hear.name)
    return answer(await _one(request, hear.name))


async def _all(request: Request) -> dict[str, Any]:
    desk = desk_of(request)
    return await list_alerts(desk.store, rules_by(desk.settings.alert))


async def _one(request: Request, name: str) -> dict[str, Any]:
    for item in (await _all(request))["items"]:
        if item["name"] == name:
            found: dict[str, Any] = item
            return found
    raise not_found(f"alert {name!r}")
