"""The API: REST under /api/v1, live events, health. It is handed a desk, and builds nothing."""
