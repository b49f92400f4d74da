"""Readers for public skeleton datasets, one file each. Users bring the data; nothing is downloaded."""
