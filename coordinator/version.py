"""The version of the installed distribution."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("celery-coordinator")
except PackageNotFoundError:  # a checkout that nobody installed
    VERSION = "0"
