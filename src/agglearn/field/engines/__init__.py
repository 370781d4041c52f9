"""What moves the chains: engines of one protocol."""
