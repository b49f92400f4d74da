"""What was trained, put to use: export and prediction."""
