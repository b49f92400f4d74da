"""One network in one place: training with or without a teacher, and what its features are worth."""
