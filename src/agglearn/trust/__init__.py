"""What a fitted field can be trusted for, told from tables alone."""
