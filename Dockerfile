# The exporter with cgo: NVML is a library of the host's driver, opened when it is there, and built
# against glibc. Both architectures: docker buildx build --platform linux/amd64,linux/arm64 .
FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=unknown REVISION=unknown
RUN make build VERSION=${VERSION} REVISION=${REVISION}

FROM debian:bookworm-slim
ARG VERSION=unknown REVISION=unknown
LABEL org.opencontainers.image.title="llm-node-exporter" \
      org.opencontainers.image.description="Prometheus exporter for the nodes that run LLM inference" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/llm-node-exporter/llm-node-exporter" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /src/bin/exporter /exporter
# For NVIDIA's container runtime: utility is NVML and nothing else.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=utility
USER 65532:65532
EXPOSE 9844
ENTRYPOINT ["/exporter"]
