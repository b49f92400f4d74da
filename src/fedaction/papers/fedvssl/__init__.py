"""FedVSSL."""
