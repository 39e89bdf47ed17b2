# Flows and, as processes next to them, stages on processors, those of networks too: a worker of a process pool (docker-compose.yml).
# docker build -f infra/images/worker.Dockerfile -t superworkflow/worker .      # after cpu and flow
ARG KERNELS=superworkflow/cpu:0.1.0
ARG FLOW=superworkflow/flow:0.1.0
FROM ${KERNELS} AS kernels
FROM ${FLOW}

# For builders with a package index of their own; unset, pip asks PyPI.
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_FIND_LINKS

USER root
COPY infra/images/cpu.txt infra/images/torch-cpu.txt /opt/requirements/
RUN pip install --no-cache-dir --no-compile --no-deps -r /opt/requirements/cpu.txt -r /opt/requirements/torch-cpu.txt
# Numba uses a folder only where it may also write to it.
COPY --from=kernels --chown=1000 /opt/numba /opt/numba
ENV NUMBA_CACHE_DIR=/opt/numba
USER 1000
