"""Measurements of Redrive against the alternatives, on a private broker: `python -m bench`."""
