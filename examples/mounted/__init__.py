"""The dashboard inside another web application: FastAPI, Starlette, Django. Each file runs as `uvicorn FILE:app`."""
