"""The fixtures that every suite may use; they live in tests/services/plugin.py."""

pytest_plugins = ["tests.services.plugin"]
