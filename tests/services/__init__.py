"""Real servers for the tests: RabbitMQ, PostgreSQL and a proxy that misbehaves on request."""
