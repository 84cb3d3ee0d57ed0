"""The version of the installed distribution."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("celery-coordinator")
except PackageNotFoundError:  # a checkout that is not installed
    VERSION = "0"
