# A worker with its models' libraries. The weights come from the hub at the first start and stay in the volume.
FROM python:3.11-slim

# A GPU build of torch is what the default index has for x86_64. For a smaller CPU image:
#   docker compose build --build-arg PIP_EXTRA_INDEX_URL=<index with CPU builds of torch>
ARG PIP_EXTRA_INDEX_URL=""

ENV HF_HOME=/var/lib/cordwood/models \
    PYTHONUNBUFFERED=1 \
    TOKENIZERS_PARALLELISM=false

RUN useradd --system --create-home --home-dir /var/lib/cordwood cordwood \
    && install -d -o cordwood -g cordwood /var/lib/cordwood/models

WORKDIR /app
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY producer ./producer
COPY worker ./worker
RUN pip install --no-cache-dir --disable-pip-version-check -c constraints.txt '.[worker]'

COPY configs ./configs
USER cordwood
VOLUME /var/lib/cordwood/models

# The exec form: the worker itself gets the SIGTERM, stops fetching, finishes its batch and hands the rest back.
ENTRYPOINT ["cordwood-worker"]
CMD ["run", "--config", "configs/compose.toml"]
