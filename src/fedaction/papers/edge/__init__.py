"""Asynchronous edge learning with distillation."""
