"""FSAR and its supplement."""
