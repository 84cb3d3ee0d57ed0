# One Debian for both stages: python-ldap is compiled in the first against the libldap that the second has.
FROM python:3.12-slim-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev libldap2-dev libsasl2-dev
COPY requirements.txt requirements-ldap.txt ./
RUN python -m venv /venv \
    && /venv/bin/pip install --no-cache-dir --require-hashes -r requirements.txt \
    && /venv/bin/pip install --no-cache-dir --require-hashes --no-build-isolation -r requirements-ldap.txt

FROM python:3.12-slim-bookworm
RUN apt-get update && apt-get install -y --no-install-recommends libldap-2.5-0 libsasl2-2 && rm -rf /var/lib/apt/lists/*
WORKDIR /app
COPY --from=build /venv /venv
ENV PATH=/venv/bin:$PATH
COPY . .
RUN pip install --no-cache-dir --no-deps --no-build-isolation -e . \
    && useradd --create-home coordinator \
    && install -d -o coordinator /data
USER coordinator
