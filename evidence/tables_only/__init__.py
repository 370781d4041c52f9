"""Evidence on what tables alone can tell: records are used only to check it."""
