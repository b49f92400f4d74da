"""The server: what it knows of a federation, and the round as an object."""
