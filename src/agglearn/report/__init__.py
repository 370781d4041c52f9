"""What was found, said once: a document, and how it is shown on a terminal, to a program, in a notebook."""
