"""Tables, whether they agree, and their files."""
