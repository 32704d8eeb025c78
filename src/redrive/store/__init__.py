"""What Redrive keeps: policies so far; letters, replays and leases later. SQLite or PostgreSQL.

    store = await open_store(url)
    async with store.writing() as connection: ...

`engine` opens databases, `schema` has the tables, `upgrade` brings a store to this version,
`policies` reads and writes `dlq_event_config`. No exception of a driver leaves this package as
itself: see `failures`.
"""
