"""Every error that leaves Redrive, as one tree.

    RedriveError                what is wrong; `.remedy` says what to do
    ├── SettingsError           a setting is missing, misspelt or has a wrong value
    ├── MalformedData           bytes that are not what AMQP says they should be
    ├── Unpublishable           a message that no broker would take; it was not sent
    ├── PolicyRefused           a policy that the table cannot hold, or that could not be meant
    ├── CursorRefused           a place in a list that is none
    ├── OrderRefused            a sweep or a move that could not be meant; nothing was touched
    ├── TransitionRefused       a change of a letter's state that its life does not have
    ├── ColdStorageError        a folder that cannot be written, or a file of it that is not sound
    ├── LastOneRefused          a user or token without which nobody, or no admin, could log in
    ├── CannotListen            the address of the API cannot be had
    ├── SinkFailed              a message about an alert did not arrive
    ├── CountChanged            letters that match are not as many as somebody was shown
    ├── EditRefused             a change of a letter's message that cannot be made; none was
    │   ├── PatchDoesNotApply   ... because of what the message is: the reason says which part
    │   └── EditedMeanwhile     ... because somebody else changed it since it was read
    ├── NotedMeanwhile          a note that somebody else wrote since it was read; theirs stands
    ├── StoreError              anything between us and the store, or the policy table
    │   ├── StoreUnreachable    it does not answer, or let us in, or the connection is gone
    │   ├── StoreReadOnly       it lets us read and not write
    │   ├── StoreRefused        it works, but does not take this one value
    │   ├── SchemaMissing       the table that we read is not there
    │   ├── SchemaOlder         it was made by an older Redrive, and nobody asked to upgrade it
    │   └── SchemaNewer         it was made by a newer Redrive
    └── BrokerError             anything between us and the broker
        ├── CannotStart         a private broker, as the demo uses one, did not start
        ├── CannotConnect       no host answered, or none let us in
        ├── ManagementError     the management API does not answer, or refuses
        ├── ConnectionLost      the connection is gone, and all that was unsettled on it
        │   └── ConnectionClosed    ... because the broker closed it, with a code and a text
        ├── ConsumerCancelled   the broker ended a consumer: its queue was deleted or failed over
        └── ChannelClosed       the broker closed one channel, with a code and a text
            ├── AccessRefused       403
            ├── NotFound            404
            ├── ResourceLocked      405
            └── PreconditionFailed  406

No exception of a library underneath escapes as itself: the edge that calls the library turns it
into one of these. A command shows `str(error)` and the remedy on one line, never a traceback; where
a program of the SDK's ends by one, the remedy is the last line of the traceback, as a note.
"""

from __future__ import annotations

from collections.abc import Iterator


class RedriveError(Exception):
    """The root: `str()` says what is wrong, `remedy` what to do about it."""

    remedy: str = ""

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        if remedy or self.remedy:
            self.advise(remedy or self.remedy)

    def advise(self, remedy: str) -> None:
        """Say what to do, instead of what was said before."""
        self.remedy = remedy
        self.__notes__ = [f"what to do: {remedy}"]


class SettingsError(RedriveError):
    """A setting is missing, misspelt or has a wrong value."""


class MalformedData(RedriveError):
    """Bytes from the wire that do not follow AMQP's grammar."""


class Unpublishable(RedriveError):
    """A message on which the broker would close the channel or connection. It was not sent."""


class PolicyRefused(RedriveError):
    """A policy that `dlq_event_config` cannot hold, or that could not be meant."""


class CursorRefused(RedriveError):
    """Where to go on in a list, but no page has ended there."""

    remedy = "give the 'next' of the page before, as it is"


class OrderRefused(RedriveError):
    """A sweep or a move that could not be meant, such as one onto itself. Nothing was touched."""


class TransitionRefused(RedriveError):
    """A letter cannot go from the state it is in to the one that was asked for."""


class EditRefused(RedriveError):
    """A letter's message cannot be changed so, or not now. Nothing was."""


class PatchDoesNotApply(EditRefused):
    """A JSON Patch that the body of a letter does not fit. Nothing was changed."""


class EditedMeanwhile(EditRefused):
    """Another edit stands than the one that somebody saw. Nothing was changed."""

    remedy = "look at it again"


class LastOneRefused(RedriveError):
    """Without this user or token nobody, or no admin, could log in. Nothing was changed."""

    remedy = "make another admin first, with 'redrive user set NAME --role admin' or the API"


class CannotListen(RedriveError):
    """The server's address is taken, or is none of this machine's."""

    remedy = "set another [server] port or host, or end what listens there"


class SinkFailed(RedriveError):
    """Whoever should be told of an alert was not: they do not answer, or do not want it."""

    remedy = "check the [[alert_sink]] of that name, and who listens at its url"


class CountChanged(RedriveError):
    """Between a look and the word to go on, other letters came to match. Nothing was done."""

    remedy = "look again, and confirm the new number"

    def __init__(self, expected: int, found: int) -> None:
        super().__init__(f"{found:,} letters match now, not {expected:,}")
        self.found = found


class NotedMeanwhile(RedriveError):
    """Another note stands than the one that somebody saw. It stays."""

    remedy = "look at the note that stands, and write yours from it"


class ColdStorageError(RedriveError):
    """Cold storage cannot be written, or what was read back is not what was written."""


class StoreError(RedriveError):
    """Anything that went wrong between Redrive and its store or the policy table."""


class StoreUnreachable(StoreError):
    """The database does not answer, does not let us in, or broke the connection."""

    remedy = "check [store] url, and that the database runs"


class StoreReadOnly(StoreError):
    """The database lets us read and not write."""

    remedy = "grant this user the right to write, or make the change by other means"


class StoreRefused(StoreError):
    """The database is well, and does not take what it was given: too large, or not allowed."""


class SchemaMissing(StoreError):
    """A table or column that Redrive reads is not there."""


class SchemaOlder(StoreError):
    """The store was never set up, or by an older Redrive. Nothing was changed."""

    remedy = "run 'redrive db upgrade'"


class SchemaNewer(StoreError):
    """The store belongs to a newer Redrive; this one would harm what it does not know."""

    remedy = "use the Redrive that upgraded it, or a newer one"


class BrokerError(RedriveError):
    """Anything that went wrong between Redrive and the broker."""


class CannotStart(BrokerError):
    """A private broker, the demo's or the tests', did not start; the message has its log's end."""


class CannotConnect(BrokerError):
    """No host of the broker URL could be reached, or none let us in."""

    remedy = "check [broker] url, and that the broker runs and accepts this user on this vhost"


class ManagementError(BrokerError):
    """The management API does not answer, refuses us, or answers with something else than JSON.

    `status` is the HTTP status of a refusal, 0 where there was no answer.
    """

    remedy = "check [broker] management_url, and that the broker's management plugin is on"

    def __init__(self, message: str, *, remedy: str = "", status: int = 0) -> None:
        super().__init__(message, remedy=remedy)
        self.status = status


class ConnectionLost(BrokerError):
    """The connection is gone. Unacked deliveries and unconfirmed publishes on it are void."""

    remedy = "nothing to do: Redrive connects again; check the broker's log if it repeats"


class ConnectionClosed(ConnectionLost):
    """The broker closed the connection and said why."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"the broker closed the connection: {code} {text}")
        self.code = code
        self.text = text


class ConsumerCancelled(BrokerError):
    """The broker ended a consumer, as it does when the queue is deleted or its leader is gone."""

    remedy = "check that the queue still exists; Redrive consumes it again when it is back"


class ChannelClosed(BrokerError):
    """The broker closed a channel and said why. Its unconfirmed publishes are in doubt."""

    remedy = "the text is the broker's own; it names the queue or exchange and what it objects to"

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"the broker refused: {code} {text}")
        self.code = code
        self.text = text


class AccessRefused(ChannelClosed):
    """403: the user lacks a permission, or the queue is exclusive to a consumer."""

    remedy = (
        "grant the user configure, write or read permission on the object that the text names; a"
        " queue in exclusive use has a consumer that shares it with nobody"
    )


class NotFound(ChannelClosed):
    """404: no such queue or exchange."""


class ResourceLocked(ChannelClosed):
    """405: the queue is exclusive to another connection."""

    remedy = "it belongs to another connection, and only that one can read it"


class PreconditionFailed(ChannelClosed):
    """406: other arguments than declared, a foreign user_id, a body too large, an unknown tag."""


def the_reason(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one error to tell of several that ended tasks together: a defect before one of ours."""
    leaves = list(_leaves(group))
    defects = [leaf for leaf in leaves if not isinstance(leaf, RedriveError)]
    return (defects or leaves)[0]


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
