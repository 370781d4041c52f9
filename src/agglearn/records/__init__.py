"""Raw records: where they come from, and how their columns are coded."""
