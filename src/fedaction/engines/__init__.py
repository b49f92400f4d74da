"""Engines own the local loop: they turn jobs into updates. Swappable by a flag, held equal by tests."""
