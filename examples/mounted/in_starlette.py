"""The dashboard in a Starlette application. Nobody has a login here: the log says the token that lets a browser in.

Run it: COORDINATOR_URL=redis://localhost:6379/0 uvicorn examples.mounted.in_starlette:app
"""

from starlette.applications import Starlette
from starlette.routing import Mount

from coordinator import Coordinator
from coordinator.extending import dashboard

app = Starlette(routes=[Mount("/coordinator", dashboard(Coordinator()))])
