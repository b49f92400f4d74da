"""What is measured of a trained federation."""
