"""The topology for other tools: definitions that RabbitMQ imports, and a script that imports them.

Pure. `rabbitmqctl` cannot declare queues one by one, and `rabbitmqadmin` takes different options in
RabbitMQ 3 and 4; an import of definitions works everywhere, and leaves alone what exists.
"""

from __future__ import annotations

import json
from typing import Any

from redrive.broker.topology import Topology


def definitions(topology: Topology, vhost: str) -> dict[str, Any]:
    """What `rabbitmqctl import_definitions` and the management API take. The vhost must exist."""
    return {
        "exchanges": [
            {
                "name": exchange.name,
                "vhost": vhost,
                "type": exchange.kind,
                "durable": True,
                "auto_delete": False,
                "internal": False,
                "arguments": {},
            }
            for exchange in topology.exchanges
        ],
        "queues": [
            {
                "name": queue.name,
                "vhost": vhost,
                "durable": True,
                "auto_delete": False,
                "arguments": dict(queue.arguments),
            }
            for queue in topology.queues
        ],
        "bindings": [
            {
                "source": binding.exchange,
                "vhost": vhost,
                "destination": binding.queue,
                "destination_type": "queue",
                "routing_key": binding.routing_key,
                "arguments": {},
            }
            for binding in topology.bindings
        ],
    }


def shell(topology: Topology, vhost: str) -> str:
    """A script for a machine where `rabbitmqctl` reaches the broker."""
    # JSON with ASCII only, so that neither a line nor a locale can end the document early.
    document = json.dumps(definitions(topology, vhost), indent=1)
    return (
        "#!/bin/sh\n"
        "# Makes what is missing of Redrive's topology. What exists is left as it is.\n"
        "set -e\n"
        "# By a file, for on RabbitMQ 4 rabbitmqctl cannot read definitions from its input;\n"
        "# readable, for rabbitmqctl may become the user that the broker runs as.\n"
        "definitions=$(mktemp)\n"
        "trap 'rm -f \"$definitions\"' EXIT\n"
        "cat >\"$definitions\" <<'REDRIVE_DEFINITIONS'\n"
        f"{document}\n"
        "REDRIVE_DEFINITIONS\n"
        'chmod 644 "$definitions"\n'
        'rabbitmqctl import_definitions "$definitions"\n'
    )
