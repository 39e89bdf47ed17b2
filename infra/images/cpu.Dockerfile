# In-process stages on processors: all but embed.
# docker build -f infra/images/cpu.Dockerfile -t superworkflow/cpu .
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE}

# For builders with a package index of their own; unset, pip asks PyPI.
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_FIND_LINKS

# What changes least comes first: the layers above the project's own code are built once.
COPY infra/images/base.txt /opt/requirements/
RUN pip install --no-cache-dir --no-compile --no-deps -r /opt/requirements/base.txt
COPY infra/images/cpu.txt /opt/requirements/
RUN pip install --no-cache-dir --no-compile --no-deps -r /opt/requirements/cpu.txt

RUN useradd --uid 1000 --create-home stage
WORKDIR /opt/superworkflow
COPY superworkflow superworkflow
COPY infra infra
COPY tasks tasks
ENV PYTHONPATH=/opt/superworkflow PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# The stages' kernels, compiled for this processor; a node with another one compiles them anew. And bytecode of what that
# imports, which each pod would else compile at its start.
RUN NUMBA_CACHE_DIR=/opt/numba env -u PYTHONDONTWRITEBYTECODE python -m superworkflow.images.compile_kernels
ENV SUPERWORKFLOW_KERNELS=/opt/numba
USER 1000
ENTRYPOINT ["python", "-m", "superworkflow"]
