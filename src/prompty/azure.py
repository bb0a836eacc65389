"""Prompty v1 registered a provider with this import. It has no effect."""

from prompty.old_names import warn_of_provider

warn_of_provider(__name__)
