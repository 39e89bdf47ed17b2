# The platform: runs flows, sweeps, workers, and the servers of docker-compose.yml. Stages have images of their own.
# docker build -f infra/images/flow.Dockerfile -t superworkflow/flow .
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE}

# For builders with a package index of their own; unset, pip asks PyPI.
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_FIND_LINKS

# What changes least comes first: the layers above the project's own code are built once.
COPY infra/images/base.txt /opt/requirements/
RUN pip install --no-cache-dir --no-compile --no-deps -r /opt/requirements/base.txt
COPY infra/images/flow.txt /opt/requirements/
RUN pip install --no-cache-dir --no-compile --no-deps -r /opt/requirements/flow.txt

# A volume that is mounted there takes its owner.
RUN useradd --uid 1000 --create-home flow && install -d -o flow -g flow /home/flow/.prefect
WORKDIR /opt/superworkflow
COPY superworkflow superworkflow
COPY infra infra
COPY tasks tasks
COPY flows flows
COPY dashboards dashboards
COPY sweeps sweeps
ENV PYTHONPATH=/opt/superworkflow PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
ENV PREFECT_SERVER_ANALYTICS_ENABLED=false MLFLOW_DISABLE_TELEMETRY=true DO_NOT_TRACK=1
# What servers and flows import is compiled once, here, rather than at every start; servers import much only when asked.
RUN env -u PYTHONDONTWRITEBYTECODE python -c "import prefect.server.api.server, prefect.cli.server, prefect.cli.worker, \
    prefect.workers.process, mlflow.cli, mlflow.pyfunc, boto3, flask_wtf, waitress, psycopg, s3fs, optuna_dashboard._cli, \
    superworkflow.dashboards.web.app, superworkflow.dashboards.report, superworkflow.infra.orchestration.flow, \
    superworkflow.infra.orchestration.source_trigger, superworkflow.sweeps.study, superworkflow.servers, \
    superworkflow.worker, superworkflow.infra.orchestration.leases, superworkflow.infra.orchestration.requeue" \
    && cd "$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
    && python -m compileall -q alembic prefect/server mlflow/server mlflow/store mlflow/gateway mlflow/metrics
USER 1000
CMD ["python", "-m", "superworkflow", "--help"]
