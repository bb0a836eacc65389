"""Pure conversions between values and the JSON of APIs."""
