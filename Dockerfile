FROM python:3.12-slim
WORKDIR /app
COPY requirements.txt .
RUN pip install --no-cache-dir --require-hashes -r requirements.txt
COPY . .
RUN pip install --no-cache-dir --no-deps --no-build-isolation -e . \
    && useradd --create-home coordinator \
    && install -d -o coordinator /data
USER coordinator
