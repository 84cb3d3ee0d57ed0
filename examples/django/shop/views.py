"""The pages of the shop."""

from django import VERSION
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from shop.celery import coordinator
from shop.models import Order
from shop.tasks import bill, ship

if VERSION >= (6, 0):
    from django.tasks.exceptions import TaskResultDoesNotExist
else:
    from django_tasks.exceptions import TaskResultDoesNotExist


@csrf_exempt
@require_http_methods(["GET", "POST"])
def order(request: HttpRequest, number: int) -> HttpResponse:
    """POST orders, GET says how far that is. A request is a transaction: with it both jobs are there, in this order, or
    none is.
    """
    if request.method == "POST":
        new = Order.objects.create(number=number)
        coordinator.submit_on_commit(None, bill.s(number), outbox=True)
        new.shipping = ship.enqueue(number).id
        new.save()
        return HttpResponse(status=201)
    found = get_object_or_404(Order, number=number)
    try:
        result = ship.get_result(found.shipping)
    except TaskResultDoesNotExist:  # a node is about to submit it
        return HttpResponse("ordered")
    return HttpResponse(str(result.return_value if result.is_finished else result.status))
