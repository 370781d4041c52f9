"""Evidence for what is claimed: each subject is a page of the documentation, written from stored results."""
