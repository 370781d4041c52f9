"""The field: what it is, the laws of X it is compared with, and how it is solved."""
