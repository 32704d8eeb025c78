"""Examples that run: `python -m redrive.examples.payment_gateway --help`."""
