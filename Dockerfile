FROM python:3.11-slim-bookworm AS build
WORKDIR /src
RUN python3 -m venv /opt/babelgate
# The client of Artemis is built by a C compiler, which is in this stage only.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
COPY requirements.txt requirements-artemis.txt requirements-build.txt ./
RUN /opt/babelgate/bin/pip install --no-cache-dir --require-hashes \
    -r requirements.txt -r requirements-artemis.txt -r requirements-build.txt
COPY pyproject.toml README.md LICENSE ./
COPY app app
RUN /opt/babelgate/bin/pip install --no-cache-dir --no-deps --no-build-isolation . \
    && /opt/babelgate/bin/pip uninstall --yes flit-core pip

FROM python:3.11-slim-bookworm AS build-pipeline
WORKDIR /src
RUN python3 -m venv /opt/babelgate
COPY requirements-spark.txt requirements-build.txt ./
RUN /opt/babelgate/bin/pip install --no-cache-dir --require-hashes -r requirements-spark.txt -r requirements-build.txt
COPY pyproject.toml README.md LICENSE ./
COPY app app
# What spark-submit starts has to end in .py; its folder comes first in the path of imports, and nothing else is in this
# one. Spark's folder gets a name that does not change with Python's version.
RUN /opt/babelgate/bin/pip install --no-cache-dir --no-deps --no-build-isolation . \
    && /opt/babelgate/bin/pip uninstall --yes flit-core pip \
    && ln -s babelgate /opt/babelgate/bin/babelgate.py \
    && ln -s "$(/opt/babelgate/bin/python3 -c 'import pyspark; print(*pyspark.__path__)')" /opt/babelgate/spark

# docker build --target pipeline: the jobs on Spark, on one machine or as the pods of a driver and its executors.
FROM python:3.11-slim-bookworm AS pipeline
ENV PATH=/opt/babelgate/bin:$PATH \
    SPARK_HOME=/opt/babelgate/spark \
    PYSPARK_PYTHON=/opt/babelgate/bin/python3
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*
# Hadoop asks the system for the user's name, and fails where there is none.
RUN useradd --uid 10001 --home-dir /var/lib/babelgate --shell /usr/sbin/nologin babelgate \
    && install -d -o 10001 -g 10001 -m 0700 /var/lib/babelgate
COPY --from=build-pipeline /opt/babelgate /opt/babelgate
COPY docker/pipeline /usr/local/bin/pipeline
USER 10001:10001
WORKDIR /var/lib/babelgate
VOLUME /var/lib/babelgate
ENTRYPOINT ["pipeline"]
CMD ["--help"]

FROM python:3.11-slim-bookworm
# Variables, not arguments of the command: the health check has to know them too.
ENV PATH=/opt/babelgate/bin:$PATH \
    BABELGATE_HOST=0.0.0.0 \
    BABELGATE_STATE_DIR=/var/lib/babelgate
# The only place it writes to; a volume mounted here takes over the owner.
RUN install -d -o 10001 -g 10001 -m 0700 /var/lib/babelgate
COPY --from=build /opt/babelgate /opt/babelgate
USER 10001:10001
WORKDIR /var/lib/babelgate
VOLUME /var/lib/babelgate
EXPOSE 8080
# Longer than the 3 s for which the command waits for an answer: it has to start, too.
HEALTHCHECK --interval=10s --timeout=10s --start-period=10s \
    CMD ["babelgate", "healthcheck"]
# There is no default for who may come in: without configured tokens, or BABELGATE_AUTH=none, this address is refused.
ENTRYPOINT ["babelgate"]
CMD ["serve"]
