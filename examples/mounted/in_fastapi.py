"""The dashboard in a FastAPI application, for whoever that application's own login knows.

Run it: COORDINATOR_URL=redis://localhost:6379/0 uvicorn examples.mounted.in_fastapi:app
"""

from fastapi import FastAPI, Request

from coordinator import Author, Coordinator
from coordinator.extending import dashboard

USERS = {"sesame": Author("ulla"), "look": Author("vera", "viewer")}  # your session store


def who(request: Request) -> Author | None:
    """Give the author of a request, an operator unless you say viewer; None: nobody comes in."""
    return USERS.get(request.cookies.get("session", ""))


app = FastAPI()
app.mount("/coordinator", dashboard(Coordinator(), auth=who))


@app.get("/")
def home() -> dict[str, str]:
    return {"dashboard": "/coordinator/"}
