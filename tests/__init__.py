"""Redrive's tests."""
