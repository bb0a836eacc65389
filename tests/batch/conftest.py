"""Databases for batches that are shared."""

from tests.durable.conftest import databases as databases
