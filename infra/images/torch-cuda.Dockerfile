# Stages that train with PyTorch on GPUs; the node gives the driver.
# docker build -f infra/images/torch-cuda.Dockerfile -t superworkflow/torch-cuda .
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE}

# For builders with a package index of their own; unset, pip asks PyPI.
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_FIND_LINKS

# What changes least comes first: the layers above the project's own code are built once.
COPY infra/images/base.txt /opt/requirements/
RUN pip install --no-cache-dir --no-compile --no-deps -r /opt/requirements/base.txt
COPY infra/images/torch-cuda.txt /opt/requirements/
RUN pip install --no-cache-dir --no-compile -r /opt/requirements/torch-cuda.txt

RUN useradd --uid 1000 --create-home stage
WORKDIR /opt/superworkflow
COPY superworkflow superworkflow
COPY infra infra
COPY tasks tasks
ENV PYTHONPATH=/opt/superworkflow PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# Bytecode of what stages import, which each pod would else compile at its start.
RUN env -u PYTHONDONTWRITEBYTECODE python -m superworkflow.images.import_stages
USER 1000
ENTRYPOINT ["python", "-m", "superworkflow"]
