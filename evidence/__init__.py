"""Evidence: what the field can do, on real and simulated data, with a page written from stored results."""
