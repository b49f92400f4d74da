"""Sensors' signals as they are: stores of recordings, imports of people's own files, clients made of windows."""
