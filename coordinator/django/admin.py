"""In the admin: the link to the dashboard for those who may look at it, and the rows of an outbox."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest, HttpResponseRedirect
from django.urls import URLPattern, path

from coordinator.django.outbox_row import OutboxRow
from coordinator.django.permissions import Dashboard
from coordinator.django.project import project
from coordinator.django.site import dashboard_url


@admin.register(Dashboard)
class DashboardLink(admin.ModelAdmin):
    def get_urls(self) -> list[URLPattern]:
        """The list alone: there are no rows to open."""
        view = self.admin_site.admin_view(self.changelist_view)
        return [path("", view, name="coordinator_dashboard_changelist")]

    def changelist_view(self, request: HttpRequest, extra_context: object = None) -> HttpResponseRedirect:
        return HttpResponseRedirect(dashboard_url() or "../..")

    def has_module_permission(self, request: HttpRequest) -> bool:
        return dashboard_url() is not None

    def has_view_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return any(request.user.has_perm(f"coordinator.{act}_dashboard") for act in ("view", "operate"))

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False


@admin.register(OutboxRow)
class OutboxRowAdmin(admin.ModelAdmin):
    """The rows that no node has submitted yet, with what stands in the way; to delete one gives its job up."""

    list_display = ("number", "job_id", "error")
    search_fields = ("job_id",)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return bool(project().coordinator._outboxes) and super().has_module_permission(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False
