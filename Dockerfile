# The exporter with cgo: NVML is a library of the host's driver, opened when it is there, and built against
# glibc. Both architectures, without emulation:
#   docker buildx build --platform linux/amd64,linux/arm64 --build-arg VERSION=$(git describe --tags --always) .
FROM --platform=$BUILDPLATFORM golang:1.26-bookworm AS build
ARG BUILDARCH TARGETARCH
# A compiler for the other architecture, where the image is not for this one.
RUN if [ "$TARGETARCH" != "$BUILDARCH" ]; then \
      case "$TARGETARCH" in arm64) triplet=aarch64-linux-gnu ;; amd64) triplet=x86-64-linux-gnu ;; esac && \
      apt-get update && apt-get install -y --no-install-recommends "gcc-$triplet" "libc6-dev-$TARGETARCH-cross" && rm -rf /var/lib/apt/lists/*; \
    fi
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=unknown REVISION=unknown
RUN if [ "$TARGETARCH" != "$BUILDARCH" ]; then \
      case "$TARGETARCH" in arm64) export CC=aarch64-linux-gnu-gcc ;; amd64) export CC=x86_64-linux-gnu-gcc ;; esac; \
    fi && \
    CGO_ENABLED=1 GOARCH=$TARGETARCH make build VERSION="$VERSION" REVISION="$REVISION"

FROM debian:bookworm-slim
ARG VERSION=unknown REVISION=unknown
LABEL org.opencontainers.image.title="llm-node-exporter" \
      org.opencontainers.image.description="Prometheus exporter for the nodes that run LLM inference" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/llm-node-exporter/llm-node-exporter" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
COPY --from=build /src/bin/exporter /exporter
# For NVIDIA's container runtime: utility is NVML and nothing else.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=utility
USER 65532:65532
EXPOSE 9844
ENTRYPOINT ["/exporter"]
