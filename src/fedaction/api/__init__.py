"""What a researcher types after `import fedaction as fa`: the names are in `fedaction/__init__.py`."""
