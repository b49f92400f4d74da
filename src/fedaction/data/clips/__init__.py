"""Video: decoding, clips, datasets, a cache of clips, and clients made of them."""
