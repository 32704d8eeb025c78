"""A queue that the doctor says to make anew: whatever goes wrong on the way, no message is lost."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.services.commands import Redrive
from tests.services.foreign import Foreign
from tests.services.patient import Patient

BODIES = [b"0", b"1", b"2"]
NAME = "it's.failed"
MEANWHILE = f"{NAME}.rebuilding"
CHECKS = {"classic": "classic-dead-letters", "quorum": "delivery-limit"}


@pytest.fixture
def patient(foreign: Foreign, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Patient:
    vhost = foreign.vhost
    settings = f'[broker]\nurl = "{vhost.url}"\nmanagement_url = "{vhost.management_url}"\n'
    redrive = Redrive(tmp_path, capsys, settings)
    assert redrive("topology", "apply").code == 0
    return Patient(foreign, redrive, tmp_path)


def ill(patient: Patient, kind: str) -> str:
    """A queue with messages that is to be made anew, and the line that does."""
    if kind == "classic":
        patient.foreign.declare(NAME, "classic", dead_letter_exchange="retry-exchange")
    else:
        patient.foreign.declare(NAME, delivery_limit=20)
    patient.foreign.work_at(NAME, BODIES)
    (line,) = patient.diagnosed(CHECKS[kind], NAME)["commands"]
    assert isinstance(line, str)
    return line


def held_by(patient: Patient, *queues: str) -> list[bytes]:
    """All that is in these queues, sorted; they are empty afterwards."""
    found = []
    with patient.foreign.channel() as channel:
        for queue in queues:
            while (got := channel.basic_get(queue, auto_ack=True)[2]) is not None:
                found.append(got)
    return sorted(found)


def test_the_queue_is_made_anew_with_its_messages(patient: Patient) -> None:
    line = ill(patient, "quorum")
    assert line.count("--spend-deliveries") == (1 if patient.version < (4, 3) else 0)
    patient.run(line)
    patient.is_cured("delivery-limit", NAME)
    assert MEANWHILE not in [each["name"] for each in patient.foreign.queues()]
    assert held_by(patient, NAME) == BODIES


def test_nothing_is_deleted_where_the_move_fails(patient: Patient) -> None:
    line = ill(patient, "quorum")
    patient.redrive.settings = '[broker]\nurl = "amqp://127.0.0.1:1"\n'
    done = patient.attempt(line)
    assert done.returncode == 1
    assert held_by(patient, NAME) == BODIES


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_queue_of_which_somebody_holds_a_message_is_not_deleted(
    patient: Patient, kind: str
) -> None:
    line = ill(patient, kind)
    with patient.foreign.channel() as channel:
        assert channel.basic_get(NAME)[2] == b"0"
        done = patient.attempt(line)
    assert done.returncode == 1
    assert f"{NAME} is not deleted" in done.stderr
    assert held_by(patient, NAME, MEANWHILE) == BODIES


def test_a_queue_that_got_a_message_meanwhile_is_not_deleted_and_the_next_time_is(
    patient: Patient,
) -> None:
    line = ill(patient, "quorum")
    late = patient.folder / "late.py"
    late.write_text(
        "import pika\n"
        f"with pika.BlockingConnection(pika.URLParameters({patient.foreign.vhost.url!r})) as to:\n"
        "    channel = to.channel()\n"
        "    channel.confirm_delivery()\n"
        f"    channel.basic_publish('', {NAME!r}, b'3', mandatory=True)\n"
    )
    delete = line.index("{ for s in")
    done = patient.attempt(f"{line[:delete]}{sys.executable} {late} && {line[delete:]}")
    assert done.returncode == 1
    assert f"{NAME} is not deleted" in done.stderr
    patient.foreign.shows(NAME, 1)
    patient.cure("delivery-limit", NAME)
    assert held_by(patient, NAME) == [*BODIES, b"3"]
