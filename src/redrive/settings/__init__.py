"""Settings: what they are, where they come from, what is wrong with them.

    loaded = load(flags={"broker.url": flag}, config=path)
    loaded.settings.broker.url.reveal()

A leaf: it imports nothing of Redrive but `errors` and `domain`. See `loading` for the order of the
layers and `sections` for every setting.
"""

from redrive.settings.layers import Source
from redrive.settings.loading import Entry, Loaded, load
from redrive.settings.sections import (
    BrokerSettings,
    PolicySettings,
    PolicyTableSettings,
    RedactionSettings,
    Settings,
    StoreSettings,
    TopologyNames,
    TopologySettings,
)
from redrive.settings.values import ConnectionUrl

__all__ = [
    "BrokerSettings",
    "ConnectionUrl",
    "Entry",
    "Loaded",
    "PolicySettings",
    "PolicyTableSettings",
    "RedactionSettings",
    "Settings",
    "Source",
    "StoreSettings",
    "TopologyNames",
    "TopologySettings",
    "load",
]
