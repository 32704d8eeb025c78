"""`redrive doctor` where it cannot look: it says what it could not see, and never fails oddly."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from tests.services.commands import Redrive
from tests.services.plugin import Vhost


@pytest.fixture
def redrive(vhost: Vhost, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Redrive:
    settings = f'[broker]\nurl = "{vhost.url}"\nmanagement_url = "{vhost.management_url}"\n'
    redrive = Redrive(tmp_path, capsys, settings)
    assert redrive("topology", "apply").code == 0
    return redrive


def not_looked_at(redrive: Redrive, *arguments: str) -> list[dict[str, str]]:
    looked = redrive("doctor", "--output", "json", *arguments)
    # A pipeline must not take for healthy what could not be seen, though it was to be.
    missed = "management_url" in redrive.settings and looked.document["healthy"] is None
    assert (looked.code, looked.err) == (1 if missed else 0, "")
    assert looked.document["items"] == []
    unseen: list[dict[str, str]] = looked.document["notLookedAt"]
    return unseen


def test_without_the_management_api_redrives_own_queues_are_looked_at(redrive: Redrive) -> None:
    redrive.settings = redrive.settings.replace("management_url", "# ")
    yours, bindings = not_looked_at(redrive)
    assert yours["what"] == "your own queues, exchanges, bindings and policies"
    assert yours["why"] == "no [broker] management_url is set"
    assert bindings["why"] == "bindings can be read by the management API only"
    shown = redrive("doctor")
    assert "not seen your own queues, exchanges, bindings and policies\n" in shown.out
    assert "nothing found so far" in shown.out
    assert "Redrive's own queues only" in shown.out
    assert shown.code == 0
    assert redrive("doctor", "--output", "json").document["healthy"] is None


def test_a_management_api_that_does_not_answer_is_named(redrive: Redrive, vhost: Vhost) -> None:
    redrive.settings = redrive.settings.replace(vhost.management_url, "http://127.0.0.1:1")
    yours, _ = not_looked_at(redrive)
    assert yours["why"] == (
        "the management API at http://127.0.0.1:1 does not answer: connection refused"
    )
    assert redrive("doctor").code == 1


@pytest.mark.parametrize("tags", ["", "management"])
def test_a_user_with_few_rights_sees_what_it_may(redrive: Redrive, vhost: Vhost, tags: str) -> None:
    user = f"reader-{secrets.token_hex(4)}"
    vhost.node.api("PUT", f"users/{user}", {"password": "secret", "tags": tags})
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    vhost.node.api("PUT", f"permissions/{vhost.name}/{user}", everything)
    redrive.settings = redrive.settings.replace("guest:guest@", f"{user}:secret@")
    unseen = not_looked_at(redrive)
    if not tags:
        assert "Not management user" in unseen[0]["why"]
        assert "give the user the tag 'management'" in unseen[0]["remedy"]
    else:  # before 4.0 or so only administrators see feature flags
        assert [each["what"] for each in unseen] in ([], ["feature flags"])


def test_a_user_of_the_management_api_without_the_vhost_sees_nothing_of_it(
    redrive: Redrive, vhost: Vhost
) -> None:
    user = f"stranger-{secrets.token_hex(4)}"
    vhost.node.api("PUT", f"users/{user}", {"password": "secret", "tags": "management"})
    redrive.settings = redrive.settings.replace("http://", f"http://{user}:secret@")
    yours, _ = not_looked_at(redrive)
    assert "the management API refused GET" in yours["why"]
    assert "secret" not in yours["why"]


def test_a_user_without_any_permission_is_told_which_are_needed(
    redrive: Redrive, vhost: Vhost
) -> None:
    user = f"nobody-{secrets.token_hex(4)}"
    vhost.node.api("PUT", f"users/{user}", {"password": "secret", "tags": ""})
    nothing = {"configure": "^$", "write": "^$", "read": "^$"}
    vhost.node.api("PUT", f"permissions/{vhost.name}/{user}", nothing)
    redrive.settings = redrive.settings.replace("guest:guest@", f"{user}:secret@")
    looked = redrive("doctor", "--output", "json")
    assert looked.code == 1
    assert [item["check"] for item in looked.document["items"]] == ["permissions"]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ("guest:wrong@", "refused"),
        ("guest:guest@127.0.0.1:1/", "127.0.0.1:1"),
        ("no-such-vhost", "no-such-vhost"),
    ],
)
def test_a_broker_that_cannot_be_reached_is_one_line(
    redrive: Redrive, vhost: Vhost, settings: str, reason: str
) -> None:
    url = {
        "guest:wrong@": vhost.url.replace("guest:guest@", "guest:wrong@"),
        "guest:guest@127.0.0.1:1/": "amqp://guest:guest@127.0.0.1:1/",
        "no-such-vhost": vhost.url.replace(vhost.name, "no-such-vhost"),
    }[settings]
    looked = redrive("doctor", "--broker-url", url)
    assert (looked.code, looked.out) == (1, "")
    assert looked.err.count("\n") == 1
    assert reason in looked.err.lower()


def test_a_target_version_that_is_none_is_wrong_use(redrive: Redrive) -> None:
    looked = redrive("doctor", "--target-version", "newest")
    assert (looked.code, looked.out) == (2, "")
    assert "expected a version such as 4.3, got 'newest'" in looked.err


def test_a_broker_that_blocks_publishers_does_not_hold_up_the_doctor(
    redrive: Redrive, vhost: Vhost
) -> None:
    vhost.node.ctl("set_vm_memory_high_watermark", "0.0000001")
    try:
        looked = redrive("doctor", "--output", "json")
    finally:
        vhost.node.ctl("set_vm_memory_high_watermark", "0.3")
    unseen = [each["what"] for each in looked.document["notLookedAt"]]
    assert (looked.code, "permissions" in unseen) == (0, True)
