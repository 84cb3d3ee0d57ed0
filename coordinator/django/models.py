"""The models of the app."""

from coordinator.django.outbox_row import OutboxRow as OutboxRow
from coordinator.django.permissions import Dashboard as Dashboard
