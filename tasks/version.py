"""The version of the installed distribution."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("celery-coordinator")
except PackageNotFoundError:  # the program runs from a checkout that is not installed
    VERSION = "0"
