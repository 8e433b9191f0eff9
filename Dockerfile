# The gateway as a small image: one binary, the certificates it needs to reach brokers over TLS, no root.
#
#   docker build -t tidegate .
#
# Where images or crates come from elsewhere:
#   docker build --build-arg BUILDER=mirror.example/rust:1-bookworm --build-arg RUNTIME=mirror.example/debian:bookworm-slim .
#   cargo vendor vendor && docker build --build-arg CARGO_ARGS="--offline --config vendor/config.toml" .
ARG BUILDER=rust:1-bookworm
ARG RUNTIME=debian:bookworm-slim

FROM ${BUILDER} AS build
WORKDIR /build
# Dependencies first, against an empty crate: this layer is rebuilt only when the lock file changes.
ARG CARGO_ARGS=""
COPY Cargo.toml Cargo.lock ./
COPY vendor* vendor/
RUN mkdir -p src && echo 'fn main() {}' >src/main.rs && touch src/lib.rs \
    && cargo build --release --locked --bin tidegate ${CARGO_ARGS} \
    && rm -rf src target/release/tidegate target/release/deps/*tidegate* target/release/.fingerprint/tidegate-*
COPY src src
COPY config config
RUN cargo build --release --locked --bin tidegate ${CARGO_ARGS} && strip target/release/tidegate

FROM build AS certificates
RUN [ -s /etc/ssl/certs/ca-certificates.crt ] \
    || (apt-get update && apt-get install -y --no-install-recommends ca-certificates)

FROM ${RUNTIME}
COPY --from=certificates /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /build/target/release/tidegate /usr/local/bin/tidegate
COPY config/tidegate.toml /etc/tidegate/tidegate.toml
# A number, so that Kubernetes can check `runAsNonRoot`.
USER 10001:10001
EXPOSE 9464
STOPSIGNAL SIGTERM
# There is no HEALTHCHECK: the image has no HTTP client, and a health check that starts the gateway's own binary each
# few seconds costs more than it tells. Ask /livez and /readyz from outside (compose, Kubernetes).
ENTRYPOINT ["/usr/local/bin/tidegate"]
CMD ["run", "--config", "/etc/tidegate/tidegate.toml"]
