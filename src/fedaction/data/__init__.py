"""What clients hold: skeleton layouts and recordings, partitions, and the embedded world (`stage`)."""
