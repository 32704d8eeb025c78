"""No password in what people get to see, however it was written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.domain.masking import mask_text, mask_url


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("amqp://guest:hunter2@127.0.0.1:5672/", "amqp://guest:****@127.0.0.1:5672/"),
        ("amqp://u:hunter2@[::1]:5672/v", "amqp://u:****@[::1]:5672/v"),
        ("amqp://u:hunter2@a/,amqps://v:hunter2@b/", "amqp://u:****@a/,amqps://v:****@b/"),
        ("amqp://u:hunter2@a, amqp://v:hunter2@b", "amqp://u:****@a, amqp://v:****@b"),
        (
            "postgresql://h/db?user=u&password=hunter2&x=1",
            "postgresql://h/db?user=u&password=****&x=1",
        ),
        ("amqp://h/?PASSWORD=hunter2", "amqp://h/?PASSWORD=****"),
        ("postgresql://h/?pasword=hunter2&x=1", "postgresql://h/?pasword=****&x=1"),
        ("postgresql://h/?sslpasswrod=hunter2", "postgresql://h/?sslpasswrod=****"),
        ("pasphrase = hunter2, passive=true", "pasphrase = **** passive=true"),
        ("host=db password='my hunter2' user=u", "host=db password=**** user=u"),
        ("amqp://me@corp:hunter2@host/", "amqp://me@corp:****@host/"),
        ("amqp://user:hunter2", "amqp://user:****"),
        ("user:hunter2@host", "user:****@host"),
        ("user:hunter2:hunter2@host", "user:****@host"),
        ("amqp//user:hunter2@host", "amqp//user:****@host"),
        ("amqp:user:hunter2@host", "amqp:****@host"),
    ],
)
def test_a_password_is_masked_also_where_the_url_is_wrong(url: str, masked: str) -> None:
    assert mask_url(url) == masked


@pytest.mark.parametrize(
    "url",
    [
        "amqp://127.0.0.1:5672/",
        "amqp://user@host:5672/",
        "amqp://[::1]:5672/",
        "amqp://[::1]/",
        "amqp://a:5672,b:5672",
        "sqlite:////var/lib/redrive/redrive.db",
        "many",
    ],
)
def test_a_url_without_password_is_shown_as_it_is(url: str) -> None:
    assert mask_url(url) == url


@given(
    st.text(alphabet=st.characters(exclude_characters="*"), min_size=1).filter(
        lambda password: "://" not in password
    )
)
def test_nothing_between_user_and_host_is_shown_whatever_the_password_holds(password: str) -> None:
    assert mask_url(f"amqp://user:{password}@host/vhost") == "amqp://user:****@host/vhost"


def test_what_is_masked_stays_as_it_is_when_masked_again() -> None:
    once = mask_url("amqp://u:hunter2@a/,amqp://v:hunter2")
    assert mask_url(once) == mask_text(once) == once


def test_urls_within_a_sentence_are_masked() -> None:
    sentence = (
        "cannot reach 'amqp://u:hunter2@h/' (password=hunter2), nor see foo:bar@baz: try again"
    )
    assert mask_text(sentence) == (
        "cannot reach 'amqp://u:****@h/' (password=**** nor see foo:bar@baz: try again"
    )
