# Stages with `engine: spark`: the driver, which is the stage's own pod, and its executors.
# docker build -f infra/images/spark.Dockerfile -t superworkflow/spark .      # after cpu, whose compiled kernels it takes
ARG BASE=python:3.11-slim-bookworm
ARG KERNELS=superworkflow/cpu:0.1.0
FROM ${KERNELS} AS kernels
FROM ${BASE}

# For builders with a package index of their own; unset, pip asks PyPI.
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_FIND_LINKS

# What changes least comes first: the layers above the project's own code are built once, the first ones for all images.
COPY infra/images/base.txt /opt/requirements/
RUN pip install --no-cache-dir --no-compile --no-deps -r /opt/requirements/base.txt
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
    && apt-get clean && rm -rf /var/lib/apt/lists/* /usr/share/doc /usr/share/man
# Hive, the REPL, Spark Connect, YARN and streaming state are of no use to a stage: a third of pyspark. What is left
# imports pyspark.testing.
COPY infra/images/spark.txt /opt/requirements/
RUN pip install --no-cache-dir --no-compile --no-deps -r /opt/requirements/spark.txt \
    && cd "$(python -c 'import pyspark, os; print(os.path.dirname(pyspark.__file__))')" \
    && rm -rf examples data \
    && cd jars \
    && rm -rf connect-repl hive-* spark-hive* derby* datanucleus-* jdo-api-* javax.jdo-* rocksdbjni-* leveldbjni-* \
       spark-connect_* spark-yarn_* spark-repl_* scala-compiler-* jline-* zookeeper-* curator-* \
       netty-*-osx-* netty-*-windows-* netty-*-aarch_64.jar netty-*-riscv64.jar

RUN useradd --uid 1000 --create-home stage
WORKDIR /opt/superworkflow
COPY superworkflow superworkflow
COPY infra infra
COPY tasks tasks
ENV PYTHONPATH=/opt/superworkflow PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# Bytecode of what stages import, which each pod would else compile at its start.
RUN env -u PYTHONDONTWRITEBYTECODE python -m superworkflow.images.import_stages spark
COPY --from=kernels /opt/numba /opt/numba
ENV SUPERWORKFLOW_KERNELS=/opt/numba
USER 1000
# Spark ends the command line of its executors' pods with `executor`, which is then the command.
ENTRYPOINT ["python", "-m", "superworkflow"]
