"""The orders in the admin; the link to the dashboard stands there by itself."""

from django.contrib import admin

from shop.models import Order

admin.site.register(Order)
