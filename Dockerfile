# The exporter and llm-rules, what they are linked against, and nothing else: no shell, no package manager. NVML is a library of the
# host's driver, built against glibc and opened when it is there. Both architectures, without emulation, with a bill
# of materials:
#   docker buildx build --platform linux/amd64,linux/arm64 --sbom=true --build-arg VERSION=$(git describe --tags --always) .
# Another mirror, or a digest: --build-arg GO_IMAGE=mirror.example/golang:1.26-bookworm@sha256:...
ARG GO_IMAGE=golang:1.26-bookworm
FROM --platform=$BUILDPLATFORM $GO_IMAGE AS build
ARG BUILDARCH TARGETARCH
# A compiler for the other architecture, where the image is not for this one.
RUN if [ "$TARGETARCH" != "$BUILDARCH" ]; then \
      case "$TARGETARCH" in arm64) triplet=aarch64-linux-gnu ;; amd64) triplet=x86-64-linux-gnu ;; esac && \
      apt-get update && apt-get install -y --no-install-recommends "gcc-$triplet" "libc6-dev-$TARGETARCH-cross" && rm -rf /var/lib/apt/lists/*; \
    fi
# What the driver's libraries are linked against besides libc, certificates to reach engines over TLS, and a name for the user.
RUN case "$TARGETARCH" in \
      arm64) triplet=aarch64-linux-gnu; loader=lib/ld-linux-aarch64.so.1 ;; \
      amd64) triplet=x86_64-linux-gnu; loader=lib64/ld-linux-x86-64.so.2 ;; \
    esac && \
    lib=/lib/$triplet && if [ "$TARGETARCH" != "$BUILDARCH" ]; then lib=/usr/$triplet/lib; fi && \
    mkdir -p "/image/lib/$triplet" /image/lib64 /image/etc/ssl/certs && \
    for name in libc.so.6 libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1; do cp -L "$lib/$name" "/image/lib/$triplet/"; done && \
    cp -L "$lib/${loader##*/}" "/image/$loader" && \
    cp -L /etc/ssl/certs/ca-certificates.crt /image/etc/ssl/certs/ && \
    echo 'hosts: files dns' >/image/etc/nsswitch.conf && \
    echo 'nonroot:x:65532:65532::/:/' >/image/etc/passwd
# Unset, it is Go's default.
ARG GOPROXY
ENV GOTOOLCHAIN=local
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG VERSION=unknown REVISION=unknown
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    if [ "$TARGETARCH" != "$BUILDARCH" ]; then \
      case "$TARGETARCH" in arm64) export CC=aarch64-linux-gnu-gcc ;; amd64) export CC=x86_64-linux-gnu-gcc ;; esac; \
    fi && \
    CGO_ENABLED=1 GOARCH=$TARGETARCH make build COMMANDS=./cmd/exporter VERSION="$VERSION" REVISION="$REVISION" && mv bin/exporter bin/llm-rules /image/

FROM scratch
ARG VERSION=unknown REVISION=unknown
LABEL org.opencontainers.image.title="llm-node-exporter" \
      org.opencontainers.image.description="Prometheus exporter for the nodes that run LLM inference" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/llm-node-exporter/llm-node-exporter" \
      org.opencontainers.image.documentation="https://github.com/llm-node-exporter/llm-node-exporter/blob/main/README.md" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
COPY --from=build /image /
# For NVIDIA's container runtime: utility is NVML and nothing else.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=utility
USER 65532:65532
EXPOSE 9844
ENTRYPOINT ["/exporter"]
