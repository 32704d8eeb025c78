"""The words by which a reason's values are told from its names and codes.

Free text does not say what differs from message to message; the words around a token often do:
`status 503`, `column "email"`, `for input string: "abc"`. These are words of drivers, runtimes and
frameworks, not of any one application: a word belongs here if it means the same in all of them.
"""

from __future__ import annotations

from typing import Final


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


CODE_WORDS: Final = words(
    "code status http errno error err sqlstate state sqlcode winerror hresult exit signal msg "
    "number severity alert reply rc"
)
"""Words that a code follows."""
NO_CODE: Final = words(
    "zip postal post area promo coupon country tracking verification confirmation qr bar discount "
    "voucher product item order dial invite access security zipcode postcode barcode"
)
"""Words that turn a `code` or `number` into somebody's value."""
STATUS_WORDS: Final = words(
    "returned returns responded with got received response was answered replied failed unexpected >"
)
"""Words that an HTTP status may follow, and other numbers too."""
ANSWER_WORDS: Final = words("returned returns responded answered replied response")
"""Those of them that are said of a server."""
UNKNOWN_WORDS: Final = words("unknown unsupported undefined unrecognized missing required such")
"""Words before a kind of thing of which the code knows the names: `unsupported format 'xls'`."""
SCHEMA_WORDS: Final = words(
    "column columns table relation constraint index field fields property attribute class type "
    "method function procedure module package parameter param argument sequence schema member "
    "trigger struct enum interface view operator collection"
)
"""Words that a name follows, whatever digits it has."""
NAME_WORDS: Final = SCHEMA_WORDS | words(
    "key properties variable identifier database task queue exchange topic header bean reading "
    "setting option named extension role permission scope feature object element tag service "
    "policy keyword dependency command route event state status step stage job handler listener "
    "plugin codec charset encoding locale symbol label section template reason action operation "
    "currency unit kind region missing required unknown undefined consumer path model entity "
    "resource keyerror attributeerror"
)
"""Words that a name follows, if it looks like one."""
VALUE_WORDS: Final = words(
    "value values string input got received parsing parse entry literal data text token near body "
    "payload content float int integer number decimal uuid guid date datetime boolean bool double "
    "long numeric timestamp json bigint smallint user username email customer account tenant id "
    "from for base was convert cast deserialize decode unmarshal time amount variant"
)
"""Words that a value follows."""
TELLING_KEYS: Final = words(
    "error errors code message msg type status state reason detail details title field fields "
    "param parameter description error_description exception class cause column table constraint "
    "method queue exchange topic task category kind severity path loc location service operation "
    "action desc input_type expected property event level target required"
)
"""Keys whose values tell kinds apart, in JSON and in `key=value`."""
TELLING_ENDS: Final = ("code", "type", "status", "state", "error", "message")
TEXT_KEYS: Final = words(
    "error errors message msg reason detail error_description desc cause exception"
)
"""Those whose values are texts about the failure."""

CURRENCIES: Final = words(
    "USD EUR GBP CHF JPY PLN SEK NOK DKK CZK HUF CAD AUD NZD CNY INR BRL MXN SGD HKD ZAR "
    "zł kr R$ US$ $ € £ ¥"
)
DATE_WORDS: Final = words(
    "Mon Tue Wed Thu Fri Sat Sun Monday Tuesday Wednesday Thursday Friday Saturday Sunday "
    "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec January February March April June July "
    "August September October November December"
)
UNITS: Final = (
    CURRENCIES
    | DATE_WORDS
    | words(
        "ns us µs ms s m h d x ms sec secs min mins hr hrs millis milliseconds second seconds "
        "minute minutes hour hours day days b kb mb gb tb B kB KB MB GB TB K M G KiB MiB GiB TiB "
        "Ki Mi Gi byte bytes % px st nd rd th AM PM GMT UTC Z CET CEST EST EDT PST PDT"
    )
)
"""What stands after a number and belongs to it: the same failure says `900 ms` or `2 s`."""
BEFORE_NUMBERS: Final = CURRENCIES | DATE_WORDS
"""What stands before a number and belongs to it."""


def is_telling(key: str) -> bool:
    return key in TELLING_KEYS or key.endswith(TELLING_ENDS)
