"""The pages of the project: the admin, and one that enqueues a task."""

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import path

from tests.harness.apps.project import tasks


def order(request: HttpRequest, number: int) -> HttpResponse:
    status = int(request.GET.get("status", 200))
    done = tasks.ship.using(backend="later").enqueue(number)
    if status == 500:
        raise RuntimeError("an ATOMIC_REQUESTS site rolls this back")
    return HttpResponse(done.id)


urlpatterns = [path("admin/", admin.site.urls), path("order/<int:number>/", order)]
