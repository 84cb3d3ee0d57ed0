"""Reads the version of the installed package celery-coordinator."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("celery-coordinator")
except PackageNotFoundError:  # the code runs from a checkout that is not installed
    VERSION = "0"
