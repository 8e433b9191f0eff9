# The gateway as a small image: one binary and the certificates it needs to reach brokers over TLS, no root.
#
#   docker build -t tidegate .
#
# Where images come from a mirror, or crates cannot be fetched while building:
#   docker build --build-arg BUILDER=mirror.example/rust:1-bookworm --build-arg RUNTIME=mirror.example/debian:bookworm-slim .
#   mkdir vendor && cargo vendor vendor/crates >vendor/config.toml
#   docker build --build-arg CARGO_ARGS="--offline --config vendor/config.toml" .
ARG BUILDER=rust:1-bookworm
ARG RUNTIME=debian:bookworm-slim

FROM ${BUILDER} AS build
WORKDIR /build
COPY . .
ARG CARGO_ARGS=""
RUN cargo build --release --locked --bin tidegate ${CARGO_ARGS} && strip target/release/tidegate

FROM ${RUNTIME}
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /build/target/release/tidegate /usr/local/bin/tidegate
COPY config/tidegate.toml /etc/tidegate/tidegate.toml
# A number, so that Kubernetes can check `runAsNonRoot`.
USER 10001:10001
# No HEALTHCHECK here: whether a gateway that waits for its database is unhealthy, the one who runs it decides. Ask
# /livez or /readyz of the admin server (deploy/compose.yaml shows how).
ENTRYPOINT ["/usr/local/bin/tidegate"]
CMD ["run", "--config", "/etc/tidegate/tidegate.toml"]
