# The package with the versions of constraints.txt, for processors or for NVIDIA GPUs:
#
#   docker build --target cpu -t adaptive-bench:cpu .
#   docker build --target cuda -t adaptive-bench:cuda .
#   docker run --rm -v "$PWD/runs:/work/runs" adaptive-bench:cpu run --config smoke
FROM python:3.11-slim-bookworm AS source
ENV PIP_NO_CACHE_DIR=1 PYTHONUNBUFFERED=1
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY adaptive_bench adaptive_bench
COPY configs configs
COPY leaderboard leaderboard
COPY methods methods
COPY tasks tasks

FROM source AS cpu
RUN pip install --extra-index-url https://download.pytorch.org/whl/cpu -c constraints.txt .
WORKDIR /work
ENTRYPOINT ["adaptive-bench"]

# PyPI's torch for Linux brings the CUDA libraries; of the host only the driver is needed.
FROM source AS cuda
RUN pip install -c constraints.txt .
WORKDIR /work
ENTRYPOINT ["adaptive-bench"]
