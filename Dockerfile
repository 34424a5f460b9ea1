FROM python:3.11-slim-bookworm AS build
WORKDIR /src
RUN python3 -m venv /opt/babelgate
COPY requirements.txt requirements-build.txt ./
RUN /opt/babelgate/bin/pip install --no-cache-dir --require-hashes -r requirements.txt -r requirements-build.txt
COPY pyproject.toml README.md LICENSE ./
COPY app app
RUN /opt/babelgate/bin/pip install --no-cache-dir --no-deps --no-build-isolation . \
    && /opt/babelgate/bin/pip uninstall --yes flit-core pip

FROM python:3.11-slim-bookworm
ENV PATH=/opt/babelgate/bin:$PATH \
    BABELGATE_STATE_DIR=/var/lib/babelgate
# The only place it writes to; a volume mounted here takes over the owner.
RUN install -d -o 10001 -g 10001 -m 0700 /var/lib/babelgate
COPY --from=build /opt/babelgate /opt/babelgate
USER 10001:10001
WORKDIR /var/lib/babelgate
VOLUME /var/lib/babelgate
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s \
    CMD ["python3", "-c", "import http.client as h, os, sys; c = h.HTTPConnection('127.0.0.1', int(os.getenv('BABELGATE_PORT', '8080')), timeout=2); c.request('GET', '/livez'); sys.exit(c.getresponse().status != 200)"]
# There is no default for who may come in: without configured tokens, or BABELGATE_AUTH=none, this address is refused.
ENTRYPOINT ["babelgate"]
CMD ["serve", "--host", "0.0.0.0"]
