"""FDARN."""
