"""The core: tensor trees, scopes, averages, state and schedules. Knows no model and no data."""
