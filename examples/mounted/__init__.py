"""The dashboard inside another web application: FastAPI, Starlette. Each file runs as `uvicorn FILE:app`."""
