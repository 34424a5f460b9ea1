# A tag moves. A release gives a digest: --build-arg BASE_IMAGE=python@sha256:…, see docs/operating.md.
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS tools
WORKDIR /src
# The images have no pip: this one installs into the environment that they get.
RUN python3 -m venv /opt/pip && python3 -m venv --without-pip /opt/babelgate
COPY requirements-build.txt ./
RUN /opt/pip/bin/pip install --no-cache-dir --require-hashes -r requirements-build.txt

FROM tools AS dependencies
# The client of Artemis is built by a C compiler, which is in this stage only. With it comes strip, which takes 49 MB of
# debugging symbols out of other packages.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
COPY requirements.txt requirements-artemis.txt ./
RUN /opt/pip/bin/pip --python /opt/babelgate/bin/python3 install --no-cache-dir --require-hashes \
    -r requirements.txt -r requirements-artemis.txt \
    && find /opt/babelgate -name '*.so' -exec strip --strip-unneeded {} +

# The program without its dependencies: a change of it is a small layer of the image.
FROM dependencies AS program
COPY pyproject.toml README.md LICENSE ./
COPY app app
COPY tools/licences.py tools/sbom.py tools/
RUN /opt/pip/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheel . \
    && /opt/pip/bin/pip --python /opt/babelgate/bin/python3 install --no-deps --prefix /opt/program /wheel/*.whl \
    && PYTHONPATH=app /opt/babelgate/bin/python3 -m tools.sbom requirements.txt requirements-artemis.txt >/opt/program/sbom.cdx.json

FROM tools AS dependencies-pipeline
COPY requirements-spark.txt ./
# Spark's folder gets a name that does not change with Python's version.
RUN /opt/pip/bin/pip --python /opt/babelgate/bin/python3 install --no-cache-dir --require-hashes -r requirements-spark.txt \
    && ln -s "$(/opt/babelgate/bin/python3 -c 'import pyspark; print(*pyspark.__path__)')" /opt/babelgate/spark

FROM dependencies-pipeline AS program-pipeline
COPY pyproject.toml README.md LICENSE ./
COPY app app
COPY tools/licences.py tools/sbom.py tools/
# What spark-submit starts has to end in .py. Its folder comes first in the path of imports, so that no module may have
# its name.
RUN /opt/pip/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheel . \
    && /opt/pip/bin/pip --python /opt/babelgate/bin/python3 install --no-deps --prefix /opt/program /wheel/*.whl \
    && ln -s babelgate /opt/program/bin/babelgate-main.py \
    && PYTHONPATH=app /opt/babelgate/bin/python3 -m tools.sbom requirements-spark.txt >/opt/program/sbom.cdx.json

# docker build --target pipeline: the jobs on Spark, on one machine or as the pods of a driver and its executors.
FROM ${BASE_IMAGE} AS pipeline
ENV PATH=/opt/babelgate/bin:$PATH \
    SPARK_HOME=/opt/babelgate/spark \
    PYSPARK_PYTHON=/opt/babelgate/bin/python3
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*
# Hadoop asks the system for the user's name, and fails where there is none. A new volume at /data, where landing folder and
# lake may be, takes over the owner.
RUN useradd --uid 10001 --home-dir /var/lib/babelgate --shell /usr/sbin/nologin babelgate \
    && install -d -o 10001 -g 10001 -m 0700 /var/lib/babelgate /data
COPY --from=dependencies-pipeline /opt/babelgate /opt/babelgate
COPY docker/pipeline /usr/local/bin/pipeline
COPY --from=program-pipeline /opt/program /opt/babelgate
USER 10001:10001
WORKDIR /var/lib/babelgate
VOLUME /var/lib/babelgate
LABEL org.opencontainers.image.title=babelgate-pipeline \
      org.opencontainers.image.description="Jobs on Spark over the journal and the message dumps of babelgate." \
      org.opencontainers.image.licenses=Apache-2.0 \
      org.opencontainers.image.version=0.2.0
ENTRYPOINT ["pipeline"]
CMD ["--help"]

FROM ${BASE_IMAGE}
# Variables, not arguments of the command: the health check has to know them too.
ENV PATH=/opt/babelgate/bin:$PATH \
    BABELGATE_HOST=0.0.0.0 \
    BABELGATE_STATE_DIR=/var/lib/babelgate
# It writes to its state, and to a landing folder in a volume at /data. A new volume mounted there takes over the owner.
# Python's own library is compiled here, because on a read-only file system every start and every health check would compile
# it again.
RUN install -d -o 10001 -g 10001 -m 0700 /var/lib/babelgate /data \
    && python3 -m compileall -q -x 'config-|idlelib|lib2to3|packages|test|tkinter' \
        "$(python3 -c 'import os; print(os.path.dirname(os.__file__))')"
COPY --from=dependencies /opt/babelgate /opt/babelgate
COPY --from=program /opt/program /opt/babelgate
USER 10001:10001
WORKDIR /var/lib/babelgate
VOLUME /var/lib/babelgate
EXPOSE 8080
LABEL org.opencontainers.image.title=babelgate \
      org.opencontainers.image.description="One HTTP service in front of every message broker you run: publish and consume BabelQueue envelopes." \
      org.opencontainers.image.licenses=Apache-2.0 \
      org.opencontainers.image.version=0.2.0
# Longer than the 3 s for which the command waits for an answer: it has to start, too.
HEALTHCHECK --interval=10s --timeout=10s --start-period=10s \
    CMD ["babelgate", "healthcheck"]
# There is no default for who may come in: without configured tokens, or BABELGATE_AUTH=none, this address is refused.
ENTRYPOINT ["babelgate"]
CMD ["serve"]
