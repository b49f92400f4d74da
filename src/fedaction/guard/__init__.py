"""Filters between what sites send and what the server combines. They read the scope table, and compose."""
