"""Pure helpers between our values and JSON."""
