"""Filters between training and combining: what the server refuses, clips or hides."""
